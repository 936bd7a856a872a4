r"""The stochastic samplers, and the names of all.

One step :math:`x_t → x_{t-1}`, with :math:`\hat ε = \hat ε(x_t, t)`:

==============  ============================================================================================
:class:`DLPM`   :math:`(x_t - Γ_t\barσ_t\hat ε)/γ_t + \sqrt{Γ_t Σ_{t-1}}\, G`
:class:`DDPM`   the same at α = 2, where :math:`Γ_t = σ_t^2/\barσ_t^2` is no longer random
:class:`LIM`    :math:`x_t/γ_t - α(1/γ_t - 1)\barσ_t^{1-α}\hat ε + (γ_t^{-α} - 1)^{1/α} ε'`
:class:`LIMODE` :math:`x_t/γ_t - (1/γ_t - 1)\barσ_t^{1-α}\hat ε`, deterministic
==============  ============================================================================================

(The paper's Algorithm 2 misses the 1/γ_t on the second term of DLPM.) DLIM, DDIM and Cauchy DLIM are in
:mod:`levydiff.implicit`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from .denoise import Predictor
from .implicit import DDIM, DLIM, CauchyDLIM
from .process import Clipping, NoisePath
from .rng import Generator, normal
from .sampler import Progress, Run, Sampler
from .schedule import ExplodingSchedule, Spacing

__all__ = ["DDIM", "DDPM", "DLIM", "DLPM", "LIM", "LIMODE", "CauchyDLIM", "Progress", "Sampler"]


class DLPM(Sampler):
    r"""Denoising Lévy Probabilistic Model: the Gaussian reverse step given the chain's random variances A.

    .. math::  x_{t-1} = (x_t - Γ_t\barσ_t\hat ε)/γ_t + \sqrt{Γ_t Σ_{t-1}}\, G.

    A_1 … A_T are drawn once at the start. A denoiser with learned variance replaces :math:`\tilde Σ = Γ_tΣ_{t-1}` by
    :math:`\tilde Σ^{1-v} (σ_t^2 A_t)^v`.

    Reference: Shariatian, Simsekli & Durmus, *Heavy-Tailed Diffusion with Denoising Lévy Probabilistic Models*, 2024.

    Arguments:
        denoiser, steps, spacing, grid: See :class:`~levydiff.sampler.Sampler`.
        consistent_start: Start from :math:`\sqrt{Σ_T}\, G` with the chain's own Σ_T, as the forward process given
            A does. The paper starts from an independent draw of the same law (False).

    Example:
        >>> from levydiff import LevyProcess, StableOracle
        >>> sampler = DLPM(StableOracle(LevyProcess(1.7)), steps=10)
        >>> sampler((5, 2), torch.Generator().manual_seed(0)).shape
        torch.Size([5, 2])
    """

    def __init__(
        self,
        denoiser: Predictor,
        steps: int = 100,
        *,
        spacing: Spacing | None = None,
        grid: Tensor | None = None,
        consistent_start: bool = False,
    ) -> None:
        super().__init__(denoiser, steps, spacing=spacing, grid=grid)
        self.consistent_start = consistent_start

    def draw_path(self, shape: Sequence[int], generator: Generator) -> NoisePath:
        return self.process.draw_path(shape, self.grid, generator, self.denoiser.device)

    def init(self, shape: Sequence[int], generator: Generator = None) -> tuple[Tensor, NoisePath | None]:
        if not self.consistent_start:
            return super().init(shape, generator)
        path = self.draw_path(shape, generator)
        g = normal(shape, generator, torch.float32, self.denoiser.device)
        return path.var[-1].sqrt() * g.to(self._state_dtype()), path

    def step(self, x_t: Tensor, eps: Tensor, v: Tensor | None, i: int, run: Run) -> Tensor:
        assert run.path is not None
        mean, var = self.process.posterior(x_t, eps, run.path, i)
        if v is not None:  # Σ̃^{1-v} (σ_t² A_t)^v, where Σ̃ = σ_t² A_t · Σ_{t-1}/Σ_t
            var = var * (run.path.var[i] / run.path.var[i - 1]) ** v
        return mean.addcmul_(var.sqrt().to(mean.dtype), normal(x_t.shape, run.generator, torch.float32))


class DDPM(Sampler):
    r"""Denoising Diffusion Probabilistic Model, α = 2: the Gaussian posterior step.

    .. math::  x_{t-1} = (x_t - \frac{σ_t^2}{\barσ_t}\hat ε)/γ_t + \frac{σ_t\barσ_{t-1}}{\barσ_t}\sqrt2\,G,

    the textbook's with :math:`γ_t^2 = 1 - β_t`, :math:`σ_t^2 = β_t` and noise N(0, 2I), so :math:`\hat ε` predicts
    √2 times standard noise.

    Reference: Ho, Jain & Abbeel, *Denoising Diffusion Probabilistic Models*, 2020.

    Example:
        >>> from levydiff import LevyProcess, StableOracle
        >>> DDPM(StableOracle(LevyProcess(2.0)), steps=10)((5, 2)).shape
        torch.Size([5, 2])
    """

    def __init__(
        self, denoiser: Predictor, steps: int = 100, *, spacing: Spacing | None = None, grid: Tensor | None = None
    ) -> None:
        if denoiser.process.alpha != 2:
            raise ValueError(f"process.alpha must be 2 for DDPM, got {denoiser.process.alpha}")
        super().__init__(denoiser, steps, spacing=spacing, grid=grid)

    def step(self, x_t: Tensor, eps: Tensor, v: Tensor | None, i: int, run: Run) -> Tensor:
        step = run.chain.step(i)
        mean = (x_t - (step.sigma**2 / step.sigma_bar) * eps) / step.gamma
        noise = normal(x_t.shape, run.generator, torch.float32)
        if v is not None:  # the interpolated variance of Nichol & Dhariwal, between β̃ (v = 0) and β (v = 1)
            noise = noise * (step.sigma_bar / step.sigma_bar_previous) ** v
        return mean + (math.sqrt(2.0) * step.sigma * step.sigma_bar_previous / step.sigma_bar) * noise


class _ItoSampler(Sampler):
    """What LIM and its ODE share: continuous time on a scale-preserving schedule, and clipping."""

    def __init__(
        self,
        denoiser: Predictor,
        steps: int = 100,
        *,
        spacing: Spacing | None = None,
        grid: Tensor | None = None,
        clipping: Clipping | None = None,
    ) -> None:
        if isinstance(denoiser.process.schedule, ExplodingSchedule):
            raise ValueError("process.schedule must be scale preserving for LIM, got ExplodingSchedule")
        super().__init__(denoiser, steps, spacing=spacing, grid=grid)
        self.clipping = clipping

    def init(self, shape: Sequence[int], generator: Generator = None) -> tuple[Tensor, NoisePath | None]:
        return float(self.chain.sigma_bar[-1]) * self.noise(shape, generator).to(self._state_dtype()), None

    def noise(self, shape: Sequence[int], generator: Generator) -> Tensor:
        """SαS(1) noise, clipped if asked for."""
        device = self.denoiser.device
        eps, a = self.process.noise(shape, generator, self.process.noise_dtype(device), device)
        return eps if self.clipping is None else self.clipping.apply(eps, a)[0]

    def drift(self, x_t: Tensor, eps: Tensor, i: int, factor: float) -> Tensor:
        r""":math:`x_t/γ_t - \mathrm{factor}·(1/γ_t - 1)\barσ_t^{1-α}\hat ε`."""
        step = self.chain.step(i)
        weight: float = factor * (1.0 / step.gamma - 1.0) * step.sigma_bar ** (1.0 - self.process.alpha)
        return x_t / step.gamma - weight * eps


class LIM(_ItoSampler):
    r"""Lévy-Itô Model, the reverse SDE in exponential Euler steps.

    .. math::  x_{t-1} = x_t/γ_t - α(1/γ_t - 1)\barσ_t^{1-α}\hat ε + (γ_t^{-α} - 1)^{1/α} ε',
               \quad ε' \sim \mathrm{SαS}(1).

    The reverse SDE has a further jump term, which LIM leaves out; so below α = 2 its samples are biased even with the
    exact score: data SαS(1) come out with the scale :math:`(α-1)^{-1/α}` for α > 1 (1.23 at α = 1.7), whatever the
    steps.

    Reference: Yoon, Park, Kim & Lim, *Score-based generative models with Lévy processes*, 2023.

    Arguments:
        denoiser, steps, spacing, grid: See :class:`~levydiff.sampler.Sampler`.
        clipping: Limits on the noise that is added, and on the start; off by default.

    Example:
        >>> from levydiff import LevyProcess, StableOracle
        >>> LIM(StableOracle(LevyProcess(1.7)), steps=10, clipping=Clipping())((5, 2)).shape
        torch.Size([5, 2])
    """

    def step(self, x_t: Tensor, eps: Tensor, v: Tensor | None, i: int, run: Run) -> Tensor:
        step = run.chain.step(i)
        # (γ^{-α} - 1)^{1/α} = σ/γ for a scale-preserving schedule, without the cancellation
        jump = (step.sigma / step.gamma) * self.noise(x_t.shape, run.generator)
        return self.drift(x_t, eps, i, self.process.alpha) + jump


class LIMODE(_ItoSampler):
    r"""LIM's probability-flow ODE: :math:`x_{t-1} = x_t/γ_t - (1/γ_t - 1)\barσ_t^{1-α}\hat ε`, deterministic given
    the start.

    Arguments:
        denoiser, steps, spacing, grid: See :class:`~levydiff.sampler.Sampler`.
        clipping: Limits on the start; off by default.

    Example:
        >>> from levydiff import LevyProcess, StableOracle
        >>> LIMODE(StableOracle(LevyProcess(1.7)), steps=10)((5, 2)).shape
        torch.Size([5, 2])
    """

    def step(self, x_t: Tensor, eps: Tensor, v: Tensor | None, i: int, run: Run) -> Tensor:
        return self.drift(x_t, eps, i, 1.0)
