"""Typed configurations: a YAML file plus options on the line, the line wins.

A command's options are the fields of a dataclass. Each field becomes ``--name-of-field`` with its type, default
and help, and may stand under the same name in the YAML file.
"""

from __future__ import annotations

import argparse
import dataclasses
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml

T = TypeVar("T")


def option(default: Any, help: str, choices: tuple[str, ...] | None = None) -> Any:
    """A field with a help text and, for strings, the values that are allowed."""
    return dataclasses.field(default=default, metadata={"help": help, "choices": choices})


@dataclass(frozen=True)
class TrainOptions:
    """What ``levydiff train`` can be told."""

    data: str = option(
        "student-t:df=1.5",
        "a data set such as stable:alpha=1.7; a .csv, .parquet or .npy file; or images: mnist, cifar10, cifar10_lt, "
        "digits, a folder or .zip of them, hf:owner/name",
    )
    data_dir: str | None = option(None, "where image data are; else LEVYDIFF_DATA, else they are fetched")
    columns: str | None = option(None, "the columns of a table to use, separated by commas; all by default")
    points: int = option(32_000, "how many points to draw from a synthetic data set")
    out: str = option("run", "the folder of the run; a run that was stopped goes on from there")
    alpha: float = option(1.7, "stability index of the noise in (0, 2]; 2 is Gaussian diffusion")
    isotropic: bool = option(True, "one random variance for each sample, not for each coordinate")
    schedule: str = option("cosine", "the noise schedule", ("cosine", "linear", "exploding"))
    network: str | None = option(
        None,
        "tail (ours, the default) or the paper's for points; unet (small, the default) or paper-unet for images",
        ("tail", "paper", "unet", "paper-unet"),
    )
    width: int | None = option(None, "the width of the layers of a network for points")
    blocks: int | None = option(None, "the residual blocks of a network for points; 4 by default")
    size: int | None = option(None, "images: crop and scale a folder's images to so many pixels squared")
    labels: bool = option(False, "images: learn each class, for levydiff sample --label")
    label_dropout: float = option(0.1, "images with labels: share of labels dropped, for --guidance")
    flips: bool = option(False, "images: flip half of them left to right")
    imbalance: float | None = option(None, "images: keep the k-th of K classes by imbalance^(-k/(K-1))")
    preconditioning: str | None = option(
        None,
        "stable (the default for points) is for data with heavy tails, bounded (for images) for light ones; plain is "
        "the paper's",
        ("stable", "bounded", "plain"),
    )
    loss: str | None = option(
        None,
        "the objective; self-weighted by default, squared with compress",
        ("self-weighted", "one-variable", "rescaled", "two-variable", "full-kl", "lim", "squared", "ddpm", "cauchy"),
    )
    inner: int = option(1, "draws that share A, averaged before the root (one-variable and KL losses)")
    groups: int = option(1, "M of the median of means over M x M draws; 1 for a plain mean")
    grid: int = option(0, "train on the times of a grid of so many steps; 0 for all times (KL losses: 100)")
    scale_columns: bool = option(True, "a scale for each column, not one for all")
    compress: bool = option(False, "take the tails away by asinh of each column, for alpha 2")
    steps: int = option(6000, "optimizer steps")
    batch_size: int = option(1024, "samples in each step, over all processes")
    rate: float = option(3e-3, "learning rate of Adam")
    decay: str = option("cosine", "how the rate falls", ("cosine", "constant", "step"))
    decay_every: int = option(400, "of step: the rate falls by a hundredth after so many steps")
    ema: float = option(0.999, "decay of the average of the weights; 0 for none")
    seed: int = option(0, "everything random follows from it")
    clip_gradient: float | None = option(None, "largest norm of the gradient; none by default")
    accumulate: int = option(1, "micro-batches in each step")
    precision: str = option("no", "mixed precision", ("no", "bf16", "fp16"))
    compile: bool = option(False, "compile the network with torch.compile")
    validation: float = option(0.1, "share of the rows that is held out for the validation loss")
    log_every: int = option(100, "steps between lines of the log")
    checkpoint_every: int = option(1000, "steps between checkpoints")
    keep: int = option(2, "checkpoints to keep")
    trackers: str = option("", "accelerate's trackers, separated by commas, such as tensorboard or wandb")
    samples: int = option(10_000, "how many samples to draw at the end; 0 for none and no pictures")


