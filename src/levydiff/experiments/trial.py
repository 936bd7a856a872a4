"""What every run of an experiment has in common: train one network, sample from it in several ways, measure.

A :class:`Trial` is a value. What it holds decides, together with the code, the numbers that :func:`execute` returns; so
its :attr:`Trial.key` names the result on disk, and a sweep (:mod:`levydiff.experiments.sweep`) never makes a run twice.
The words in it are those of ``levydiff train`` and ``levydiff sample``. After a change of the code that changes
results, delete the cache and the results.

There are two kinds: :class:`~levydiff.experiments.run.Run` on points, :class:`~levydiff.experiments.image_run.ImageRun`
on images.
"""

from __future__ import annotations

import hashlib
import json
import platform
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

from filelock import FileLock
from torch import Tensor

from .. import __version__
from ..cli.build import build_sampler
from ..cli.config import SampleOptions, TrainOptions
from ..model import LevyModel
from ..runs import RunFolder

#: Whose versions a record keeps.
PACKAGES = ("torch", "numpy", "scipy", "scikit-learn")


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
    clipping: bool = False

    @property
    def name(self) -> str:
        """A short name, the key of the results."""
        extras = [self.spacing] if self.spacing != "linear" else []
        extras += [self.start] if self.start != "independent" else []
        extras += [f"from {self.end:g}"] if self.end is not None else []
        extras += ["clipped"] if self.clipping else []
        return " ".join([self.method + ("2" if self.order == 2 else ""), str(self.steps), *extras])

    def to_record(self) -> dict[str, Any]:
        """As JSON; without options of few draws where they are as usual, so that the others keep their names."""
        record = asdict(self)
        if self.end is None:
            del record["end"]
        if not self.clipping:
            del record["clipping"]
        return record


T = TypeVar("T", bound="Trial")


class Trial(ABC):
    """A training and what is done with it; the base of frozen dataclasses.

    Arguments:
        label: The row of the table it belongs to; not part of the key.
        draws: How to sample.
        evaluated: How many samples to measure.
        seed: Everything random follows from it.
    """

    label: str
    draws: tuple[Draw, ...]
    evaluated: int
    seed: int

    #: Fields that decide the scores, but not the trained network.
    MEASURED: tuple[str, ...] = ("label", "draws", "evaluated")
    #: How many samples to make at a time.
    BATCH: int = 5_000

    @abstractmethod
    def fit(self, folder: Path | None, progress: bool = False) -> LevyModel:
        """Train the network; a training that was stopped goes on in its folder."""

    @abstractmethod
    def judge(self) -> Callable[[Tensor], dict[str, Any]]:
        """What turns samples into scores; prepared once for all draws."""

    def to_record(self) -> dict[str, Any]:
        """As JSON."""
        record = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        plain: dict[str, Any] = json.loads(json.dumps(record | {"draws": [draw.to_record() for draw in self.draws]}))
        return plain

    @classmethod
    def from_record(cls: type[T], record: Mapping[str, Any]) -> T:
        """The run that ``to_record`` wrote."""
        return cls(**{**record, "draws": tuple(Draw(**draw) for draw in record["draws"])})

    @property
    def key(self) -> str:
        """A name for the result: a digest of everything that decides it."""
        return _digest(self.to_record(), without=("label",))

    @property
    def training_key(self) -> str:
        """A name for the trained network, which runs that differ in their draws alone share."""
        return _digest(self.to_record(), without=self.MEASURED)

    def options(self) -> TrainOptions:
        """The options of ``levydiff train`` that make this network."""
        own = {field.name for field in fields(self)}  # type: ignore[arg-type]
        return TrainOptions(
            **{field.name: getattr(self, field.name) for field in fields(TrainOptions) if field.name in own}
        )


def _digest(record: dict[str, Any], without: tuple[str, ...]) -> str:
    kept = {name: value for name, value in record.items() if name not in without}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:16]


def execute(run: Trial, networks: Path | None = None, progress: bool = False) -> dict[str, Any]:
    """Train, sample, measure.

    Arguments:
        run: What to do.
        networks: A folder for trained networks. A training that was stopped goes on from its last checkpoint there,
            one that is finished is not repeated.
        progress: Show progress bars.

    Returns:
        A record: the run's configuration, its results for each draw, the seconds it took, the versions that made it.
    """
    judge = run.judge()  # first: what is missing for it is told before the training, not after
    started = time.perf_counter()
    try:
        model = train(run, networks, progress)
    except FloatingPointError as error:  # a training that diverges is a result too
        trained = time.perf_counter()
        results = {draw.name: {"failed": f"training: {error}"} for draw in run.draws}
    else:
        trained = time.perf_counter()
        results = {draw.name: _measure(run, draw, model, judge, progress) for draw in run.draws}
    seconds = {"train": round(trained - started, 1), "sample": round(time.perf_counter() - trained, 1)}
    versions = {"python": platform.python_version(), "levydiff": __version__}
    versions |= {package: version(package) for package in PACKAGES}
    record = {"key": run.key, "run": run.to_record(), "results": results}
    return record | {"seconds": seconds, "versions": versions}


def train(run: Trial, networks: Path | None = None, progress: bool = False) -> LevyModel:
    """The trained network of a run; if two ask for the same at once, the second waits for the first."""
    if networks is None:
        return run.fit(None, progress)
    networks.mkdir(parents=True, exist_ok=True)
    with _network_lock(run, networks):
        return run.fit(networks / run.training_key, progress)


def _network_lock(run: Trial, networks: Path) -> FileLock:
    return FileLock(networks / f"{run.training_key}.lock")


def cached_samples(run: Trial, draw: Draw, networks: Path, number: int | None = None) -> Tensor | None:
    """Samples for a picture, of a network that is in the cache: nothing is trained for it. None if there are none."""
    folder = RunFolder(networks / run.training_key).model
    if not folder.is_dir():
        return None
    with _network_lock(run, networks):
        model = LevyModel.from_pretrained(folder)
    try:
        return sample(run, draw, model, number=number)
    except FloatingPointError:  # a sampler that diverges has nothing to show
        return None


def sample(run: Trial, draw: Draw, model: LevyModel, progress: bool = False, number: int | None = None) -> Tensor:
    """Samples of a trained network, as many as the run evaluates by default."""
    sampler = build_sampler(SampleOptions(**asdict(draw)), model)
    return model.sample(number or run.evaluated, sampler, seed=run.seed, batch_size=run.BATCH, progress=progress)


def _measure(
    run: Trial, draw: Draw, model: LevyModel, judge: Callable[[Tensor], dict[str, Any]], progress: bool
) -> dict[str, Any]:
    try:
        samples = sample(run, draw, model, progress)
    except FloatingPointError as error:  # so is a sampler that diverges,
        return {"failed": f"sampling: {error}"}
    try:
        return judge(samples)
    except ValueError as error:  # and samples without an upper tail
        return {"failed": f"metric: {error}"}
