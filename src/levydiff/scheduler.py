r"""What our diffusers schedulers share: timesteps, noise, and runs of a core sampler, one call of ``step`` at a time.

diffusers calls the network itself and hands its output to ``scheduler.step``; a core sampler calls the network in its
loop. :class:`LevyScheduler` holds such a sampler, keeps what its loop would keep (the :class:`~levydiff.sampler.Run`)
between the calls, and has it make the steps. The schedulers themselves are in :mod:`levydiff.diffusers`.
"""

# diffusers is typed in part, and absent where the extra is not installed.
# mypy: allow-subclassing-any, allow-untyped-decorators, allow-untyped-calls, disable-error-code="misc"

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from diffusers.configuration_utils import ConfigMixin
from diffusers.schedulers.scheduling_ddim import DDIMScheduler
from diffusers.schedulers.scheduling_ddpm import DDPMScheduler
from diffusers.schedulers.scheduling_utils import SchedulerMixin
from diffusers.utils.outputs import BaseOutput
from torch import Tensor

from .checks import cast_finite, check_count, check_positive, check_shape
from .denoise import Predictor
from .process import LevyProcess
from .rng import SampleStreams
from .sampler import Run, Sampler, _describe
from .schedule import CosineSchedule, Schedule
from .timesteps import BetaSchedule, spaced_steps

Generators = torch.Generator | list[torch.Generator] | None


@dataclass
class LevySchedulerOutput(BaseOutput):
    """What ``step`` returns.

    Arguments:
        prev_sample: x at the next smaller timestep, of the shape and dtype of the sample.
        pred_original_sample: The denoised sample x̂_0, likewise.
    """

    prev_sample: Tensor
    pred_original_sample: Tensor


class _Outside(Predictor):
    """Stands in a core sampler for the network, which diffusers calls outside of it; it knows the device."""

    anchor: Tensor

    def __init__(self, process: LevyProcess) -> None:
        super().__init__(process)
        self.register_buffer("anchor", torch.empty(0))

    def forward(self, x_t: Tensor, t: Tensor, **cond: Any) -> Tensor:
        raise NotImplementedError


#: Options of diffusers' schedulers that ours do not have, and what they must be (the first is the usual value).
_ONLY: dict[str, tuple[Any, ...]] = {
    "thresholding": (False, None),
    "rescale_betas_zero_snr": (False, None),
    "steps_offset": (0, None),
    "set_alpha_to_one": (True, None),
    "variance_type": ("fixed_small", "fixed_small_log", None),
}


