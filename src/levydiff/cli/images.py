"""Images on the command line: which data are images, how a set is made ready for a network, training, sampling."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..checks import check_count
from ..features import (
    ClassifierFeatures,
    EfficientNetFeatures,
    FeatureNetwork,
    InceptionFeatures,
    reference_features,
    score_images,
)
from ..files import atomic_file, cache_folder
from ..guidance import LabelDropout
from ..images import ImageBatches, ImageSet, long_tailed, pad, save_grid, to_pixels, to_unit
from ..model import LevyModel
from ..plot import draw_loss, new_figure, save_figure
from ..runs import RunFolder
from ..sources import SOURCES, load_images
from ..train import Trainer
from .build import DATA_SETS, FREE_OPTIONS, build_config, build_denoiser, build_loss, build_sampler, split_rows
from .config import EvaluateOptions, SampleOptions, TrainOptions

#: What height and width must be multiples of, for each network.
MULTIPLES = {"unet": 4, "paper-unet": 8}

#: How many images are drawn into a run's picture.
SHOWN = 64


def is_images(spec: str) -> bool:
    """Whether ``--data`` means images: a named set, a Hugging Face name, a folder or a .zip."""
    if spec.partition(":")[0] in DATA_SETS:  # even if a run's folder has that name
        return False
    return spec in SOURCES or spec.startswith("hf:") or spec.lower().endswith(".zip") or Path(spec).is_dir()


def build_images(options: TrainOptions, train: bool = True) -> ImageSet:
    """The images of a run, padded as its network needs it; the test set is never made long-tailed."""
    images = load_images(options.data, options.data_dir, train=train, size=options.size)
    if options.imbalance is not None and train:
        images = long_tailed(images, imbalance=options.imbalance)
    return pad(images, MULTIPLES.get(options.network or "unet", 1))


def image_trainer(
    options: TrainOptions, images: ImageSet, folder: Path | None, validation: ImageSet | None = None
) -> Trainer:
    """The trainer of a denoiser of images."""

    def batches(part: ImageSet) -> ImageBatches:
        return ImageBatches(part, options.batch_size, options.seed, flips=options.flips, labels=options.labels)

    classes = len(images.classes) if options.labels else 0
    some = images.pixels[:: -(-len(images) // 1000)]  # from all of the set: it may be in the order of its classes
    denoiser = build_denoiser(options, to_unit(some), classes)
    loss = build_loss(options, denoiser.process)
    if classes:
        loss = LabelDropout(loss, classes, options.label_dropout)
    source = images.source if validation is None else f"{images.source}, {len(validation)} of them held out"
    info = {"options": dataclasses.asdict(options), "data": source, "classes": list(images.classes)}
    held = None if validation is None else batches(validation)
    return Trainer(denoiser, loss, batches(images), build_config(options), folder, validation=held, info=info)


def train_on_images(options: TrainOptions, folder: Path, quiet: bool) -> dict[str, Any]:
    """``levydiff train`` for images: train, sample, draw the pictures."""
    _refuse(options, ("columns", "points", "scale_columns", "compress"), "points and tables", "images")
    if not options.labels:
        _refuse(options, ("label_dropout",), "images with labels", "images, and labels are not asked for")
    check_samples(options.samples)
    rows, held = split_rows(torch.arange(len(images := build_images(options))), options.validation, options.seed)
    trainer = image_trainer(options, images.take(rows), folder, None if held is None else images.take(held))
    if trainer.accelerator.is_main_process:
        RunFolder(folder).remember(dataclasses.asdict(options), FREE_OPTIONS)
    model = trainer.fit(progress=not quiet)
    result: dict[str, Any] = {"model": str(folder / "model"), "alpha": model.alpha, "steps": trainer.step}
    if trainer.accelerator.is_main_process and options.samples:
        result |= _sample_and_draw(folder, model, options.samples, quiet)
    return result


def refuse_image_options(options: TrainOptions) -> None:
    """An error if options of images are given for points."""
    _refuse(options, ("data_dir", "size", "labels", "label_dropout", "flips", "imbalance"), "images", "points")


def _refuse(options: TrainOptions, names: Sequence[str], kind: str, given: str) -> None:
    usual = TrainOptions()
    for name in names:
        if getattr(options, name) != getattr(usual, name):
            raise ValueError(f"{name} is of {kind}, but the data are {given}, got {getattr(options, name)}")


def check_samples(number: int) -> None:
    """Refuse a number of samples, or pictures of them without matplotlib, before a training and not after it."""
    if number < 0:
        raise ValueError(f"samples must be at least 0, got {number}")
    if number:
        new_figure(1)


def _sample_and_draw(folder: Path, model: LevyModel, number: int, quiet: bool) -> dict[str, Any]:
    """A run's samples, a grid of them, and the loss curve."""
    samples = draw_samples(model, SampleOptions(number=number), quiet)
    _write(folder / "samples.npy", samples)
    grid = save_grid(folder / "samples.png", samples[:SHOWN])
    figure, (ax,) = new_figure(1)
    lines = RunFolder(folder).lines()
    draw_loss(ax, lines)
    save_figure(figure, folder / "loss.png")
    return {
        "loss": lines[-1]["loss"] if lines else None,
        "samples": str(folder / "samples.npy"),
        "pictures": [str(grid), str(folder / "loss.png")],
    }