@dataclass(frozen=True)
class SampleOptions:
    """What ``levydiff sample`` can be told."""

    number: int = option(10_000, "how many samples")
    out: str = option("samples.npy", "where to write them: .npy, .csv or .parquet; images: .npy or .png")
    method: str = option("dlim", "the sampler", ("dlim", "dlpm", "lim", "lim-ode", "ddpm", "ddim"))
    steps: int = option(50, "network calls for each sample")
    order: int = option(2, "order of dlim and ddim: 1 or 2")
    spacing: str = option("quadratic", "of the times", ("linear", "quadratic", "log-ratio"))
    end: float | None = option(None, "the time in (0, 1) at which sampling starts; the schedule's last by default")
    start: str = option("independent", "of dlpm: the paper's, or the chain's own", ("independent", "consistent"))
    seed: int = option(0, "the same seed gives the same samples, whatever the batch size")
    batch_size: int | None = option(None, "samples at a time, which bounds the memory: 50000, of images 256 by default")
    alpha: float | None = option(None, "drive the network with another alpha than it was trained with")
    clipping: bool = option(False, "of lim and lim-ode: cut large noise, as LIM's authors do")
    label: int | None = option(None, "images: the class to draw; all in turn by default")
    guidance: float = option(1.0, "images: weight of classifier-free guidance towards the class")


@dataclass(frozen=True)
class EvaluateOptions:
    """What ``levydiff evaluate`` can be told."""

    data: str | None = option(None, "the reference: a data set or a file; the model's own data by default")
    columns: str | None = option(None, "the columns of a table to use, separated by commas")
    points: int | None = option(
        None, "how many points to draw from a synthetic data set, and from a model: 25000, of images 1000 by default"
    )
    seed: int = option(1, "of the reference and of the model's samples")
    data_dir: str | None = option(None, "where image data are; else LEVYDIFF_DATA, else they are fetched")
    features: str = option(
        "classifier", "images: the features to compare in", ("classifier", "efficientnet", "inception")
    )
    weights: str | None = option(None, "images: the weights of the feature network, a file (classifier: a folder)")


@dataclass(frozen=True)
class DemoOptions:
    """What ``levydiff demo`` can be told."""

    data: str = option("stable:alpha=1.7", "a two-dimensional synthetic data set, such as student-t:df=1.7")
    train_points: int = option(20_000, "how many points to train on")
    points: int = option(100_000, "how many samples to draw of each model")
    steps: int = option(1500, "training steps of each model")
    seed: int = option(0, "everything random follows from it")
    out: str = option("demo", "the folder for the picture and the table")


@dataclass(frozen=True)
class ReproduceOptions:
    """What ``levydiff reproduce`` can be told."""

    dataset: str | None = option(None, "of table3: mnist (the default), mnist_lt or cifar10_lt")
    budget: str | None = option(None, "of table3: cpu (the default), or the paper's, for GPUs", ("cpu", "paper"))
    data_dir: str | None = option(None, "where image data are; else LEVYDIFF_DATA, else they are fetched")
    runs: int | None = option(None, "how many seeds; each experiment has its own default")
    jobs: int = option(-1, "runs at a time, one thread each; -1 for as many as there are cores (one GPU: 1)")
    quick: bool = option(False, "a small version in a minute or two, for a look")
    dask: str | None = option(None, "the address of a Dask scheduler to run on, or local")
    out: str = option("experiments/results", "the folder for the results")
    cache: str = option("experiments/cache", "the folder for finished runs and trained networks")