class LevyScheduler(SchedulerMixin, ConfigMixin):
    """What :class:`DLPMScheduler` and :class:`DLIMScheduler` share; a subclass says which core sampler makes the steps.

    A *run* is one way down the timesteps. It begins with :meth:`init_latents`, or else with the first step after
    :meth:`set_timesteps`. Its state are its random streams (one for each sample), DLPM's variances A, and for a
    multistep method the step before. They are no part of the config; ``set_timesteps`` drops them, and
    ``copy.deepcopy`` copies them.

    Arguments:
        num_train_timesteps: N, the number of timesteps.
        alpha: The stability index in (0, 2].
        isotropic: One A for each sample (True), or one for each pixel (False).
        beta_schedule: ``"cosine"`` is the paper's, :class:`~levydiff.schedule.CosineSchedule`, which diffusers'
            schedulers do not know. All other names are theirs and mean the same tables: ``"linear"``,
            ``"scaled_linear"``, ``"squaredcos_cap_v2"``, …
        beta_start, beta_end: The ends of such a table.
        trained_betas: The table itself, instead of the last three; its length is then N.
        prediction_type: What the model predicts: ``"epsilon"`` or ``"sample"``.
        clip_sample: Clip x̂_0 to ±``clip_sample_range``. Off by default: it cuts the tail off. A config that a
            ``DDPMScheduler`` saved mostly turns it on, and :meth:`from_config` keeps it.
        clip_sample_range: Where to clip.
        timestep_spacing: ``"trailing"`` is the paper's grid :math:`t_i = t_{max} i/T`, ``"quadratic"`` is denser near
            the data, :math:`t_i = t_{max} (i/T)^2`; ``"leading"`` and ``"linspace"`` are diffusers'.
    """

    order = 1  # network calls per step

    process: LevyProcess
    timesteps: Tensor
    num_inference_steps: int

    @classmethod
    def _get_compatibles(cls) -> list[type]:
        # A method, not diffusers' list of names: those are looked up in its own library only.
        return [DDPMScheduler, DDIMScheduler, *LevyScheduler.__subclasses__()]

    @classmethod
    def from_config(cls, config: Any = None, return_unused_kwargs: bool = False, **options: Any) -> Any:
        """A scheduler from the config of this or of a compatible class; what ours cannot do is refused, not ignored.

        Arguments:
            config: A scheduler's ``config``, or a dictionary of it.
            return_unused_kwargs: Return a pair, with what of the options is no entry of the config.
            options: Values that replace those of the config.
        """
        merged = {**config, **options} if isinstance(config, Mapping) else options
        for name, allowed in _ONLY.items():
            if name in merged and merged[name] not in allowed:
                raise ValueError(f"{name} must be {allowed[0]!r} for {cls.__name__}, got {merged[name]!r}")
        return super().from_config(config, return_unused_kwargs, **options)

    def _set_up(self) -> None:
        """Everything that follows from the config."""
        config = self.config
        if config["prediction_type"] not in ("epsilon", "sample"):
            raise ValueError(f"prediction_type must be 'epsilon' or 'sample', got {config['prediction_type']!r}")
        check_positive("clip_sample_range", config["clip_sample_range"])
        steps = check_count("num_train_timesteps", config["num_train_timesteps"])
        schedule: Schedule
        if config["beta_schedule"] == "cosine" and config["trained_betas"] is None:
            schedule = CosineSchedule()
        else:
            names = ("num_train_timesteps", "beta_start", "beta_end", "beta_schedule", "trained_betas")
            betas = DDPMScheduler(**{name: config[name] for name in names}).betas
            schedule, steps = BetaSchedule(betas=tuple(betas.tolist())), len(betas)
        self.process = LevyProcess(config["alpha"], schedule, config["isotropic"])
        times = torch.arange(steps + 1, dtype=torch.float64) * self.process.schedule.t_max / steps
        self._training = self.process.schedule.chain(times)  # timestep n is its time n + 1
        self.betas = 1.0 - self._training.gamma[1:] ** self.process.alpha
        self.set_timesteps(steps)

    def _make_sampler(self, denoiser: Predictor, grid: Tensor) -> Sampler:
        """The core sampler whose steps these are."""
        raise NotImplementedError

    def __len__(self) -> int:
        return self._training.steps

    @property
    def grid(self) -> Tensor:
        """The times ``0 = t_0 < … < t_T`` of the timesteps: a core sampler with this grid makes the same run."""
        return self._sampler.grid

    @property
    def init_noise_sigma(self) -> float:
        """σ̄_T, the scale of the noise that a run starts from."""
        return float(self._sampler.chain.sigma_bar[-1])

    def set_timesteps(self, num_inference_steps: int, device: torch.device | str | None = None) -> None:
        """Choose T timesteps, and drop the run in progress.

        Arguments:
            num_inference_steps: T, from 1 to N.
            device: Where to put ``timesteps``.

        Example:
            >>> from levydiff.diffusers import DLIMScheduler
            >>> scheduler = DLIMScheduler()
            >>> scheduler.set_timesteps(4)
            >>> scheduler.timesteps
            tensor([999, 749, 499, 249])
        """
        steps = check_count("num_inference_steps", num_inference_steps)
        if steps > len(self):
            raise ValueError(f"num_inference_steps must be at most the {len(self)} of training, got {steps}")
        rows = spaced_steps(len(self), steps, self.config["timestep_spacing"])  # n + 1, rising
        grid = torch.cat([self._training.times[:1], self._training.times[rows]])
        self._sampler = self._make_sampler(_Outside(self.process), grid)
        self._index = {int(row) - 1: i for i, row in enumerate(rows, start=1)}
        self._run: Run | None = None
        self._last: int | None = None  # the last step made
        self.num_inference_steps = steps
        self.timesteps = (rows - 1).flip(0).to(device)

    def scale_model_input(self, sample: Tensor, timestep: int | Tensor | None = None) -> Tensor:
        """The sample as it is."""
        return sample

    def sample_noise(
        self,
        shape: Sequence[int],
        generator: Generators = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> Tensor:
        """ε ~ SαS(1) of the given shape (B, …): the noise of training, where diffusers' loop has ``torch.randn``.

        Arguments:
            shape: (B, …).
            generator: One generator for the batch, a list of one for each sample, or None for torch's own.
            device, dtype: Of the result; the CPU and float32 (float64 below α = 0.5) by default.

        Example:
            >>> from levydiff.diffusers import DLPMScheduler
            >>> DLPMScheduler(alpha=1.7).sample_noise((4, 3, 8, 8), torch.Generator().manual_seed(0)).shape
            torch.Size([4, 3, 8, 8])
        """
        streams = _streams(shape[0], generator, device)
        eps, _ = self.process.noise(shape, streams, self.process.noise_dtype(streams.device), streams.device)
        return eps if dtype is None else cast_finite(eps, dtype)

    def add_noise(self, original_samples: Tensor, noise: Tensor, timesteps: Tensor) -> Tensor:
        r""":math:`x_n = \barγ x_0 + \barσ ε` at the timesteps n.

        The noise is used as given: draw it with :meth:`sample_noise`.

        Arguments:
            original_samples: x_0 of shape (B, …).
            noise: ε of the same shape.
            timesteps: n in 0 … N - 1, whole numbers of shape (B,), (1,) or ().

        Example:
            >>> from levydiff.diffusers import DLPMScheduler
            >>> scheduler = DLPMScheduler(alpha=1.7)
            >>> x, n = torch.ones(4, 3, 8, 8), torch.tensor([0, 10, 100, 999])
            >>> scheduler.add_noise(x, torch.zeros_like(x), n)[:, 0, 0, 0]
            tensor([0.9999, 0.9987, 0.9369, 0.0026])
        """
        x_0 = original_samples
        low, high = torch.aminmax(timesteps)
        if not (int(low) >= 0 and int(high) < len(self)):
            raise ValueError(f"timesteps must lie in 0 ... {len(self) - 1}, got {int(low)} ... {int(high)}")
        rows = timesteps.to(x_0.device).flatten() + 1
        gamma_bar, sigma_bar = (
            level.to(x_0.dtype).to(x_0.device)[rows].reshape(-1, *[1] * (x_0.ndim - 1))
            for level in (self._training.gamma_bar, self._training.sigma_bar)
        )
        return gamma_bar * x_0 + sigma_bar * cast_finite(noise, x_0.dtype)

    def init_latents(
        self, shape: Sequence[int], generator: Generators = None, device: torch.device | str | None = None
    ) -> Tensor:
        r"""Begin a run: seed its random streams, draw DLPM's A_1 … A_T, and return the start :math:`x_T = \barσ_T ε`.

        Arguments:
            shape: (B, …).
            generator: One generator for the batch, a list of one for each sample, or None for torch's own. The run
                takes B keys from it here and nothing later.
            device: Of the result.

        Returns:
            x_T, float64 where the device has it. Keep it so from step to step, and the run is the core's.

        Example:
            >>> from levydiff.diffusers import DLPMScheduler
            >>> scheduler = DLPMScheduler(alpha=1.7)
            >>> scheduler.set_timesteps(10)
            >>> scheduler.init_latents((4, 3, 8, 8), torch.Generator().manual_seed(0)).dtype
            torch.float64
        """
        streams = self._new_streams(shape, generator, device)
        x_T, path = self._sampler.init(tuple(shape), streams)
        self._begin(Run(self._sampler.chain, path, streams), shape)
        return x_T

    def step(
        self,
        model_output: Tensor,
        timestep: int | Tensor,
        sample: Tensor,
        generator: Generators = None,
        return_dict: bool = True,
    ) -> LevySchedulerOutput | tuple[Tensor, Tensor]:
        """From one timestep to the next smaller one; from the smallest to the data.

        Arguments:
            model_output: ε̂ or x̂_0, by ``prediction_type``, of the shape of the sample.
            timestep: One of ``timesteps``.
            sample: x there, of shape (B, …).
            generator: Where a run comes from that begins with this step; a run that goes on has its own streams.
            return_dict: Return a :class:`LevySchedulerOutput` (True), or the tuple of its fields.

        Example:
            >>> from levydiff.diffusers import DLIMScheduler
            >>> scheduler = DLIMScheduler(alpha=1.7)
            >>> scheduler.set_timesteps(10)
            >>> x = scheduler.init_latents((4, 3, 8, 8))
            >>> for n in scheduler.timesteps:
            ...     x = scheduler.step(torch.zeros_like(x), n, x).prev_sample
            >>> x.shape
            torch.Size([4, 3, 8, 8])
        """
        i = self._step_index(timestep)
        check_shape("model_output", model_output, tuple(sample.shape))
        run = self._run_at(i, sample, generator)
        x_t = sample.to(self._sampler._state_dtype())
        step = run.chain.step(i)
        eps = x_0 = model_output.to(x_t.dtype)
        if self.config["prediction_type"] == "epsilon":
            x_0 = torch.add(x_t, eps, alpha=-step.sigma_bar).div_(step.gamma_bar)
        if self.config["clip_sample"]:
            x_0 = x_0.clamp(-self.config["clip_sample_range"], self.config["clip_sample_range"])
        if self.config["clip_sample"] or self.config["prediction_type"] == "sample":
            eps = (x_t - step.gamma_bar * x_0) / step.sigma_bar
        sampler = self._sampler
        x = sampler.step(x_t, eps, None, i, run) if i > 1 else sampler.last_step(x_t, eps, step, run)
        if not math.isfinite(float(x.detach().sum())):
            raise FloatingPointError(
                f"{type(self).__name__} met a non-finite value at timestep {int(timestep)}: {_describe(eps)}"
            )
        self._last = i
        x, x_0 = cast_finite(x, sample.dtype), x_0.to(sample.dtype)
        return LevySchedulerOutput(prev_sample=x, pred_original_sample=x_0) if return_dict else (x, x_0)

    def _step_index(self, timestep: int | Tensor) -> int:
        try:
            return self._index[int(timestep)]
        except KeyError:
            few = f"{int(self.timesteps[0])}, ..., {int(self.timesteps[-1])}"
            raise ValueError(f"timestep must be one of scheduler.timesteps ({few}), got {timestep}") from None

    def _run_at(self, i: int, sample: Tensor, generator: Generators) -> Run:
        """The run in progress, or a new one: there is none, or it goes up again, to another walk down."""
        if self._run is None or (self._last is not None and i > self._last):
            streams = self._new_streams(sample.shape, generator, sample.device)
            path = self._sampler.draw_path(sample.shape, streams)
            self._begin(Run(self._sampler.chain, path, streams), sample.shape)
        run = self._run
        assert run is not None
        if tuple(sample.shape) != self._shape:
            raise ValueError(
                f"sample must have the shape {self._shape} that the run began with, got {tuple(sample.shape)}; "
                "call set_timesteps to begin another"
            )
        if run.previous is not None and run.previous[1] != i + 1:
            run.previous = None  # a step was left out or made again: nothing to extrapolate from
        return run

    def _new_streams(
        self, shape: Sequence[int], generator: Generators, device: torch.device | str | None
    ) -> SampleStreams:
        streams = _streams(shape[0], generator, device)
        self._sampler.denoiser.to(streams.device)
        return streams

    def _begin(self, run: Run, shape: Sequence[int]) -> None:
        self._run, self._shape, self._last = run, tuple(shape), None


def _streams(count: int, generator: Generators, device: torch.device | str | None) -> SampleStreams:
    """One random stream for each sample, from one generator or from one for each."""
    if not isinstance(generator, list):
        return SampleStreams.seeded(count, generator, device)
    if len(generator) != count:
        raise ValueError(f"generator must be a list of one for each of the {count} samples, got {len(generator)}")
    return SampleStreams(torch.cat([SampleStreams.seeded(1, g, device).keys for g in generator]))
