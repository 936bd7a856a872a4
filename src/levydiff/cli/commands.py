"""What each command does. Results go to standard output, progress to standard error."""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from tqdm.auto import tqdm

from ..checkpoint import CheckpointError, Folder
from ..checks import cast_finite, check_count
from ..metrics import tail_error
from ..model import LevyModel
from ..runs import RunFolder
from ..scaling import scaling_for
from ..table import TableWriter, write_table
from ..train import Trainer
from .build import (
    DATA_SETS,
    FREE_OPTIONS,
    build_config,
    build_data,
    build_denoiser,
    build_loss,
    build_sampler,
    loss_name,
    split_rows,
)
from .config import ClassifierOptions, ReproduceOptions, SampleOptions, TrainOptions
from .evaluate import held_up_to
from .images import check_samples, is_images, refuse_image_options, sample_images, train_on_images
from .models import column_names, load_model, unfinished


def train(options: TrainOptions, quiet: bool = False) -> dict[str, Any]:
    """Train, sample, draw the pictures; resume what was stopped."""
    folder, options = Path(options.out), dataclasses.replace(options, loss=loss_name(options))
    if is_images(options.data):
        return train_on_images(options, folder, quiet)
    refuse_image_options(options)
    check_samples(options.samples)
    if options.points != TrainOptions().points and options.data.partition(":")[0] not in DATA_SETS:
        raise ValueError(f"points is of synthetic data sets, got {options.points} with data = {options.data}")
    table = build_data(options.data, options.columns, options.points, options.seed)
    scaling = scaling_for(table.values, options.alpha, options.compress, options.scale_columns, table.columns)
    values = scaling.apply(table.values).float()  # in this order: data far from 0 keep their digits
    rows, validation = split_rows(values, options.validation, options.seed)
    denoiser = build_denoiser(options, rows)
    config = build_config(options)
    loss = build_loss(options, denoiser.process)
    trainer = Trainer(
        denoiser,
        loss,
        rows,
        config,
        folder,
        validation=validation,
        scaling=scaling,
        columns=table.columns,
        info={"options": dataclasses.asdict(options)},
    )
    if trainer.accelerator.is_main_process:
        RunFolder(folder).remember(dataclasses.asdict(options), FREE_OPTIONS)
    model = trainer.fit(progress=not quiet)
    result: dict[str, Any] = {"model": str(folder / "model"), "alpha": model.alpha, "steps": trainer.step}
    if trainer.accelerator.is_main_process and options.samples:
        result |= _sample_and_draw(folder, model, table.values, options.samples, quiet)
    return result


def _sample_and_draw(folder: Path, model: LevyModel, data: Tensor, number: int, quiet: bool) -> dict[str, Any]:
    from ..plot import save_run_pictures

    samples = model.sample(number, seed=0, batch_size=50_000, progress=not quiet)
    write_table(folder / "samples.npy", samples, model.columns)
    lines = RunFolder(folder).lines()
    pictures = save_run_pictures(folder, lines, data, samples, column_names(model))
    error = tail_error(data, samples, upper=held_up_to(data)) if len(data) >= 100 else None
    return {
        "loss": lines[-1]["loss"] if lines else None,
        "tail_error_against_training_data": error,
        "samples": str(folder / "samples.npy"),
        "pictures": [str(path) for path in pictures],
    }


def sample(model_path: str, options: SampleOptions, quiet: bool = False) -> dict[str, Any]:
    """Stream samples to a file, in bounded memory."""
    number = check_count("number", options.number)
    model = load_model(model_path)
    trained = model.alpha
    if options.alpha is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # said below
            model = model.with_alpha(options.alpha)
    result: dict[str, Any] = {"samples": options.out, "number": number, "alpha": model.alpha}
    result |= unfinished(model)
    result |= {"trained_at_alpha": trained} if options.alpha is not None else {}
    if len(model.shape) == 3:
        sample_images(model, options, quiet)
        return result
    if options.label is not None or options.guidance != 1.0:
        raise ValueError("label and guidance are of models of images, got a model of points")
    sampler = build_sampler(options, model)
    generator = torch.Generator().manual_seed(options.seed)
    size = 50_000 if options.batch_size is None else check_count("batch_size", options.batch_size)
    fits = model.scaling is None or model.scaling.resolved_by(torch.float32)
    dtype = torch.promote_types(model.denoiser.dtype, torch.float32 if fits else torch.float64)
    with (
        TableWriter(options.out, column_names(model), number, dtype) as writer,
        tqdm(total=number, desc="sample", unit="sample", unit_scale=True, disable=quiet) as bar,
    ):
        for start in range(0, number, size):
            count = min(size, number - start)
            writer.write(cast_finite(model.sample(count, sampler, generator=generator), dtype))
            bar.update(count)
    return result


def info(path: str) -> dict[str, Any]:
    """What a model or a run is, without loading its weights into a network."""
    folder = Path(path)
    if (folder / "model").is_dir():
        folder = folder / "model"
    elif (newest := RunFolder(folder).newest()) is not None:
        folder = newest
    checked = Folder(folder)
    record = checked.record("config").get("levydiff")
    if record is None:
        raise CheckpointError(f"{folder} holds no model of levydiff, but something else")
    weights = sum(value.numel() for value in checked.tensors("model").values())
    return {"folder": str(folder), "weights": weights, **record}


def classifier(options: ClassifierOptions, quiet: bool = False) -> dict[str, Any]:
    """Train a classifier of images and save it."""
    from ..classifier import make

    accuracy = make(
        options.data,
        options.out,
        folder=options.data_dir,
        epochs=options.epochs,
        seed=options.seed,
        progress=not quiet,
    )
    return {"classifier": options.out, "accuracy": accuracy}


def reproduce(name: str, options: ReproduceOptions, quiet: bool = False) -> dict[str, Any] | None:
    """Make an experiment; prints its table unless ``quiet``, in which case it returns it."""
    from ..experiments.reproduce import reproduce as make

    values = dataclasses.asdict(options) | {"out": Path(options.out), "cache": Path(options.cache)}
    result = make(name, **values, progress=not quiet)
    if quiet:
        return result
    print(result["table"])
    print("\n".join(result["files"]))
    return None
