r"""Kullback-Leibler losses: the distance between the true reverse step and the model's, given the noise's variances.

Given A the reverse step is Gaussian (:mod:`levydiff.process`), and so is the model's. Its KL divergence is a sum
over coordinates of

.. math::
    \frac12\left(\frac{\tilde Σ}{Σ_θ} - 1 - \log\frac{\tilde Σ}{Σ_θ}\right) + \frac{(\tilde m - \hat m)^2}{2Σ_θ}, \qquad
    \tilde m - \hat m = \frac{Γ_t \barσ_t}{γ_t} (\hat ε - ε).

With equal variances it is :math:`λ^2 ‖\hat ε - ε‖^2`,
:math:`λ^2 = Γ_t^2 \barσ_t^2/(2γ_t^2 \tilde Σ) = Γ_t \barσ_t^2/(2 γ_t^2 Σ_{t-1})`. (The paper's λ is misprinted,
and its Gaussian KL is written for one coordinate.) The objective is :math:`E_A[\,E[KL | A]^r\,]`, finite for r <
α/2; the paper takes r = 1/2, and α = 2, r = 1 is DDPM.

==========================  ==========================================================================================
:class:`FullKLLoss`         draws A_1 … A_t; learned variance if the denoiser has one
:class:`TwoVariableLoss`    draws two A's with the same law of (Σ_{t-1}, Σ_t) (Prop. 8)
:class:`CauchyLoss`         α = 1, independent components: KL of Cauchy laws, no A at all
==========================  ==========================================================================================

All need a grid, since they speak of steps, and train on steps 2 … T: at step 1 the reverse step is a point.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .checks import check_count, check_positive
from .denoise import Predictor
from .loss import Loss, check_power, residual_norm, share
from .process import LevyProcess
from .rng import Generator, normal, uniform
from .schedule import Chain
from .stable import positive_stable


class Levels(NamedTuple):
    """The numbers of each sample's step, shaped to multiply the data: (B, 1, …)."""

    gamma: Tensor
    sigma: Tensor
    gamma_bar: Tensor
    sigma_bar: Tensor
    sigma_bar_previous: Tensor


class StepLoss(Loss):
    """What the losses over the steps of a chain share: the grid, and a random step for each sample."""

    grid: Tensor

    def __init__(self, grid: Tensor) -> None:
        super().__init__(grid)
        if len(self.grid) < 3:
            raise ValueError(f"grid must have at least 2 steps for a loss over steps 2 ... T, got {len(self.grid) - 1}")

    def draw_times(self, process: LevyProcess, x_0: Tensor, generator: Generator = None) -> Tensor:
        """A uniform step in 2 … T for each sample, int64 of shape (B,)."""
        u = uniform((len(x_0),), generator, torch.float32, x_0.device)
        return 2 + (u * (len(self.grid) - 2)).long()

    @staticmethod
    def at(chain: Chain, steps: Tensor, x: Tensor) -> Levels:
        """The chain's numbers at each sample's step."""

        def pick(values: Tensor, index: Tensor) -> Tensor:
            return values.to(x.device, x.dtype)[index].reshape(-1, *[1] * (x.ndim - 1))

        gamma, sigma = pick(chain.gamma, steps), pick(chain.sigma, steps)
        gamma_bar, sigma_bar = pick(chain.gamma_bar, steps), pick(chain.sigma_bar, steps)
        return Levels(gamma, sigma, gamma_bar, sigma_bar, pick(chain.sigma_bar, steps - 1))


