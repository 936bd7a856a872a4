"""One run of an experiment: draw data, train one network on them, sample from it in several ways, measure.

A :class:`Run` is a value. What it holds decides, together with the code, the numbers that :func:`execute` returns; so
its :attr:`Run.key` names the result on disk, and a sweep (:mod:`levydiff.experiments.sweep`) never makes a run twice.
The words in it are those of ``levydiff train`` and ``levydiff sample``. After a change of the code that changes
results, delete the cache and the results.
"""

from __future__ import annotations

import hashlib
import json
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from filelock import FileLock
from torch import Tensor

from .. import __version__
from ..cli.build import build_data, build_denoiser, build_loss, build_rate, build_sampler
from ..cli.config import SampleOptions, TrainOptions
from ..metrics import global_l1, msle, prd, tail_error
from ..model import LevyModel
from ..scaling import fit_scaling
from ..train import TrainConfig, Trainer

#: Whose versions a record keeps.
PACKAGES = ("torch", "numpy", "scipy", "scikit-learn")

#: Data for evaluation are drawn with the run's seed plus this, so that they are fresh.
FRESH = 1_000_000


@dataclass(frozen=True)
class Draw:
    """One way to sample from a trained network.

    Example:
        >>> Draw("dlim", 25, order=2).name
        'dlim2 25'
        >>> Draw("dlpm", 100, start="consistent").name
        'dlpm 100 consistent'
    """

    method: str
    steps: int = 100
    order: int = 1
    spacing: str = "linear"
    start: str = "independent"
    end: float | None = None

    @property
    def name(self) -> str:
        """A short name, the key of the results."""
        extras = [self.spacing] if self.spacing != "linear" else []
        extras += [self.start] if self.start != "independent" else []
        extras += [f"from {self.end:g}"] if self.end is not None else []
        return " ".join([self.method + ("2" if self.order == 2 else ""), str(self.steps), *extras])


@dataclass(frozen=True)
class Run:
    """A training and what is done with it. The defaults are the paper's protocol in two dimensions.

    Arguments:
        label: The row of the table it belongs to; not part of the key.
        data: A data set as ``levydiff train --data`` takes it.
        alpha, isotropic, network, width, preconditioning, loss, inner, groups, grid, steps, batch_size, rate, decay,
            ema: As the options of ``levydiff train``.
        points: How many points to train on.
        scaled: Train on the data scaled by :func:`~levydiff.scaling.fit_scaling`, not on the data as they are.
        draws: How to sample.
        metric: A name in :data:`METRICS`.
        evaluated: How many samples to compare with as many fresh points.
        seed: Everything random follows from it.
    """

    label: str
    data: str
    alpha: float
    loss: str
    draws: tuple[Draw, ...]
    metric: str
    seed: int = 0
    network: str = "paper"
    width: int | None = None
    preconditioning: str = "plain"
    inner: int = 1
    groups: int = 1
    grid: int = 100
    scaled: bool = False
    points: int = 32_000
    evaluated: int = 25_000
    steps: int = 10_000
    batch_size: int = 1024
    rate: float = 5e-3
    decay: str = "constant"
    ema: float = 0.0
    isotropic: bool = True

    def to_record(self) -> dict[str, Any]:
        """As JSON; without options of few runs where they are as usual, so that the others keep their names."""
        record: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        if self.isotropic:
            del record["isotropic"]
        for draw in record["draws"]:
            if draw["end"] is None:
                del draw["end"]
        return record

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Run:
        """The run that ``to_record`` wrote."""
        return cls(**{**record, "draws": tuple(Draw(**draw) for draw in record["draws"])})

    @property
    def key(self) -> str:
        """A name for the result: a digest of everything that decides it."""
        return _digest(self.to_record(), without=("label",))

    @property
    def training_key(self) -> str:
        """A name for the trained network, which runs that differ in their draws alone share."""
        return _digest(self.to_record(), without=("label", "draws", "metric", "evaluated"))

    def options(self) -> TrainOptions:
        """The options of ``levydiff train`` that make this network."""
        shared = {field.name for field in fields(TrainOptions)} & {field.name for field in fields(self)}
        return TrainOptions(**{name: getattr(self, name) for name in shared})


def _digest(record: dict[str, Any], without: tuple[str, ...]) -> str:
    kept = {name: value for name, value in record.items() if name not in without}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:16]