@dataclass(frozen=True)
class ClassifierOptions:
    """What ``levydiff classifier`` can be told."""

    data: str = option(
        "mnist", "labelled images: mnist, digits, cifar10, a folder with a subfolder for each class, ..."
    )
    data_dir: str | None = option(None, "where image data are; else LEVYDIFF_DATA, else they are fetched")
    out: str = option("classifier", "the folder for the trained network")
    epochs: int = option(4, "passes through the images")
    seed: int = option(0, "everything random follows from it")


def add_options(parser: argparse.ArgumentParser, options: type[Any]) -> None:
    """One ``--option`` for each field; what is not given on the line is left out of the namespace."""
    hints = typing.get_type_hints(options)
    for field in dataclasses.fields(options):
        kind = _plain_type(hints[field.name])
        flag = "--" + field.name.replace("_", "-")
        shown = ("yes" if field.default else "no") if kind is bool else field.default
        text = field.metadata["help"] + ("" if shown in (None, "") else f" (default: {shown})")
        common: dict[str, Any] = {"dest": field.name, "default": argparse.SUPPRESS, "help": text}
        if kind is bool:
            parser.add_argument(flag, action=argparse.BooleanOptionalAction, **common)
        else:
            parser.add_argument(
                flag, type=kind, choices=field.metadata["choices"], metavar=_metavar(field, kind), **common
            )


def _metavar(field: dataclasses.Field[Any], kind: type) -> str | None:
    return None if field.metadata["choices"] else {int: "N", float: "X", str: "TEXT"}[kind]


def _plain_type(hint: Any) -> type:
    """``int | None`` as int."""
    if isinstance(hint, types.UnionType):
        hint = next(part for part in typing.get_args(hint) if part is not type(None))
    return typing.cast(type, hint)


def merge(options: type[T], line: Mapping[str, Any], file: str | None) -> T:
    """The defaults, overridden by the YAML file, overridden by the line."""
    values: dict[str, Any] = {}
    if file is not None:
        values |= _read_yaml(options, Path(file))
    names = {field.name for field in dataclasses.fields(options)}  # type: ignore[arg-type]
    return options(**values | {key: value for key, value in line.items() if key in names})


def shipped_configs() -> dict[str, Path]:
    """The configurations that come with levydiff, by name."""
    return {path.stem: path for path in sorted((Path(__file__).parent / "configs").glob("*.yaml"))}


def _read_yaml(options: type[Any], path: Path) -> dict[str, Any]:
    shipped = shipped_configs()
    if not path.is_file() and str(path) in shipped:
        path = shipped[str(path)]
    try:
        values = yaml.safe_load(path.read_text()) or {}
    except OSError as error:
        raise ValueError(
            f"config must be a readable YAML file or one of {', '.join(shipped)}, got {path}: {error.strerror}"
        ) from error
    except yaml.YAMLError as error:
        raise ValueError(f"config must be a YAML file, got {path}: {' '.join(str(error).split())}") from error
    if not isinstance(values, dict):
        raise ValueError(f"config must be a mapping of option to value, got {path} with a {type(values).__name__}")
    fields = {field.name: field for field in dataclasses.fields(options)}
    hints = typing.get_type_hints(options)
    for name, value in values.items():
        if name not in fields:
            raise ValueError(f"config has no option {name!r}; the options are {', '.join(fields)}")
        kind = _plain_type(hints[name])
        optional = value is None and fields[name].default is None
        if not (optional or isinstance(value, kind) or (kind is float and isinstance(value, int))) or (
            isinstance(value, bool) and kind is not bool
        ):
            raise ValueError(f"config's {name} must be of type {kind.__name__}, got {value!r}")
        choices = fields[name].metadata["choices"]
        if choices and value not in choices and not optional:
            raise ValueError(f"config's {name} must be one of {', '.join(choices)}, got {value!r}")
    return values


def to_yaml(options: Any) -> str:
    """All options of a command, as a file that can be given back with ``--config``."""
    return str(yaml.safe_dump(dataclasses.asdict(options), sort_keys=False))