class _GaussianKLLoss(StepLoss):
    """KL^r between Gaussian reverse steps; a subclass says how (Σ_{t-1}, σ_t² A_t) are drawn.

    Arguments:
        grid: Times ``0 = t_0 < … < t_T``, T ≥ 2.
        r: The power of the KL, below α/2 (at most 1 at α = 2).
        inner: K, the draws that share A, averaged before the power.
    """

    def __init__(self, grid: Tensor, r: float = 0.5, inner: int = 1) -> None:
        super().__init__(grid)
        self.r = check_positive("r", r)
        if self.r > 1:
            raise ValueError(f"r must lie in (0, 1], got {r}")
        self.inner = check_count("inner", inner)

    @abstractmethod
    def draw_variances(
        self, process: LevyProcess, chain: Chain, steps: Tensor, x_0: Tensor, generator: Generator
    ) -> tuple[Tensor, Tensor]:
        """(Σ_{t-1}, σ_t² A_t) of each sample, in the shape of A."""

    def check(self, process: LevyProcess) -> None:
        check_power(self.r, process.alpha, "r", "alpha/2", process.alpha / 2)

    def evaluate(self, denoiser: Predictor, x_0: Tensor, t: Tensor, generator: Generator, **cond: Any) -> Tensor:
        process, steps = denoiser.process, t
        chain = process.schedule.chain(self.grid)
        var_previous, jump = self.draw_variances(process, chain, steps, x_0, generator)
        if self.inner > 1:
            both = torch.stack((var_previous, jump), dim=1)
            x_0, steps, both, cond = share(x_0, steps, both, self.inner, cond)
            var_previous, jump = both.unbind(1)
        level = self.at(chain, steps, x_0)
        var = jump + level.gamma.square() * var_previous
        noise = var.sqrt() * normal(x_0.shape, generator, x_0.dtype, x_0.device)
        x_t, eps = level.gamma_bar * x_0 + noise, noise / level.sigma_bar
        predicted, v = denoiser.eps_and_variance(x_t, self.grid.to(x_0.device, x_0.dtype)[steps], **cond)
        gain = jump / var
        shift = (gain * level.sigma_bar / level.gamma) * (predicted - eps)  # difference of the two means
        posterior_var = gain * var_previous
        if v is None:  # KL = ‖shift‖²/(2Σ̃), and its power through a norm, which has a gradient at 0
            scaled = shift / (2.0 * posterior_var).sqrt()
            return residual_norm(scaled, p=2.0, eta=2.0 * self.r, inner=self.inner)
        # log(Σ̃/Σ_θ) for Σ_θ = Σ̃^{1-v} (σ_t² A_t)^v, with Σ̃ = σ_t² A_t · Σ_{t-1}/Σ_t
        log_ratio = v * (var_previous.log() - var.log())
        excess = 0.5 * (torch.expm1(log_ratio) - log_ratio).clamp_min(0.0)
        kl = excess + shift.square() * log_ratio.exp() / (2.0 * posterior_var)
        mean = kl.reshape(len(kl) // self.inner, -1).sum(1) / self.inner
        return mean if self.r == 1 else mean.clamp_min(torch.finfo(mean.dtype).tiny) ** self.r


class TwoVariableLoss(_GaussianKLLoss):
    r"""KL^r with two heavy-tailed variables instead of t (Prop. 8).

    :math:`Σ_{t-1} = \barσ_{t-1}^2 A^0`, :math:`Σ_t = σ_t^2 A^1 + γ_t^2 Σ_{t-1}` have the joint law of the full chain's.

    Example:
        >>> from levydiff import StableOracle
        >>> process = LevyProcess(1.7)
        >>> loss = TwoVariableLoss(process.schedule.grid(100))
        >>> loss(StableOracle(process), torch.randn(8, 2)).shape
        torch.Size([8])
    """

    def draw_variances(
        self, process: LevyProcess, chain: Chain, steps: Tensor, x_0: Tensor, generator: Generator
    ) -> tuple[Tensor, Tensor]:
        shape = process.a_shape(x_0.shape)
        a_0, a_1 = (positive_stable(process.alpha, shape, generator, x_0.dtype, x_0.device) for _ in range(2))
        level = self.at(chain, steps, x_0)
        return level.sigma_bar_previous.square() * a_0, level.sigma.square() * a_1


class FullKLLoss(_GaussianKLLoss):
    r"""KL^r with the whole chain :math:`A_1 … A_t` drawn: the paper's objective before any simplification.

    It costs T draws of A a sample. A denoiser with ``learned_variance`` is trained on mean and variance;
    :class:`TwoVariableLoss` does the same at two draws a sample.

    Example:
        >>> from levydiff import StableOracle
        >>> process = LevyProcess(1.7)
        >>> loss = FullKLLoss(process.schedule.grid(10), r=0.5, inner=4)
        >>> loss(StableOracle(process), torch.randn(8, 2)).shape
        torch.Size([8])
    """

    def draw_variances(
        self, process: LevyProcess, chain: Chain, steps: Tensor, x_0: Tensor, generator: Generator
    ) -> tuple[Tensor, Tensor]:
        path = process.draw_path(x_0.shape, self.grid, generator, x_0.device)
        rows = torch.arange(len(x_0), device=x_0.device)
        var_previous, a = path.var[steps - 1, rows].to(x_0.dtype), path.a[steps - 1, rows].to(x_0.dtype)
        return var_previous, self.at(chain, steps, x_0).sigma.square() * a


class CauchyLoss(StepLoss):
    r"""The KL divergence of Cauchy steps (α = 1, independent components): no augmentation by A.

    .. math::  \sum_i \log\left(1 + \frac{(m_i - \hat m_i)^2}{4ρ_t^2}\right), \qquad
               m - \hat m = \left(\frac{\barσ_t}{γ_t} - \barσ_{t-1} + ρ_t\right) (\hat ε - ε),

    with the noise :math:`ρ_t = ρ\, \barσ_{t-1} σ_t/\barσ_t` of :class:`~levydiff.sample.CauchyDLIM`.

    Arguments:
        grid: Times ``0 = t_0 < … < t_T``, T ≥ 2.
        rho: ρ in (0, 1].

    Example:
        >>> from levydiff import StableOracle
        >>> process = LevyProcess(1.0, isotropic=False)
        >>> CauchyLoss(process.schedule.grid(100))(StableOracle(process), torch.randn(8, 2)).shape
        torch.Size([8])
    """

    def __init__(self, grid: Tensor, rho: float = 1.0) -> None:
        super().__init__(grid)
        if not 0 < rho <= 1:
            raise ValueError(f"rho must lie in (0, 1], got {rho}")
        self.rho = rho

    def check(self, process: LevyProcess) -> None:
        check_cauchy(process, "CauchyLoss")

    def evaluate(self, denoiser: Predictor, x_0: Tensor, t: Tensor, generator: Generator, **cond: Any) -> Tensor:
        process, steps = denoiser.process, t
        level = self.at(process.schedule.chain(self.grid), steps, x_0)
        t = self.grid.to(x_0.device, x_0.dtype)[steps]
        x_t, eps, _ = process.perturb(x_0, t, generator)
        rho = self.rho * level.sigma_bar_previous * level.sigma / level.sigma_bar
        factor = level.sigma_bar / level.gamma - level.sigma_bar_previous + rho
        shift = factor * (denoiser(x_t, t, **cond) - eps)
        return torch.log1p((shift / (2.0 * rho)).square()).flatten(1).sum(1)


def check_cauchy(process: LevyProcess, who: str) -> None:
    """Refuse a process whose noise is not independent Cauchy."""
    if process.alpha != 1 or process.isotropic:
        what = f"alpha = {process.alpha}, isotropic = {process.isotropic}"
        raise ValueError(f"process must have alpha = 1 and isotropic = False for {who}, got {what}")
