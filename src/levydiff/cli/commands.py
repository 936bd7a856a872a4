"""What each command does. Results go to standard output, progress to standard error."""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from torch import Tensor
from tqdm.auto import tqdm

from ..checkpoint import Folder
from ..checks import check_count
from ..metrics import global_l1, hill, msle, prd, tail_error
from ..model import LevyModel
from ..runs import RunFolder
from ..scaling import fit_scaling
from ..table import TableWriter, read_table, write_table
from ..train import Trainer
from .build import FREE_OPTIONS, build_config, build_data, build_denoiser, build_loss, build_sampler, split_rows
from .config import ClassifierOptions, EvaluateOptions, ReproduceOptions, SampleOptions, TrainOptions
from .images import check_samples, evaluate_images, is_images, refuse_image_options, sample_images, train_on_images


def train(options: TrainOptions, quiet: bool = False) -> dict[str, Any]:
    """Train, sample, draw the pictures; resume what was stopped."""
    folder = Path(options.out)
    if is_images(options.data):
        return train_on_images(options, folder, quiet)
    refuse_image_options(options)
    check_samples(options.samples)
    table = build_data(options.data, options.columns, options.points, options.seed)
    scaling = fit_scaling(table.values, per_column=options.scale_columns, columns=table.columns)
    values = scaling.apply(table.values).float()  # in this order: data far from 0 keep their digits
    rows, validation = split_rows(values, options.validation, options.seed)
    denoiser = build_denoiser(options, rows)
    config = build_config(options)
    loss = build_loss(options, denoiser.process)
    RunFolder(folder).remember(dataclasses.asdict(options), FREE_OPTIONS)
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
    model = trainer.fit(progress=not quiet)
    result: dict[str, Any] = {"model": str(folder / "model"), "alpha": model.alpha, "steps": trainer.step}
    if trainer.accelerator.is_main_process and options.samples:
        result |= _sample_and_draw(folder, model, table.values.float(), options.samples, quiet)
    return result


def _sample_and_draw(folder: Path, model: LevyModel, data: Tensor, number: int, quiet: bool) -> dict[str, Any]:
    from ..plot import save_run_pictures

    samples = model.sample(number, seed=0, batch_size=50_000, progress=not quiet)
    write_table(folder / "samples.npy", samples, model.columns)
    lines = RunFolder(folder).lines()
    pictures = save_run_pictures(folder, lines, data, samples, model.columns or _names(model.shape[0]))
    error = _tail_error(data, samples)
    return {
        "loss": lines[-1]["loss"] if lines else None,
        "tail_error": error,
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
    step, steps = model.info.get("step"), model.info.get("training", {}).get("steps")
    if step != steps:
        result["unfinished"] = f"the model is a checkpoint of step {step} of {steps}"
    result |= {"trained_at_alpha": trained} if options.alpha is not None else {}
    if len(model.shape) == 3:
        sample_images(model, options, quiet)
        return result
    if options.label is not None or options.guidance != 1.0:
        raise ValueError("label and guidance are of models of images, got a model of points")
    sampler = build_sampler(options, model)
    generator = torch.Generator().manual_seed(options.seed)
    size = 50_000 if options.batch_size is None else check_count("batch_size", options.batch_size)
    with (
        TableWriter(options.out, model.columns or _names(model.shape[0]), number) as writer,
        tqdm(total=number, desc="sample", unit="sample", unit_scale=True, disable=quiet) as bar,
    ):
        for start in range(0, number, size):
            count = min(size, number - start)
            writer.write(model.sample(count, sampler, generator=generator))
            bar.update(count)
    return result


def _pick(x: Tensor, size: int, seed: int) -> Tensor:
    return x[torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))[:size]]


def _tail_error(data: Tensor, samples: Tensor) -> float | None:
    """The tail error up to the 99.9 % quantile, or to the largest that the data can tell; None for a small table."""
    return tail_error(data, samples, upper=min(0.999, 1.0 - 1.0 / len(data))) if len(data) >= 100 else None


def _names(dim: int) -> tuple[str, ...]:
    return tuple(f"x{j}" for j in range(dim))


def load_model(path: str) -> LevyModel:
    """A model's folder, a run's folder (its model, else its newest checkpoint), or a repository of the Hub.

    It is put where the trainer would put it, on a GPU if there is one.
    """
    run = RunFolder(path)
    model = LevyModel.from_pretrained(run.model if run.model.is_dir() else run.newest() or path)
    model.denoiser.to(PartialState().device)
    return model


def evaluate(subject: str, options: EvaluateOptions, quiet: bool = False) -> dict[str, Any]:
    """Compare a model's samples, or a file of samples, with data."""
    spec, columns = options.data, options.columns
    points = 25_000 if options.points is None else check_count("points", options.points)
    if Path(subject).is_file():
        samples = read_table(subject).values.float()
        if spec is None:
            raise ValueError("data must be given to evaluate a file of samples, got none")
    else:
        model = load_model(subject)
        if len(model.shape) == 3:
            return evaluate_images(model, options, quiet)
        if options.weights or options.data_dir:
            raise ValueError("weights and data_dir are of models of images, got a model of points")
        samples = model.sample(points, seed=options.seed, batch_size=50_000)
        trained = model.info.get("options", {})
        spec, columns = spec or trained.get("data"), columns or (None if spec else trained.get("columns"))
        if spec is None:
            raise ValueError("data must be given: the model does not say what it was trained on")
    # Another seed than the training data's, so that a synthetic reference is fresh.
    data = build_data(spec, columns, points, options.seed + 1_000_000).values.float()
    if data.shape[1:] != samples.shape[1:]:
        raise ValueError(f"data must have {samples.shape[1]} columns as the samples have, got {data.shape[1]}")
    result: dict[str, Any] = {"data": spec, "rows": len(data), "samples": len(samples)}
    result |= {"tail_error": _tail_error(data, samples), "global_l1": global_l1(data, samples)}
    result |= {"tail_index_data": hill(data).alpha.value, "tail_index_samples": hill(samples).alpha.value}
    try:
        result["msle"] = msle(data, samples).mean
    except ValueError as error:  # no positive upper tail
        result["msle"] = None
        result["msle_note"] = str(error)
    size = min(len(data), len(samples))  # precision and recall want as many points of one as of the other
    score = prd(_pick(data, size, options.seed), _pick(samples, size, options.seed), repeats=3)
    return result | {"precision": score.precision, "recall": score.recall, "f1": score.f1}


def info(path: str) -> dict[str, Any]:
    """What a model or a run is, without loading its weights into a network."""
    folder = Path(path)
    if (folder / "model").is_dir():
        folder = folder / "model"
    elif (newest := RunFolder(folder).newest()) is not None:
        folder = newest
    checked = Folder(folder)
    record = checked.record("config")["levydiff"]
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
