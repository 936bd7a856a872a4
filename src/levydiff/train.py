r"""Training: a loop on ``accelerate`` that can be stopped at any moment and loses nothing.

**Everything random in step k is a function of (seed, k).** The rows of the batch come from
:class:`~levydiff.batches.Batches`, the times and the noise of its j-th sample from a stream of its own
(:class:`~levydiff.rng.SampleStreams`). So a run that is resumed from step k goes on bit for bit as if it had not
been stopped, and a run on several processes, each with its share of the batch, follows the same loss curve as one
process.

The folder of a run is described in :mod:`levydiff.runs`. Several machines: ``accelerate launch`` the same script or
``levydiff train`` on each; nothing else changes.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.tracking import get_available_trackers
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel
from tqdm.auto import tqdm

from .batches import Batches
from .denoise import Denoiser
from .interrupt import stop_requests
from .loss import Loss
from .model import LevyModel
from .rng import Generator, SampleStreams
from .runs import RunFolder
from .scaling import AsinhScaling, Scaling, check_gaussian
from .stable import watch_draws
from .train_config import TrainConfig
from .training_state import load_state, save_state

#: Validation data in a network at once, in rows and in values: 4096 points, some hundred small images.
_VALIDATED_ROWS, _VALIDATED_VALUES = 1 << 12, 1 << 18


class _Objective(nn.Module):
    """Denoiser and loss in one module, so that distributed wrappers see the whole forward pass."""

    def __init__(self, denoiser: Denoiser, loss: Loss) -> None:
        super().__init__()
        self.denoiser = denoiser
        self.loss = loss

    def forward(self, x_0: Tensor, generator: Generator, cond: Mapping[str, Any]) -> Tensor:
        return self.loss(self.denoiser, x_0, generator, **cond)


@dataclass
class _SinceLog:
    """The losses since the last line of the log: their sum and how many."""

    loss: Tensor
    steps: int = 0

    def add(self, loss: Tensor) -> None:
        self.loss += loss
        self.steps += 1

    def take_mean(self) -> float:
        mean = float(self.loss) / self.steps
        self.loss.zero_()
        self.steps = 0
        return mean


class Trainer:
    """Fit a denoiser to data.

    Arguments:
        denoiser: The network with its process and preconditioning; trained in place.
        loss: The objective.
        data: Rows to learn from, shape (n, …), in the network's units, or :class:`~levydiff.batches.Batches` of them.
        config: How to train.
        folder: Where the run lives; without it nothing is written and nothing can be resumed.
        validation: Rows (or, with conditions, batches of them) for the validation loss, which is computed with the same
            noise every time.
        scaling, columns, info: Kept in the model, see :class:`~levydiff.model.LevyModel`.

    Example:
        >>> from levydiff import LevyProcess, SelfWeightedLoss
        >>> from levydiff.nn import TailMLP
        >>> denoiser = Denoiser(TailMLP(2, width=16), LevyProcess(1.7))
        >>> trainer = Trainer(denoiser, SelfWeightedLoss(), torch.randn(500, 2), TrainConfig(steps=5, batch_size=64))
        >>> trainer.fit(progress=False).sample(3).shape
        torch.Size([3, 2])
    """

    def __init__(
        self,
        denoiser: Denoiser,
        loss: Loss,
        data: Tensor | Batches,
        config: TrainConfig | None = None,
        folder: str | Path | None = None,
        *,
        validation: Tensor | Batches | None = None,
        scaling: Scaling | None = None,
        columns: Sequence[str] | None = None,
        info: Mapping[str, Any] | None = None,
    ) -> None:
        self.config = config or TrainConfig()
        loss.check(denoiser.process)
        self.folder = None if folder is None else RunFolder(folder)
        trackers = list(self.config.trackers)
        missing = set(trackers) - {str(kind.value) for kind in get_available_trackers()}
        if missing:
            raise ValueError(f"trackers must be installed, got {', '.join(sorted(missing))}, which is not")
        if AcceleratorState._shared_state and AcceleratorState().mixed_precision != self.config.precision:
            AcceleratorState._reset_state()  # accelerate keeps the precision of the first trainer of a process
        self.accelerator = Accelerator(
            mixed_precision=self.config.precision,
            log_with=trackers or None,
            project_dir=self.folder.path if trackers and self.folder else None,
        )
        shares = self.accelerator.num_processes * self.config.accumulate
        if self.config.batch_size % shares:
            raise ValueError(
                f"batch_size must be a multiple of processes x accumulate = {shares}, got {self.config.batch_size}"
            )
        self.batches = data if isinstance(data, Batches) else Batches(data, self.config.batch_size, self.config.seed)
        if self.batches.batch_size != self.config.batch_size:
            own = self.batches.batch_size
            raise ValueError(f"data must come in batches of config.batch_size = {self.config.batch_size}, got {own}")
        self.validation = validation
        check_gaussian(isinstance(scaling, AsinhScaling), denoiser.process.alpha)
        self.scaling, self.columns, self.info = scaling, columns, dict(info or {})
        self.denoiser, self.loss = denoiser, loss
        rate = self.config.rate.at(0, self.config.steps)
        fused = self.accelerator.device.type in ("cpu", "cuda")  # one kernel a step; not on every device
        optimizer = torch.optim.Adam(denoiser.parameters(), lr=rate, fused=fused)
        objective = _Objective(denoiser, loss)
        self.objective, self.optimizer = self.accelerator.prepare(objective, optimizer)
        average = partial(_average, self.config.ema)
        self.ema = AveragedModel(denoiser, multi_avg_fn=average).eval() if self.config.ema else None
        if self.config.compile:
            if not isinstance(denoiser.backbone, nn.Module):
                raise ValueError(f"compile needs a backbone that is a module, got {type(denoiser.backbone).__name__}")
            denoiser.backbone.compile()  # in place: the weights keep their names
        self.step = 0
        self.since_log = _SinceLog(torch.zeros((), device=self.accelerator.device))
        self.seconds_before, self._started = 0.0, time.perf_counter()
        if self.folder is not None:
            self._check_storable()

    # -- the loop -----------------------------------------------------------------------------------------------------

    def fit(
        self, *, resume: bool = True, progress: bool = True, callback: Callable[[dict[str, float]], None] | None = None
    ) -> LevyModel:
        """Train to the end and return the model.

        SIGINT (Ctrl-C) and SIGTERM end it after the step under way, with a checkpoint, by a ``KeyboardInterrupt``.

        Arguments:
            resume: Go on from the newest checkpoint of the folder, if there is one.
            progress: Show a progress bar with loss, speed and time left.
            callback: Called with every logged line.
        """
        main = self.accelerator.is_main_process
        with self.folder.locked() if self.folder is not None and main else nullcontext():
            return self._fit(resume, progress, callback)

    def _fit(self, resume: bool, progress: bool, callback: Callable[[dict[str, float]], None] | None) -> LevyModel:
        self._prepare_folder(resume)
        self.objective.train()  # a model that was loaded comes in evaluation mode, without dropout
        config, main = self.config, self.accelerator.is_main_process
        if config.trackers:
            self.accelerator.init_trackers("levydiff")
        self._started, first = time.perf_counter(), self.step
        bar = tqdm(total=config.steps, initial=self.step, desc="train", unit="step", disable=not (progress and main))
        with bar, stop_requests() as requests:
            while self.step < config.steps:
                self.since_log.add(self.train_step())
                bar.update()
                if self._due(config.log_every) or self._due(config.validate_every):
                    line = {"step": self.step, "loss": self.since_log.take_mean(), "rate": self._rate(self.step - 1)}
                    line["seconds"] = round(self.seconds(), 3)
                    line["steps_per_second"] = round((self.step - first) / (time.perf_counter() - self._started), 2)
                    if self._due(config.validate_every) and self.validation is not None:
                        line["validation"] = self.validation_loss()
                    self._log(line, bar, callback)
                stop = self._any(bool(requests))
                if stop or self._due(config.checkpoint_every):
                    self.save_checkpoint()
                if stop:
                    if config.trackers:
                        self.accelerator.end_training()
                    raise KeyboardInterrupt(f"stopped after step {self.step}")
        if config.trackers:
            self.accelerator.end_training()
        model = self.model()
        model.denoiser.eval()
        if self.folder is not None and main and (self.step > first or not self.folder.model.is_dir()):
            model.save_pretrained(self.folder.model)
        self.accelerator.wait_for_everyone()
        return model

    def train_step(self) -> Tensor:
        """One optimizer step; returns the loss of this process's share of the batch."""
        config, accelerator = self.config, self.accelerator
        for group in self.optimizer.param_groups:
            group["lr"] = self._rate(self.step)
        share = (accelerator.process_index, accelerator.num_processes)
        x_0, cond = self.batches.rows(self.step, share), self.batches.conditions(self.step, share)
        streams = self._streams(self.step)
        size = len(x_0) // config.accumulate
        total = torch.zeros((), device=accelerator.device)
        for start in range(0, len(x_0), size):
            rows = slice(start, start + size)
            chosen = {k: v[rows].to(accelerator.device) for k, v in cond.items()}
            last = start + size == len(x_0)
            with nullcontext() if last else accelerator.no_sync(self.objective):
                loss = self._loss(self._on_device(x_0[rows]), streams[rows], chosen) / config.accumulate
                accelerator.backward(loss)
            total += loss.detach()
        if config.clip_gradient is not None:
            accelerator.clip_grad_norm_(self.objective.parameters(), config.clip_gradient)
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.ema is not None:
            self.ema.update_parameters(self.denoiser)
        self.step += 1
        return total

    def _loss(self, x_0: Tensor, streams: SampleStreams, cond: Mapping[str, Any]) -> Tensor:
        keys = streams.keys
        loss: Tensor = self.objective(x_0, streams, cond).mean()
        if not math.isfinite(loss.item()):
            # The same streams again, to say how large the noise was.
            with torch.no_grad(), watch_draws() as largest:
                self.objective(x_0, SampleStreams(keys), cond)
            alpha = self.denoiser.process.alpha
            seen = f"the largest A of the batch was {max(largest, default=2.0):.3g}"
            kept = "" if self.folder is None else f"; the last good checkpoint is in {self.folder.path / 'checkpoints'}"
            raise FloatingPointError(f"the loss is {loss.item()} at step {self.step}, alpha = {alpha:g}: {seen}{kept}")
        return loss

    @torch.no_grad()
    def validation_loss(self) -> float:
        """The mean loss of the averaged weights on the validation rows, with the same noise every time."""
        assert self.validation is not None
        device = self.accelerator.device
        rows = self.validation if isinstance(self.validation, Batches) else Batches(self.validation, 1, 0)
        size, total = len(rows.data), 0.0
        streams = SampleStreams.of_step(self.config.seed, -1, size, device)
        denoiser = self.averaged
        training = denoiser.training
        denoiser.eval()
        most = max(1, min(_VALIDATED_ROWS, _VALIDATED_VALUES // math.prod(rows.data.shape[1:])))
        for start in range(0, size, most):
            part = slice(start, min(start + most, size))
            cond = {name: values[part].to(device) for name, values in rows.cond.items()}
            x_0 = self._on_device(rows.take(torch.arange(part.start, part.stop)))
            total += float(self.loss(denoiser, x_0, streams[part], **cond).sum())
        denoiser.train(training)
        return total / size

    def _on_device(self, x: Tensor) -> Tensor:
        device = self.accelerator.device
        return x.to(device, torch.float32) if device.type == "mps" else x.to(device)  # which has no float64

    def _streams(self, step: int) -> SampleStreams:
        """The random streams of this process's share of a step's batch."""
        streams = SampleStreams.of_step(self.config.seed, step, self.config.batch_size, self.accelerator.device)
        share = self.config.batch_size // self.accelerator.num_processes
        start = self.accelerator.process_index * share
        return streams[start : start + share]

    def _any(self, flag: bool) -> bool:
        """Whether one of the processes says so; all learn it at the same step."""
        if self.accelerator.num_processes == 1:
            return flag
        return bool(self.accelerator.reduce(torch.tensor(int(flag), device=self.accelerator.device), "sum"))

    def seconds(self) -> float:
        """How long the run has taken up to now, without the time it was stopped."""
        return self.seconds_before + time.perf_counter() - self._started

    def _rate(self, step: int) -> float:
        return self.config.rate.at(step, self.config.steps)

    def _due(self, every: int) -> bool:
        return bool(every) and (self.step % every == 0 or self.step == self.config.steps)

    @property
    def averaged(self) -> Denoiser:
        """The denoiser with the averaged weights; the trained one itself if there is no average."""
        module = self.denoiser if self.ema is None else self.ema.module
        assert isinstance(module, Denoiser)
        return module

    def model(self) -> LevyModel:
        """The model as it is now: the averaged weights, or the weights themselves if there is no average."""
        info = self.info | {"step": self.step, "training": self.config.to_record()}
        return LevyModel(self.averaged, self.batches.data.shape[1:], self.scaling, self.columns, info)

    # -- the folder ---------------------------------------------------------------------------------------------------

    def _check_storable(self) -> None:
        """Tell what cannot be stored now, not at the first checkpoint."""
        try:
            json.dumps(self.model().to_record(), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise type(error)(f"info, columns and the denoiser must be storable as JSON: {error}") from error

    def _prepare_folder(self, resume: bool) -> None:
        if self.folder is None:
            return
        newest = self.folder.newest()
        if newest is not None and not resume:
            raise ValueError(f"folder must be new unless the run is resumed, got {self.folder.path} with {newest.name}")
        if newest is not None:
            self.load_checkpoint(newest)
        if self.accelerator.is_main_process:
            self.folder.prepare(self.step)
        self.accelerator.wait_for_everyone()

    def _log(self, line: dict[str, float], bar: Any, callback: Callable[[dict[str, float]], None] | None) -> None:
        line["loss"] = float(
            self.accelerator.reduce(torch.tensor(line["loss"], device=self.accelerator.device), "mean")
        )
        bar.set_postfix(loss=f"{line['loss']:.4g}", refresh=False)
        if self.config.trackers:
            self.accelerator.log({k: v for k, v in line.items() if k != "step"}, step=int(line["step"]))
        if self.folder is not None and self.accelerator.is_main_process:
            self.folder.log(line)
        if callback is not None:
            callback(line)

    def save_checkpoint(self) -> None:
        """Write the complete state under ``checkpoints/step-…`` and drop the oldest beyond ``keep``."""
        if self.folder is None:
            return
        since_log = float(self.accelerator.reduce(self.since_log.loss, "mean"))
        if self.accelerator.is_main_process:
            save_state(self, self.folder.checkpoint(self.step), since_log)
            self.folder.prune(self.config.keep)
        self.accelerator.wait_for_everyone()

    def load_checkpoint(self, path: Path) -> None:
        """Go back to a saved state, bit for bit."""
        load_state(self, path)


def _average(decay: float, averaged: Sequence[Tensor], current: Sequence[Tensor], count: Tensor) -> None:
    """Move the averaged weights towards the current ones, faster at first, so that a short run forgets its start."""
    n = int(count)
    torch._foreach_lerp_(list(averaged), list(current), 1.0 - min(decay, (1.0 + n) / (10.0 + n)))
