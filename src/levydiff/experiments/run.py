"""A run on points in the plane: a training on draws of a synthetic data set, measured against fresh draws."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..cli.build import build_data, build_denoiser, build_loss, build_rate
from ..metrics import global_l1, msle, prd, tail_bias, tail_error
from ..model import LevyModel
from ..scaling import scaling_for
from ..train import Trainer
from ..train_config import TrainConfig
from .likelihood import fitted_law
from .trial import Draw, Trial

#: Data for evaluation are drawn with the run's seed plus this, so that they are fresh.
FRESH = 1_000_000

#: The numbers of clusters of the metric "f1 by clusters"; the published code has 100.
CLUSTERS = (20, 100, 500)


@dataclass(frozen=True)
class Run(Trial):
    """A training and what is done with it. The defaults are the paper's protocol in two dimensions.

    Arguments:
        label: The row of the table it belongs to; not part of the key.
        data: A data set as ``levydiff train --data`` takes it.
        alpha, network, width, preconditioning, loss, inner, groups, grid, steps, batch_size, rate, decay,
            ema, isotropic, compress: As the options of ``levydiff train``.
        points: How many points to train on.
        scaled: Train on the data scaled by :func:`~levydiff.scaling.scaling_for`, not on the data as they are.
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
    compress: bool = False

    MEASURED = ("label", "draws", "metric", "evaluated")

    def __post_init__(self) -> None:
        if self.compress and not self.scaled:
            raise ValueError("scaled must be True with compress, got False")

    def to_record(self) -> dict[str, Any]:
        """As JSON; without options of few runs where they are as usual, so that the others keep their names."""
        record = super().to_record()
        if self.isotropic:
            del record["isotropic"]
        if not self.compress:
            del record["compress"]
        return record

    def fit(self, folder: Path | None, progress: bool = False) -> LevyModel:
        options = self.options()
        data = training_points(self)
        scaling = scaling_for(data, self.alpha, self.compress) if self.scaled else None
        rows = data if scaling is None else scaling.apply(data)
        denoiser = build_denoiser(options, rows)
        config = TrainConfig(
            steps=self.steps,
            batch_size=self.batch_size,
            rate=build_rate(options),
            ema=self.ema,
            seed=self.seed,
            log_every=1000,
            validate_every=0,
            checkpoint_every=1000,
        )
        loss = build_loss(options, denoiser.process)
        return Trainer(denoiser, loss, rows, config, folder, scaling=scaling).fit(progress=progress)

    def judge(self) -> Callable[[Tensor], dict[str, Any]]:
        fresh = build_data(self.data, None, self.evaluated, self.seed + FRESH).values.float()
        return lambda samples: METRICS[self.metric](fresh, samples)


def _msle(real: Tensor, generated: Tensor) -> dict[str, float]:
    error = msle(real, generated)
    return {"msle": error.mean, "msle_integral": error.integral, "tail_error": tail_error(real, generated)}


def _f1(real: Tensor, generated: Tensor, repeats: int = 10) -> dict[str, float]:
    return asdict(prd(real, generated, repeats=repeats))


def _quick_f1(real: Tensor, generated: Tensor) -> dict[str, float]:
    return _f1(real, generated, repeats=2)


def _f1_by_clusters(real: Tensor, generated: Tensor) -> dict[str, float]:
    return {f"f1 of {k} clusters": prd(real, generated, clusters=k, repeats=3).f1 for k in CLUSTERS}


def _tails(real: Tensor, generated: Tensor) -> dict[str, float]:
    result = {"tail_error": tail_error(real, generated), "global_l1": global_l1(real, generated)}
    for i in range(real.shape[1]):
        result[f"tail_error_x{i}"] = tail_error(real, generated, coordinate=i)
        result[f"global_l1_x{i}"] = global_l1(real, generated, coordinate=i)
    return result


def _beyond(real: Tensor, generated: Tensor) -> dict[str, float]:
    return {
        "tail_error": tail_error(real, generated, lower=0.999, upper=0.9999),
        "tail_bias": tail_bias(real, generated, lower=0.999, upper=0.9999),
    }


#: What can be measured: fresh data and samples to numbers.
METRICS: dict[str, Callable[[Tensor, Tensor], dict[str, Any]]] = {
    "msle": _msle,
    "f1": _f1,
    "f1 of 2 clusterings": _quick_f1,
    "f1 by clusters": _f1_by_clusters,
    "tails": _tails,
    "beyond 99.9 %": _beyond,
}


def training_points(run: Run) -> Tensor:
    """What the run trains on."""
    return build_data(run.data, None, run.points, run.seed).values.float()


def other_points(run: Run) -> Tensor:
    """As many fresh points as the run's samples are compared with, and others."""
    return build_data(run.data, None, run.evaluated, run.seed + 2 * FRESH).values.float()


def fitted_points(run: Run) -> Tensor:
    """As many points of the data's own law, with its constants estimated from the run's training points."""
    law = fitted_law(run.data, training_points(run))
    return law(run.evaluated, torch.Generator().manual_seed(run.seed + 3 * FRESH))


@cache
def score_without_training(run: Run, source: Callable[[Run], Tensor]) -> dict[str, Any]:
    """The run's metric of points that no network made, to compare with those that one did.

    Arguments:
        run: Says which data, how many, and which metric.
        source: :func:`other_points` for what a perfect model would score, :func:`training_points` for one that only
            remembers, :func:`fitted_points` for one that is told the formula.
    """
    return run.judge()(source(run))