def execute(run: Run, networks: Path | None = None, progress: bool = False) -> dict[str, Any]:
    """Train, sample, measure.

    Arguments:
        run: What to do.
        networks: A folder for trained networks. A training that was stopped goes on from its last checkpoint there,
            one that is finished is not repeated.
        progress: Show progress bars.

    Returns:
        A record: the run's configuration, its results for each draw, the seconds it took, the versions that made it.
    """
    started = time.perf_counter()
    try:
        model = train(run, networks, progress)
    except FloatingPointError as error:  # a training that diverges is a result too
        trained = time.perf_counter()
        results = {draw.name: {"failed": f"training: {error}"} for draw in run.draws}
    else:
        trained = time.perf_counter()
        fresh = build_data(run.data, None, run.evaluated, run.seed + FRESH).values.float()
        results = {draw.name: _measure(run, draw, model, fresh, progress) for draw in run.draws}
    seconds = {"train": round(trained - started, 1), "sample": round(time.perf_counter() - trained, 1)}
    versions = {"python": platform.python_version(), "levydiff": __version__}
    versions |= {package: version(package) for package in PACKAGES}
    record = {"key": run.key, "run": run.to_record(), "results": results}
    return record | {"seconds": seconds, "versions": versions}


def train(run: Run, networks: Path | None = None, progress: bool = False) -> LevyModel:
    """The trained network of a run; if two ask for the same at once, the second waits for the first."""
    if networks is None:
        return _train(run, None, progress)
    networks.mkdir(parents=True, exist_ok=True)
    with FileLock(networks / f"{run.training_key}.lock"):
        return _train(run, networks / run.training_key, progress)


def _train(run: Run, folder: Path | None, progress: bool) -> LevyModel:
    options = run.options()
    data = build_data(run.data, None, run.points, run.seed).values.float()
    scaling = fit_scaling(data) if run.scaled else None
    rows = data if scaling is None else scaling.apply(data)
    denoiser = build_denoiser(options, rows)
    config = TrainConfig(
        steps=run.steps,
        batch_size=run.batch_size,
        rate=build_rate(options),
        ema=run.ema,
        seed=run.seed,
        log_every=1000,
        validate_every=0,
        checkpoint_every=1000,
    )
    loss = build_loss(options, denoiser.process)
    trainer = Trainer(denoiser, loss, rows, config, folder, scaling=scaling)
    return trainer.fit(progress=progress)


def sample(run: Run, draw: Draw, model: LevyModel, progress: bool = False) -> Tensor:
    """As many samples of a trained network as the run evaluates."""
    sampler = build_sampler(SampleOptions(**asdict(draw)), model)
    return model.sample(run.evaluated, sampler, seed=run.seed, batch_size=5_000, progress=progress)


def _measure(run: Run, draw: Draw, model: LevyModel, fresh: Tensor, progress: bool) -> dict[str, Any]:
    try:
        samples = sample(run, draw, model, progress)
    except FloatingPointError as error:  # so is a sampler that diverges,
        return {"failed": f"sampling: {error}"}
    try:
        return METRICS[run.metric](fresh, samples)
    except ValueError as error:  # and samples without an upper tail
        return {"failed": f"metric: {error}"}


def _msle(real: Tensor, generated: Tensor) -> dict[str, float]:
    error = msle(real, generated)
    return {"msle": error.mean, "msle_integral": error.integral, "tail_error": tail_error(real, generated)}


def _f1(real: Tensor, generated: Tensor, repeats: int = 10) -> dict[str, float]:
    return asdict(prd(real, generated, repeats=repeats))


def _quick_f1(real: Tensor, generated: Tensor) -> dict[str, float]:
    return _f1(real, generated, repeats=2)


def _tails(real: Tensor, generated: Tensor) -> dict[str, float]:
    result = {"tail_error": tail_error(real, generated), "global_l1": global_l1(real, generated)}
    for i in range(real.shape[1]):
        result[f"tail_error_x{i}"] = tail_error(real, generated, coordinate=i)
        result[f"global_l1_x{i}"] = global_l1(real, generated, coordinate=i)
    return result


#: What can be measured: fresh data and samples to numbers.
METRICS: dict[str, Callable[[Tensor, Tensor], dict[str, Any]]] = {
    "msle": _msle,
    "f1": _f1,
    "f1 of 2 clusterings": _quick_f1,
    "tails": _tails,
}


@cache
def score_of_data(run: Run, training: bool = False) -> dict[str, Any]:
    """The metric of fresh data against other fresh data: what a perfect model would score.

    Arguments:
        run: Says which data, how many, and which metric.
        training: The run's training points instead of other fresh data: what a model that only remembers would score.
    """
    real = build_data(run.data, None, run.evaluated, run.seed + FRESH).values.float()
    number, seed = (run.points, run.seed) if training else (run.evaluated, run.seed + 2 * FRESH)
    return METRICS[run.metric](real, build_data(run.data, None, number, seed).values.float())
