r"""The sampling loop: from noise at t_T to data at t_0 = 0, one network call a step.

A method is a subclass of :class:`Sampler` that overrides ``step``. The base class owns the rest: the grid, the
start, the random streams (one per sample, so that results do not depend on how a batch is split), precision, the
callback, and the check that every number is finite.

The last step is the same for all methods, :math:`x_0 = (x_{t_1} - \barσ_1 \hat ε)/\barγ_1`: no noise is left to add.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from .checks import cast_finite, check_count, check_data, check_grid, check_shape
from .conditions import pick_rows, to_device
from .denoise import Predictor
from .process import NoisePath
from .rng import Generator, SampleStreams
from .schedule import Chain, Spacing, Step


@dataclass
class Run:
    """What one run of a sampler carries from step to step.

    Arguments:
        chain: The schedule on the sampler's grid.
        path: The drawn A and Σ, for the methods that need them.
        generator: One stream of random numbers per sample.
        previous: (x̂_0, i) of the step before, for multistep methods.
    """

    chain: Chain
    path: NoisePath | None
    generator: Generator
    previous: tuple[Tensor, int] | None = None


@dataclass(frozen=True)
class Progress:
    """What a callback sees after each step.

    Arguments:
        i: The step that was made, from t_i to t_{i-1}; it counts down from T to 1.
        t: The time t_{i-1} that was reached.
        x_t: The samples there.
        eps: ε̂ at t_i, which the step used.

    Example:
        >>> from levydiff import DLIM, LevyProcess, StableOracle
        >>> seen = []
        >>> _ = DLIM(StableOracle(LevyProcess(1.7)), steps=3)((2, 2), callback=seen.append)
        >>> [(progress.i, round(progress.t, 2)) for progress in seen]
        [(3, 0.66), (2, 0.33), (1, 0.0)]
    """

    i: int
    t: float
    x_t: Tensor
    eps: Tensor


class Sampler(ABC):
    """The base of all samplers.

    Arguments:
        denoiser: What predicts ε; it carries the process, hence α and the schedule.
        steps: T, the number of steps.
        spacing: How the times are spaced; evenly in t by default. See :meth:`levydiff.schedule.Schedule.grid`.
        grid: The times themselves, ``0 = t_0 < … < t_T``, instead of ``steps`` and ``spacing``.

    Example:
        >>> class Jump(Sampler):  # a method of one's own: straight to the denoised sample, and noise it again
        ...     def step(self, x_t, eps, v, i, run):
        ...         step = run.chain.step(i)
        ...         x_0 = (x_t - step.sigma_bar * eps) / step.gamma_bar
        ...         noise, _ = self.process.noise(x_t.shape, run.generator)
        ...         return step.gamma_bar_previous * x_0 + step.sigma_bar_previous * noise
        >>> from levydiff import LevyProcess, StableOracle
        >>> Jump(StableOracle(LevyProcess(1.7)), steps=5)((3, 2)).shape
        torch.Size([3, 2])
    """

    def __init__(
        self, denoiser: Predictor, steps: int = 100, *, spacing: Spacing | None = None, grid: Tensor | None = None
    ) -> None:
        self.denoiser = denoiser
        self.process = denoiser.process
        steps = check_count("steps", steps)
        self.grid = check_grid(self.process.schedule.grid(steps, spacing) if grid is None else grid)
        self.chain = self.process.schedule.chain(self.grid)

    @abstractmethod
    def step(self, x_t: Tensor, eps: Tensor, v: Tensor | None, i: int, run: Run) -> Tensor:
        """x_{i-1} from x_i, for i in T … 2.

        Arguments:
            x_t: The samples at t_i.
            eps: ε̂ there.
            v: The denoiser's variance output, if it has one.
            i: The step.
            run: The chain, the noise path and the random streams.
        """

    def draw_path(self, shape: Sequence[int], generator: Generator) -> NoisePath | None:
        """The noise path that ``step`` needs; none by default."""
        return None

    def init(self, shape: Sequence[int], generator: Generator = None) -> tuple[Tensor, NoisePath | None]:
        r"""The start :math:`x_T = \barσ_T\, \mathrm{SαS}(1)`, and the noise path."""
        path = self.draw_path(shape, generator)
        eps, _ = self.process.noise(
            shape, generator, self.process.noise_dtype(self.denoiser.device), self.denoiser.device
        )
        return float(self.chain.sigma_bar[-1]) * eps.to(self._state_dtype()), path

    def __call__(
        self,
        shape: Sequence[int],
        generator: torch.Generator | None = None,
        *,
        x_T: Tensor | None = None,
        batch_size: int | None = None,
        callback: Callable[[Progress], None] | None = None,
        progress: bool = False,
        dtype: torch.dtype | None = None,
        **cond: Any,
    ) -> Tensor:
        """Draw samples.

        Arguments:
            shape: The shape of the result, (B, …).
            generator: The source of randomness. The same seed gives the same samples, whatever ``batch_size``.
            x_T: The start, instead of a random one.
            batch_size: Work on so many samples at a time, to bound memory; all at once by default.
            callback: Called after each step of each batch.
            progress: Show a progress bar.
            dtype: Of the result; the denoiser's by default. The state is float64 throughout where the device has it.
            cond: Handed to the denoiser; a tensor with B rows is split with the batch.

        Returns:
            The samples, of shape ``shape``.
        """
        shape = self._check_shape(shape, x_T)
        size = shape[0] if batch_size is None else check_count("batch_size", batch_size)
        streams = SampleStreams.seeded(shape[0], generator, self.denoiser.device)
        given = to_device(cond, self.denoiser.device)
        results = []
        with self._bar(progress, math.ceil(shape[0] / size)) as bar:
            for index, part in enumerate(streams.split(size)):
                rows = slice(index * size, index * size + len(part))
                start = None if x_T is None else x_T[rows].to(self.denoiser.device, self._state_dtype())
                chosen = pick_rows(given, rows, shape[0])
                x = self._sample((len(part), *shape[1:]), part, start, callback, bar, chosen)
                results.append(cast_finite(x, dtype or self.denoiser.dtype))
        return torch.cat(results)

    @torch.no_grad()
    def _sample(
        self,
        shape: tuple[int, ...],
        streams: SampleStreams,
        start: Tensor | None,
        callback: Callable[[Progress], None] | None,
        bar: Any,
        cond: dict[str, Any],
    ) -> Tensor:
        if start is None:
            x, path = self.init(shape, streams)
        else:
            x, path = start, self.draw_path(shape, streams)
        run = Run(self.chain, path, streams)
        for i in range(self.chain.steps, 0, -1):
            step = self.chain.step(i)
            eps, v = self.denoiser.eps_and_variance(x, torch.tensor(step.t, dtype=x.dtype, device=x.device), **cond)
            x = self.step(x, eps, v, i, run) if i > 1 else self.last_step(x, eps, step, run)
            if not math.isfinite(float(x.sum())):
                raise FloatingPointError(
                    f"{type(self).__name__} met a non-finite value at step {i} of {self.chain.steps} "
                    f"(t = {step.t:.4g}, alpha = {self.process.alpha:g}): {_describe(eps)}"
                )
            bar.update()
            if callback is not None:
                callback(Progress(i, float(self.chain.times[i - 1]), x, eps))
            del eps, v  # or they would wait, unused, through the network's peak of memory
        return x

    def last_step(self, x_t: Tensor, eps: Tensor, step: Step, run: Run) -> Tensor:
        r"""From t_1 to 0: :math:`(x_t - \barσ_1 \hat ε)/\barγ_1`."""
        return (x_t - step.sigma_bar * eps) / step.gamma_bar

    def _state_dtype(self) -> torch.dtype:
        """float64, but on the device that has none."""
        return torch.float32 if self.denoiser.device.type == "mps" else torch.float64

    @staticmethod
    def _check_shape(shape: Sequence[int], x_T: Tensor | None) -> tuple[int, ...]:
        whole = isinstance(shape, Sequence) and all(isinstance(n, Integral) and n >= 1 for n in shape)
        if not whole or len(shape) < 2:
            raise ValueError(f"shape must be (B, ...) with whole sizes of at least 1, got {shape}")
        if x_T is not None:
            check_shape("x_T", check_data("x_T", x_T), tuple(shape))
        return tuple(int(n) for n in shape)

    def _bar(self, show: bool, batches: int) -> Any:
        from tqdm.auto import tqdm

        return tqdm(total=batches * self.chain.steps, desc=type(self).__name__, unit="step", disable=not show)


def _describe(eps: Tensor) -> str:
    bad = int((~torch.isfinite(eps)).sum())
    return (
        f"the denoiser returned {bad} non-finite of {eps.numel()} values" if bad else "the denoiser's output is finite"
    )
