r"""Schedulers for Hugging Face diffusers: the core's DLPM and DLIM behind the interface of ``DDPMScheduler``.

The network, the training loop and the pipeline stay diffusers'; the noise becomes α-stable. Timesteps are whole numbers
n = 0 … N - 1, as the network sees them; n is the time :math:`t = t_{max}(n + 1)/N` of the core's schedule, so that

.. math::  x_n = \barγ_t x_0 + \barσ_t ε, \qquad ε \sim \mathrm{SαS}(1), \qquad \barγ_t^α + \barσ_t^α = 1.

A table of DDPM's betas is read at any α as :math:`\barγ^α = \prod_k (1 - β_k)`, see :mod:`levydiff.timesteps`. At α =
2 these are DDPM's own coefficients, with one difference: SαS(1) is then N(0, 2I), as everywhere in levydiff, so the
noise is √2 times theirs.

In diffusers' training loop two lines change::

    scheduler = DLPMScheduler(num_train_timesteps=1000)       # was DDPMScheduler
    noise = scheduler.sample_noise(images.shape)              # was torch.randn

With ``torch.randn`` left in the loop everything still runs, but the model learns Gaussian noise. Sample with
:class:`~levydiff.pipeline.LevyPipeline`, which starts from heavy-tailed latents; diffusers' own pipelines start from
Gaussian ones. A loop of one's own::

    scheduler.set_timesteps(50)
    x = scheduler.init_latents((16, 3, 32, 32), generator)    # x_T, and DLPM's A_1 … A_T
    for n in scheduler.timesteps:
        x = scheduler.step(unet(x.float(), n).sample, n, x).prev_sample

``step`` runs the code of the core's samplers, so a run with float64 ``x`` is the core's run bit for bit.
"""

# diffusers is typed in part, and absent where the extra is not installed.
# mypy: allow-subclassing-any, allow-untyped-decorators, allow-untyped-calls, disable-error-code="misc"

from __future__ import annotations

from collections.abc import Sequence

from diffusers.configuration_utils import register_to_config

# When diffusers loads a pipeline, it looks in a scheduler's module for the base class that says how.
from diffusers.schedulers.scheduling_utils import SchedulerMixin  # noqa: F401
from torch import Tensor

from .denoise import Predictor
from .sample import DLIM, DLPM
from .sampler import Sampler
from .scheduler import LevyScheduler


class DLPMScheduler(LevyScheduler):
    r"""DLPM: the stochastic step :math:`(x_t - Γ_t\barσ_t\hat ε)/γ_t + \sqrt{Γ_t Σ_{t-1}}\, G`, see
    :class:`~levydiff.sample.DLPM`.

    Arguments:
        consistent_start: Start from :math:`\sqrt{Σ_T}\, G` with the run's own Σ_T, see :class:`~levydiff.sample.DLPM`.

    The other arguments are those of :class:`LevyScheduler`.

    Example:
        >>> from diffusers import DDPMScheduler
        >>> scheduler = DLPMScheduler.from_config(DDPMScheduler(beta_end=0.01).config, alpha=1.8)
        >>> scheduler.config.beta_end, scheduler.config.alpha, scheduler.config.clip_sample
        (0.01, 1.8, False)
    """

    @register_to_config
    def __init__(
        self,
        num_train_timesteps: int = 1000,
        beta_start: float = 0.0001,
        beta_end: float = 0.02,
        beta_schedule: str = "linear",
        trained_betas: Sequence[float] | None = None,
        alpha: float = 1.7,
        isotropic: bool = True,
        prediction_type: str = "epsilon",
        clip_sample: bool = False,
        clip_sample_range: float = 1.0,
        timestep_spacing: str = "trailing",
        consistent_start: bool = False,
    ) -> None:
        self._set_up()

    def _make_sampler(self, denoiser: Predictor, grid: Tensor) -> Sampler:
        return DLPM(denoiser, grid=grid, consistent_start=self.config["consistent_start"])


class DLIMScheduler(LevyScheduler):
    r"""DLIM: :math:`(x_t - \barσ_t\hat ε)/γ_t + (\barσ_{t-1}^α - ρ_t^α)^{1/α}\, \hat ε + ρ_t ε'`, deterministic by
    default; see :class:`~levydiff.implicit.DLIM`. At α = 2 it is ``DDIMScheduler`` on the same betas.

    Arguments:
        rho: In [0, 1], the noise that is renewed at each step: ``DDIMScheduler``'s eta.
        solver_order: 1, or 2 for the multistep method, which needs fewer steps and ``rho = 0``.

    The other arguments are those of :class:`LevyScheduler`.

    Example:
        >>> dlpm = DLPMScheduler(alpha=1.5)
        >>> dlim = DLIMScheduler.from_config(dlpm.config, solver_order=2)
        >>> dlim.config.alpha
        1.5
    """

    @register_to_config
    def __init__(
        self,
        num_train_timesteps: int = 1000,
        beta_start: float = 0.0001,
        beta_end: float = 0.02,
        beta_schedule: str = "linear",
        trained_betas: Sequence[float] | None = None,
        alpha: float = 1.7,
        isotropic: bool = True,
        prediction_type: str = "epsilon",
        clip_sample: bool = False,
        clip_sample_range: float = 1.0,
        timestep_spacing: str = "trailing",
        rho: float = 0.0,
        solver_order: int = 1,
    ) -> None:
        self._set_up()

    def _make_sampler(self, denoiser: Predictor, grid: Tensor) -> Sampler:
        return DLIM(denoiser, grid=grid, rho=self.config["rho"], order=self.config["solver_order"])