def sample_images(model: LevyModel, options: SampleOptions, quiet: bool) -> None:
    """``levydiff sample`` for images: a .npy file of the values, unclamped, or a .png grid."""
    if Path(options.out).suffix not in (".npy", ".png"):
        raise ValueError(f"out must end in .npy or .png for images, got {Path(options.out).name}")
    if not Path(options.out).parent.is_dir():
        raise ValueError(f"out must lie in a folder that exists, got {options.out}")
    samples = draw_samples(model, options, quiet)
    if options.out.endswith(".png"):
        save_grid(options.out, samples)
    else:
        _write(Path(options.out), samples)


def draw_samples(model: LevyModel, options: SampleOptions, quiet: bool) -> Tensor:
    """Images of a model, all classes in turn unless one is asked for."""
    sampler = build_sampler(options, model)
    classes = int(getattr(model.denoiser.backbone, "classes", 0))
    if options.label is not None and not classes:
        raise ValueError(f"label must not be given for a model trained without --labels, got {options.label}")
    if options.label is not None and not 0 <= options.label < classes:
        raise ValueError(f"label must lie in 0 ... {classes - 1}, got {options.label}")
    cond: dict[str, Any] = {}
    if classes:
        every = torch.arange(options.number) % classes
        cond["label"] = every if options.label is None else torch.full_like(every, options.label)
    size = 256 if options.batch_size is None else check_count("batch_size", options.batch_size)
    return model.sample(options.number, sampler, seed=options.seed, batch_size=size, progress=not quiet, **cond)


def _write(path: Path, samples: Tensor) -> None:
    with atomic_file(path) as temporary:
        np.save(temporary, samples.cpu().to(torch.promote_types(samples.dtype, torch.float32)).numpy())


def evaluate_images(model: LevyModel, options: EvaluateOptions, quiet: bool) -> dict[str, Any]:
    """Scores of a model's images against the test set of what it was trained on, or against another set."""
    trained = model.info.get("options", {})
    data = options.data or trained.get("data")
    if not data:
        raise ValueError("data must be given: the model does not say what it was trained on")
    if options.columns:
        raise ValueError(f"columns can be chosen from a table only, got a model of images and {options.columns!r}")
    number = 1000 if options.points is None else check_count("points", options.points)
    network = feature_network(options.features, options.weights)
    training, test = (
        pad(load_images(data, options.data_dir, train=train, size=trained.get("size")), model.shape[1])
        for train in (True, False)
    )
    if data == trained.get("data") and trained.get("imbalance") is not None:
        training = long_tailed(training, imbalance=trained["imbalance"])
    if test.shape != model.shape:
        raise ValueError(f"data must be images of shape {model.shape} as the model's, got {test.shape}")
    real = reference_features(network, test.pixels, cache_folder() / "features", progress=not quiet)

    def scores(pixels: Tensor) -> dict[str, Any]:
        return dataclasses.asdict(score_images(network, real, pixels, reference=test.source))

    chosen = torch.randperm(len(training), generator=torch.Generator().manual_seed(options.seed))[:number]
    yardstick = scores(training.pixels[chosen])
    samples = draw_samples(model, SampleOptions(number=number, seed=options.seed), quiet)
    named = ("features", "reference", "count")
    return scores(to_pixels(samples)) | {
        "training images score": {key: value for key, value in yardstick.items() if key not in named}
    }


def feature_network(name: str, weights: str | None = None) -> FeatureNetwork:
    """A feature network by its name."""
    makers: dict[str, Callable[[str | None], FeatureNetwork]] = {
        "classifier": ClassifierFeatures,
        "efficientnet": EfficientNetFeatures,
        "inception": InceptionFeatures,
    }
    return makers[name](weights)
