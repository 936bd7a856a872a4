"""The state of a training: what it takes to go on as if nothing had happened, and what must be the same for that.

A checkpoint holds the weights, their average, the optimizer, the state of dropout, the step, and what has been summed
up for the next line of the log. It also says what it is a training of: the denoiser, the data (an outline), the loss
and the settings. A run that is asked for otherwise is refused: what came out would be neither the one nor the other.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .checkpoint import Folder, denoiser_config, load_weights, optimizer_tensors, restore_optimizer, write_folder
from .loss import Loss
from .scaling import AsinhScaling

if TYPE_CHECKING:
    from .train import Trainer

#: Settings that may change while a run is stopped: how long it is, what it writes, and how it is computed.
FREE_SETTINGS = (
    "steps",
    "log_every",
    "validate_every",
    "checkpoint_every",
    "keep",
    "trackers",
    "accumulate",
    "compile",
)


def loss_record(loss: Loss) -> dict[str, Any]:
    """A loss as JSON: its kind and its numbers, to be compared with another's.

    Example:
        >>> from levydiff import OneVariableLoss
        >>> record = loss_record(OneVariableLoss(inner=4))
        >>> record["kind"], record["inner"], record["grid"]
        ('OneVariableLoss', 4, None)
    """
    record: dict[str, Any] = {"kind": type(loss).__name__}
    for name, value in sorted(vars(loss).items()):
        if isinstance(value, Loss):
            record[name] = loss_record(value)
        elif isinstance(value, Tensor):
            record[name] = value.tolist()
        elif value is None or isinstance(value, (bool, int, float, str)):
            record[name] = value
        else:
            record[name] = {"kind": type(value).__name__} | (
                asdict(value) if is_dataclass(value) and not isinstance(value, type) else {}
            )
    return record


def save_state(trainer: Trainer, path: Path, since_log: float) -> None:
    """Write the complete state; ``since_log`` is the sum of the losses since the last line of the log."""
    accelerator = trainer.accelerator
    optimizer, record = optimizer_tensors(trainer.optimizer.optimizer)
    random = {"torch": torch.get_rng_state()}
    if accelerator.device.type == "cuda":  # for networks with dropout; nothing else draws from it
        random["cuda"] = torch.cuda.get_rng_state(accelerator.device)
    elif accelerator.device.type == "mps":
        random["mps"] = torch.mps.get_rng_state()
    training = {
        "step": trainer.step,
        "data": trainer.batches.outline(),
        "loss": loss_record(trainer.loss),
        "since_log": {"loss": since_log, "steps": trainer.since_log.steps},
        "seconds": trainer.seconds(),
        "optimizer": record,
        "scaler": None if accelerator.scaler is None else accelerator.scaler.state_dict(),
        "averaged": None if trainer.ema is None else int(trainer.ema.n_averaged),
    }
    model = trainer.model()
    tensors = {"weights": trainer.denoiser.state_dict(), "model": model.denoiser.state_dict()}
    records = {"config": model.to_record(), "training": training}
    write_folder(path, tensors | {"optimizer": optimizer, "random": random}, records)


def load_state(trainer: Trainer, path: Path) -> None:
    """Go back to a saved state, bit for bit; refuse that of another training."""
    folder = Folder(path)
    training = folder.record("training")
    check_same(trainer, folder, training)
    load_weights(trainer.denoiser, folder.tensors("weights"), path)
    restore_optimizer(trainer.optimizer.optimizer, folder.tensors("optimizer"), training["optimizer"])
    random = folder.tensors("random")
    torch.set_rng_state(random["torch"])
    if "cuda" in random and trainer.accelerator.device.type == "cuda":
        torch.cuda.set_rng_state(random["cuda"], trainer.accelerator.device)
    if "mps" in random and trainer.accelerator.device.type == "mps":
        torch.mps.set_rng_state(random["mps"])
    if trainer.ema is not None:
        load_weights(trainer.ema.module, folder.tensors("model"), path)
        trainer.ema.n_averaged.fill_(training["averaged"] or 0)
    if trainer.accelerator.scaler is not None and training["scaler"] is not None:
        trainer.accelerator.scaler.load_state_dict(training["scaler"])
    trainer.step = int(training["step"])
    since_log = training.get("since_log", {"loss": 0.0, "steps": 0})  # the first checkpoints did not say
    trainer.since_log.loss.fill_(since_log["loss"])
    trainer.since_log.steps = since_log["steps"]
    trainer.seconds_before = training.get("seconds", 0.0)


def check_same(trainer: Trainer, folder: Folder, training: Mapping[str, Any]) -> None:
    """Refuse a checkpoint of another denoiser, other data, another loss or other settings."""
    saved = folder.record("config")["levydiff"]
    compressed = ("width" in (saved["scaling"] or {}), isinstance(trainer.scaling, AsinhScaling))
    _refuse_changes("scaling", folder.path, *({"compressed": one} for one in compressed))
    _refuse_changes("denoiser", folder.path, saved["denoiser"], denoiser_config(trainer.denoiser))
    if "data" in training:  # the first checkpoints did not say
        trainer.batches.check_outline(training["data"])
    if "loss" in training:
        _refuse_changes("loss", folder.path, training["loss"], loss_record(trainer.loss))
    columns = trainer.model().to_record()["levydiff"]["columns"]
    _refuse_changes("columns", folder.path, {"columns": saved["columns"]}, {"columns": columns})
    settings = (saved["info"]["training"], json.loads(json.dumps(trainer.config.to_record())))
    before, now = ({k: v for k, v in record.items() if k not in FREE_SETTINGS} for record in settings)
    _refuse_changes("settings", folder.path, before, now)
    if training["step"] > trainer.config.steps:
        raise ValueError(f"steps must be at least the {training['step']} of {folder.path}, got {trainer.config.steps}")


def _refuse_changes(what: str, path: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    keys = [key for key in {**now, **before} if not _same(before.get(key), now.get(key))]
    if keys:
        differ = ", ".join(f"{key} = {before.get(key)!r} (now {now.get(key)!r})" for key in keys)
        raise ValueError(f"folder must hold a run of the same {what}, got {path} with {differ}")


def _same(before: Any, now: Any) -> bool:
    """Equal, but for the rounding of numbers: a scale fitted on another machine, or by more threads, is the same."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        return before.keys() == now.keys() and all(_same(before[key], now[key]) for key in before)
    if isinstance(before, float) and isinstance(now, float):
        return math.isclose(before, now, rel_tol=1e-6)
    return bool(before == now)
