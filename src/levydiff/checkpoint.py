r"""Folders that hold a model or a training run: safetensors for tensors, JSON for everything else, nothing that
executes.

A folder is written under a temporary name, flushed to the disk and then renamed, so that at any moment either the
whole new folder exists or it does not. ``manifest.json`` records the size and SHA-256 of every file; on loading
every byte is checked against it, so that a truncated, damaged or hand-edited file is refused with a sentence that
names it. Objects are stored as the name of one of our own classes (:data:`KINDS`) and its arguments; a name that
is not in that list is refused.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from .denoise import Denoiser
from .files import sync
from .nn import PaperMLP, TailMLP
from .precondition import BoundedPreconditioning, PlainPreconditioning, StablePreconditioning
from .process import LevyProcess
from .schedule import CosineSchedule, ExplodingSchedule, LinearSchedule
from .timesteps import BetaSchedule
from .unet import UNet

MANIFEST = "manifest.json"

#: The classes that a stored configuration may name.
KINDS: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        CosineSchedule,
        LinearSchedule,
        ExplodingSchedule,
        BetaSchedule,
        PlainPreconditioning,
        StablePreconditioning,
        BoundedPreconditioning,
        PaperMLP,
        TailMLP,
        UNet,
    )
}


#: The precisions that a stored configuration may name.
DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32, "float64": torch.float64}


class CheckpointError(RuntimeError):
    """A folder that is not what was saved."""


def to_config(thing: Any) -> dict[str, Any]:
    """One of our objects as its kind and arguments.

    Example:
        >>> to_config(StablePreconditioning(scale=0.5))
        {'kind': 'StablePreconditioning', 'scale': 0.5}
    """
    kind = type(thing).__name__
    if KINDS.get(kind) is not type(thing):
        raise TypeError(f"thing must be one of {', '.join(KINDS)} to be stored, got {kind}")
    if dataclasses.is_dataclass(thing):
        values = {f.name: getattr(thing, f.name) for f in dataclasses.fields(thing) if f.init}
        return {"kind": kind} | {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}
    arguments: dict[str, Any] = thing.config  # type: ignore[attr-defined]
    return {"kind": kind} | arguments


def from_config(config: Mapping[str, Any]) -> Any:
    """The object that :func:`to_config` described.

    Example:
        >>> from_config({"kind": "StablePreconditioning", "scale": 0.5})
        StablePreconditioning(scale=0.5)
    """
    arguments = dict(config)
    kind = arguments.pop("kind", None)
    if kind not in KINDS:
        raise CheckpointError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
    try:
        return KINDS[kind](**arguments)
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"the stored {kind} cannot be built: {error}") from error


def denoiser_config(denoiser: Denoiser) -> dict[str, Any]:
    """Everything about a denoiser but its weights; ``network`` is None if the backbone is not one of ours."""
    process, backbone = denoiser.process, denoiser.backbone
    if hasattr(backbone, "_orig_mod"):
        raise TypeError("backbone must be compiled in place, backbone.compile(), to be stored, got torch.compile(...)")
    ours = KINDS.get(type(backbone).__name__) is type(backbone)
    # Only where it is not the usual one, so that the folders of most models stay as they were.
    precision = {} if denoiser.dtype == torch.float32 else {"dtype": str(denoiser.dtype).removeprefix("torch.")}
    return {
        "alpha": process.alpha,
        "isotropic": process.isotropic,
        "schedule": to_config(process.schedule),
        "preconditioning": to_config(denoiser.preconditioning),
        "learned_variance": denoiser.learned_variance,
        "network": to_config(backbone) if ours else None,
        **precision,
    }


def build_denoiser(config: Mapping[str, Any], backbone: nn.Module | None = None) -> Denoiser:
    """The denoiser that :func:`denoiser_config` described, around the given backbone if it was not one of ours.

    The backbone is brought to the precision that was stored.
    """
    if backbone is None:
        if config["network"] is None:
            raise CheckpointError(
                "backbone must be given: the model was saved with a network that is not levydiff's own"
            )
        backbone = from_config(config["network"])
    dtype = config.get("dtype", "float32")
    if dtype not in DTYPES:
        raise CheckpointError(f"dtype must be one of {', '.join(DTYPES)}, got {dtype!r}")
    process = LevyProcess(config["alpha"], from_config(config["schedule"]), config["isotropic"])
    denoiser = Denoiser(backbone, process, from_config(config["preconditioning"]), config["learned_variance"])
    return denoiser if denoiser.dtype == DTYPES[dtype] else denoiser.to(DTYPES[dtype])


def write_folder(
    folder: Path, tensors: Mapping[str, Mapping[str, Tensor]], records: Mapping[str, Mapping[str, Any]]
) -> None:
    """Write ``<name>.safetensors`` and ``<name>.json`` files into a new folder, all or nothing.

    An existing folder is replaced only once the new one is complete.
    """
    folder = Path(folder)
    temporary = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary.mkdir()
        for name, group in tensors.items():
            own = {key: value.detach().cpu().contiguous().clone() for key, value in group.items()}
            path = temporary / f"{name}.safetensors"
            path.touch()
            mode = path.stat().st_mode  # safetensors makes files for their owner alone
            safetensors.torch.save_file(own, path)
            path.chmod(mode)
        for name, record in records.items():
            (temporary / f"{name}.json").write_text(
                json.dumps(record, indent=2, sort_keys=True, allow_nan=False) + "\n"
            )
        files = {path.name: _fingerprint(path) for path in sorted(temporary.iterdir())}
        manifest = {"format": 1, "files": files, "sha256": _digest_of(files)}
        (temporary / MANIFEST).write_text(json.dumps(manifest, indent=2))  # no newline: any cut breaks the JSON
        for path in temporary.iterdir():
            sync(path)
        sync(temporary)
        _replace(temporary, folder)
    except OSError as error:
        reason = error.strerror or str(error)
        raise OSError(error.errno, f"cannot write {folder.name} into {folder.parent}: {reason}") from error
    except SafetensorError as error:  # how safetensors reports a full disk
        raise OSError(f"cannot write {folder.name} into {folder.parent}: {error}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def check_target(folder: Path) -> None:
    """Refuse to write into a folder that holds something else."""
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir()) and not (folder / MANIFEST).exists()):
        raise OSError(f"{folder} exists and is not a levydiff folder")


def _replace(new: Path, folder: Path) -> None:
    """Put a complete folder in its place; a folder of that name that is a checkpoint is removed afterwards."""
    check_target(folder)
    if not folder.exists():
        new.rename(folder)
    else:
        old = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:8]}.old")
        folder.rename(old)
        try:
            new.rename(folder)
        except BaseException:
            old.rename(folder)
            raise
        shutil.rmtree(old, ignore_errors=True)
    sync(folder.parent)


def _fingerprint(path: Path) -> dict[str, Any]:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return {"size": path.stat().st_size, "sha256": digest.hexdigest()}


def _digest_of(files: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()


class Folder:
    """A folder that was checked, byte by byte, against its manifest.

    Arguments:
        path: The folder.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not self.path.is_dir():
            raise CheckpointError(
                f"{self.path} is not a levydiff folder: it holds safetensors and JSON, never a pickle"
            )
        manifest = self._manifest()
        for name, expected in manifest["files"].items():
            file = self.path / name
            if not file.is_file():
                raise CheckpointError(f"{self.path}: {name} is missing")
            if _fingerprint(file) != expected:
                raise CheckpointError(f"{file} is not what was saved: it is truncated, damaged or was edited")
        self.files = set(manifest["files"])

    def _manifest(self) -> dict[str, Any]:
        try:
            manifest = json.loads((self.path / MANIFEST).read_text())
            intact = manifest["sha256"] == _digest_of(manifest["files"]) and manifest["format"] == 1
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"{self.path / MANIFEST} is missing or damaged: not a levydiff folder") from error
        if not intact:
            raise CheckpointError(f"{self.path / MANIFEST} is not what was saved: it is damaged or was edited")
        return dict(manifest)

    def tensors(self, name: str) -> dict[str, Tensor]:
        """The tensors of ``<name>.safetensors``."""
        path = self._file(f"{name}.safetensors")
        try:
            return safetensors.torch.load_file(path)
        except (SafetensorError, OSError) as error:
            raise CheckpointError(f"{path} is not a safetensors file: {error}") from error

    def record(self, name: str) -> dict[str, Any]:
        """The contents of ``<name>.json``."""
        return dict(json.loads(self._file(f"{name}.json").read_text()))

    def _file(self, name: str) -> Path:
        if name not in self.files:
            raise CheckpointError(f"{self.path}: {name} is missing")
        return self.path / name


def load_weights(module: nn.Module, tensors: Mapping[str, Tensor], where: Path) -> None:
    """Put stored weights into a module; an error names what does not fit."""
    try:
        module.load_state_dict(tensors)
    except RuntimeError as error:
        raise CheckpointError(f"{where}: the weights do not fit the network: {error}") from error


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """An optimizer's state as tensors and JSON: ``{index}.{name}`` for each parameter's, groups for the rest."""
    state = optimizer.state_dict()
    tensors: dict[str, Tensor] = {}
    numbers: dict[str, Any] = {}
    for index, values in state["state"].items():
        for name, value in values.items():
            target = tensors if isinstance(value, Tensor) else numbers
            target[f"{index}.{name}"] = value
    return tensors, {"groups": state["param_groups"], "numbers": numbers}


def restore_optimizer(
    optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor], record: Mapping[str, Any]
) -> None:
    """The inverse of :func:`optimizer_tensors`."""
    state: dict[int, dict[str, Any]] = {}
    for key, value in (*tensors.items(), *record["numbers"].items()):
        index, name = key.split(".", 1)
        state.setdefault(int(index), {})[name] = value
    optimizer.load_state_dict({"state": state, "param_groups": record["groups"]})
