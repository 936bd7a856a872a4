"""From options to objects: data, denoiser, loss, sampler."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..data import Checkerboard, Dataset, Funnel, GaussianGrid, StableData, StudentT, SwissRoll, TwoMoons
from ..denoise import Denoiser, PlainPreconditioning, StablePreconditioning
from ..kl import CauchyLoss, FullKLLoss, TwoVariableLoss
from ..loss import DDPMLoss, LIMLoss, Loss, OneVariableLoss, SelfWeightedLoss
from ..model import LevyModel
from ..nn import PaperMLP, TailMLP
from ..process import LevyProcess
from ..rates import ConstantRate, CosineDecay, LearningRate, StepDecay
from ..robust import MedianOfMeans
from ..sample import DDIM, DDPM, DLIM, DLPM, LIM, LIMODE, Sampler
from ..schedule import (
    CosineSchedule,
    ExplodingSchedule,
    LinearSchedule,
    linear_time,
    log_ratio_spacing,
    quadratic_time,
)
from ..table import Table, read_table
from .config import SampleOptions, TrainOptions

DATA_SETS: dict[str, type[Dataset]] = {
    "stable": StableData,
    "grid": GaussianGrid,
    "swiss-roll": SwissRoll,
    "checkerboard": Checkerboard,
    "two-moons": TwoMoons,
    "funnel": Funnel,
    "student-t": StudentT,
}
SCHEDULES = {"cosine": CosineSchedule, "linear": LinearSchedule, "exploding": ExplodingSchedule}
SPACINGS = {"linear": linear_time, "quadratic": quadratic_time, "log-ratio": log_ratio_spacing}


def build_data(spec: str, columns: str | None, points: int, seed: int) -> Table:
    """A table file, or draws of a data set written as ``name`` or ``name:key=value,key=value``."""
    name, _, arguments = spec.partition(":")
    if name not in DATA_SETS:
        if Path(spec).suffix or Path(spec).exists():
            return read_table(spec, [name.strip() for name in columns.split(",")] if columns else None)
        raise ValueError(f"data must be a file or one of {', '.join(DATA_SETS)}, got {spec!r}")
    if columns:
        raise ValueError(f"columns can be chosen from a table only, got data = {spec!r}")
    try:
        pairs = dict(part.split("=", 1) for part in arguments.split(",") if part)
        dataset: Any = DATA_SETS[name](**{key: ast.literal_eval(value) for key, value in pairs.items()})
    except (TypeError, ValueError, SyntaxError) as error:
        raise ValueError(f"data {spec!r} cannot be made: {error}") from error
    values = dataset(points, torch.Generator().manual_seed(seed))
    return Table(values, tuple(f"x{j}" for j in range(values.shape[1])))


def build_denoiser(options: TrainOptions, rows: Tensor) -> Denoiser:
    """The network with its process and preconditioning, for rows of scaled data."""
    torch.manual_seed(options.seed)  # the initial weights
    process = LevyProcess(options.alpha, SCHEDULES[options.schedule](), options.isotropic)
    make: Callable[..., torch.nn.Module] = {"tail": TailMLP, "paper": PaperMLP}[options.network]
    size = {} if options.width is None else {"width": options.width}
    stable = options.preconditioning == "stable"
    preconditioning = StablePreconditioning.for_data(rows) if stable else PlainPreconditioning()
    return Denoiser(make(rows.shape[1], blocks=options.blocks, **size), process, preconditioning)


def build_loss(options: TrainOptions, process: LevyProcess) -> Loss:
    """The objective."""
    steps = options.grid or (100 if options.loss in ("two-variable", "full-kl", "cauchy") else 0)
    grid: Any = process.schedule.grid(steps) if steps else None
    if options.inner > 1 and options.loss in ("self-weighted", "lim", "ddpm", "cauchy"):
        raise ValueError(f"inner must be 1 for the loss {options.loss}, got {options.inner}")
    inner = options.inner
    makers: dict[str, Callable[[], Loss]] = {
        "self-weighted": lambda: SelfWeightedLoss(grid),
        "one-variable": lambda: OneVariableLoss(inner=inner, grid=grid),
        "rescaled": lambda: OneVariableLoss(inner=inner, rescaled=True, grid=grid),
        "two-variable": lambda: TwoVariableLoss(grid, inner=inner),
        "full-kl": lambda: FullKLLoss(grid, inner=inner),
        "lim": lambda: LIMLoss(grid=grid),
        "ddpm": lambda: DDPMLoss(grid),
        "cauchy": lambda: CauchyLoss(grid),
    }
    loss = makers[options.loss]()
    return MedianOfMeans(loss, options.groups) if options.groups > 1 else loss


def build_rate(options: TrainOptions) -> LearningRate:
    """The learning rate."""
    if options.decay == "cosine":
        return CosineDecay(options.rate)
    return ConstantRate(options.rate) if options.decay == "constant" else StepDecay(options.rate)


def build_sampler(options: SampleOptions, model: LevyModel) -> Sampler:
    """The sampler around a model's denoiser."""
    denoiser, schedule = model.denoiser, model.denoiser.process.schedule
    if options.end is not None:
        schedule = replace(schedule, t_max=options.end)
    grid = schedule.grid(options.steps, SPACINGS[options.spacing])
    implicit: dict[str, type[DLIM]] = {"dlim": DLIM, "ddim": DDIM}
    if options.method in implicit:
        return implicit[options.method](denoiser, grid=grid, order=options.order)
    if options.method == "dlpm":
        return DLPM(denoiser, grid=grid, consistent_start={"independent": False, "consistent": True}[options.start])
    others: dict[str, Callable[..., Sampler]] = {"lim": LIM, "lim-ode": LIMODE, "ddpm": DDPM}
    return others[options.method](denoiser, grid=grid)


def split_rows(values: Tensor, share: float, seed: int) -> tuple[Tensor, Tensor | None]:
    """(training rows, validation rows), by a random permutation."""
    if not 0 <= share < 1:
        raise ValueError(f"validation must lie in [0, 1), got {share}")
    held = int(share * len(values))
    if held == 0:
        return values, None
    order = torch.randperm(len(values), generator=torch.Generator().manual_seed(seed))
    return values[order[held:]], values[order[:held]]
