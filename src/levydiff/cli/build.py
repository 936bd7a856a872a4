"""From options to objects: data, denoiser, loss, sampler."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..checks import check_count
from ..data import Checkerboard, Dataset, Funnel, GaussianGrid, StableData, StudentT, SwissRoll, TwoMoons
from ..denoise import Denoiser, Predictor
from ..guidance import Guided
from ..kl import CauchyLoss, FullKLLoss, TwoVariableLoss
from ..loss import DDPMLoss, LIMLoss, Loss, OneVariableLoss, SelfWeightedLoss
from ..model import LevyModel
from ..nn import PaperMLP, TailMLP
from ..precondition import BoundedPreconditioning, PlainPreconditioning, Preconditioning, StablePreconditioning
from ..process import Clipping, LevyProcess
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
from ..table import Table, default_names, read_table
from ..train_config import TrainConfig
from ..unet import UNet
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
#: Options of ``levydiff train`` that may change when a run is resumed.
FREE_OPTIONS = ("out", "samples", "log_every", "checkpoint_every", "keep", "trackers", "data_dir")
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
        values = dataset(points, torch.Generator().manual_seed(seed))
    except (TypeError, ValueError, SyntaxError) as error:
        raise ValueError(f"data {spec!r} cannot be made: {error}") from error
    return Table(values, default_names(values.shape[1]))


def build_denoiser(options: TrainOptions, rows: Tensor, classes: int = 0) -> Denoiser:
    """The network with its process and preconditioning, for rows of scaled data: points (n, d), images (n, c, h, w)."""
    torch.manual_seed(options.seed)  # the initial weights
    process = LevyProcess(options.alpha, SCHEDULES[options.schedule](), options.isotropic)
    makers: dict[str, Callable[[Tensor], Preconditioning]] = {
        "stable": StablePreconditioning.for_data,
        "bounded": BoundedPreconditioning.for_data,
        "plain": lambda _: PlainPreconditioning(),
    }
    preconditioning = makers[options.preconditioning or ("bounded" if rows.ndim == 4 else "stable")](rows)
    network = build_unet(options, rows.shape[1:], classes) if rows.ndim == 4 else build_mlp(options, rows.shape[1])
    return Denoiser(network, process, preconditioning)


def build_mlp(options: TrainOptions, dim: int) -> torch.nn.Module:
    """A network for points."""
    makers: dict[str, Callable[..., torch.nn.Module]] = {"tail": TailMLP, "paper": PaperMLP}
    name = options.network or "tail"
    if name not in makers:
        raise ValueError(f"network must be tail or paper for points and tables, got {name}")
    size = {"width": options.width, "blocks": options.blocks}
    return makers[name](dim, **{key: value for key, value in size.items() if value is not None})


def build_unet(options: TrainOptions, shape: Sequence[int], classes: int) -> UNet:
    """A network for square images."""
    makers = {"unet": UNet.small, "paper-unet": UNet.paper}
    name = options.network or "unet"
    if name not in makers:
        raise ValueError(f"network must be unet or paper-unet for images, got {name}")
    for key in ("width", "blocks"):
        if getattr(options, key) is not None:
            raise ValueError(f"{key} is of networks for points, but the data are images, got {getattr(options, key)}")
    if shape[1] != shape[2]:
        raise ValueError(f"images must be square for the U-Net, got {shape[1]}x{shape[2]}")
    return makers[name](shape[0], shape[1], classes)


def loss_name(options: TrainOptions) -> str:
    """The loss that is asked for, or else the default."""
    return options.loss or ("squared" if options.compress else "self-weighted")


def build_loss(options: TrainOptions, process: LevyProcess) -> Loss:
    """The objective."""
    name = loss_name(options)
    steps = options.grid or (100 if name in ("two-variable", "full-kl", "cauchy") else 0)
    grid: Any = process.schedule.grid(steps) if steps else None
    inner, groups = check_count("inner", options.inner), check_count("groups", options.groups)
    if inner > 1 and name in ("self-weighted", "squared", "lim", "ddpm", "cauchy"):
        raise ValueError(f"inner must be 1 for the loss {name}, got {inner}")
    if name == "squared" and process.alpha != 2:
        raise ValueError(f"alpha must be 2 for the loss squared, got {process.alpha}")
    makers: dict[str, Callable[[], Loss]] = {
        "self-weighted": lambda: SelfWeightedLoss(grid),
        "one-variable": lambda: OneVariableLoss(inner=inner, grid=grid),
        "rescaled": lambda: OneVariableLoss(inner=inner, rescaled=True, grid=grid),
        "two-variable": lambda: TwoVariableLoss(grid, inner=inner),
        "full-kl": lambda: FullKLLoss(grid, inner=inner),
        "lim": lambda: LIMLoss(grid=grid),
        "squared": lambda: OneVariableLoss(eta=2.0, rescaled=True, grid=grid),
        "ddpm": lambda: DDPMLoss(grid),
        "cauchy": lambda: CauchyLoss(grid),
    }
    loss = makers[name]()
    return MedianOfMeans(loss, groups) if groups > 1 else loss


def build_rate(options: TrainOptions) -> LearningRate:
    """The learning rate."""
    if options.decay != "step" and options.decay_every != TrainOptions().decay_every:
        raise ValueError(f"decay_every is of decay = step, got {options.decay_every} with decay = {options.decay}")
    if options.decay == "cosine":
        return CosineDecay(options.rate)
    if options.decay == "constant":
        return ConstantRate(options.rate)
    return StepDecay(options.rate, every=check_count("decay_every", options.decay_every))


def build_config(options: TrainOptions) -> TrainConfig:
    """How to train."""
    return TrainConfig(
        steps=options.steps,
        batch_size=options.batch_size,
        rate=build_rate(options),
        ema=options.ema,
        seed=options.seed,
        clip_gradient=options.clip_gradient,
        accumulate=options.accumulate,
        precision=options.precision,
        compile=options.compile,
        log_every=options.log_every,
        validate_every=options.log_every * 5,
        checkpoint_every=options.checkpoint_every,
        keep=options.keep,
        trackers=tuple(name for name in options.trackers.split(",") if name),
    )


def build_sampler(options: SampleOptions, model: LevyModel) -> Sampler:
    """The sampler around a model's denoiser."""
    denoiser: Predictor = model.denoiser
    schedule = denoiser.process.schedule
    if options.guidance != 1.0:
        if model.info.get("options", {}).get("label_dropout") == 0:
            raise ValueError("guidance needs a model that was trained with a label_dropout above 0, got one with 0")
        denoiser = Guided(denoiser, options.guidance)
    if options.end is not None:
        schedule = replace(schedule, t_max=options.end)
    grid = schedule.grid(options.steps, SPACINGS[options.spacing])
    implicit: dict[str, type[DLIM]] = {"dlim": DLIM, "ddim": DDIM}
    if options.clipping and options.method not in ("lim", "lim-ode"):
        raise ValueError(f"clipping is of lim and lim-ode, got method = {options.method}")
    if options.start != "independent" and options.method != "dlpm":
        raise ValueError(f"start is of dlpm, got {options.start} with method = {options.method}")
    if options.order not in (1, 2):
        raise ValueError(f"order must be 1 or 2, got {options.order}")
    if options.method in implicit:
        return implicit[options.method](denoiser, grid=grid, order=options.order)
    if options.method == "dlpm":
        return DLPM(denoiser, grid=grid, consistent_start={"independent": False, "consistent": True}[options.start])
    ito: dict[str, Callable[..., Sampler]] = {"lim": LIM, "lim-ode": LIMODE}
    if options.method in ito:
        return ito[options.method](denoiser, grid=grid, clipping=Clipping() if options.clipping else None)
    return DDPM(denoiser, grid=grid)


def split_rows(values: Tensor, share: float, seed: int) -> tuple[Tensor, Tensor | None]:
    """(training rows, validation rows), by a random permutation."""
    if not 0 <= share < 1:
        raise ValueError(f"validation must lie in [0, 1), got {share}")
    held = int(share * len(values))
    if held == 0:
        return values, None
    order = torch.randperm(len(values), generator=torch.Generator().manual_seed(seed))
    return values[order[held:]], values[order[:held]]
