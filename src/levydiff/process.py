r"""The forward process: from data to α-stable noise, and one step back given the noise's random variances.

The symbols of the project, in code and in print:

=================  ==========  =====================================================================================
``alpha``          α           stability index in (0, 2]; 2 is Gaussian
``x_0``, ``x_t``   X_0, X_t    data; noised data at time t
``gamma_bar``      γ̄_t         factor of the data in x_t (:mod:`levydiff.schedule`)
``sigma_bar``      σ̄_t         scale of the noise in x_t
``gamma, sigma``   γ_t, σ_t    the same over one step: X_t = γ_t X_{t-1} + σ_t ε_t
``eps``            ε           SαS(1) noise, ε = √A G
``a``              A           positive (α/2)-stable variance of the noise (:mod:`levydiff.stable`)
``g``              G           standard Gaussian
``var``            Σ_t         variance of X_t given X_0 and A: Σ_t = σ_t² A_t + γ_t² Σ_{t-1}, Σ_0 = 0
``gain``           Γ_t         share of the last step in it: Γ_t = σ_t² A_t / Σ_t, in [0, 1]
=================  ==========  =====================================================================================

Isotropic noise has one A for each sample, of shape (B, 1, …, 1); independent components have one for each
coordinate, of the shape of the data.

Given the A of all steps the process is Gaussian, and so is its posterior (the paper's Proposition 3):

.. math::
    X_{t-1} | X_t, X_0, A \sim N(\tilde m, \tilde Σ), \quad
    \tilde m = (X_t - Γ_t \barσ_t ε_t)/γ_t, \quad \tilde Σ = Γ_t Σ_{t-1}, \quad ε_t = (X_t - \barγ_t X_0)/\barσ_t.

The paper writes :math:`Γ_t = 1 - γ_t^2 Σ_{t-1}/Σ_t` (its main text drops the square); that difference loses all
digits when one jump dwarfs the other steps, the quotient above none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from .checks import check_alpha, check_shape
from .rng import Generator, device_for, normal
from .schedule import Chain, CosineSchedule, Schedule
from .stable import positive_stable


class Perturbed(NamedTuple):
    """A noised batch: ``x_t = γ̄ x_0 + σ̄ ε`` with ``ε = √a G``; x_t and ε of shape (B, …), a of the shape of A.

    Example:
        >>> x_t, eps, a = LevyProcess(2.0).perturb(torch.zeros(1, 2), torch.tensor(0.5))
        >>> a
        tensor([[2.]])
    """

    x_t: Tensor
    eps: Tensor
    a: Tensor


class Posterior(NamedTuple):
    """Mean (the shape of the data) and variance (the shape of A) of X_{t-1} given X_t, X_0 and A."""

    mean: Tensor
    var: Tensor


@dataclass(frozen=True)
class NoisePath:
    """The random variances of a whole chain, drawn once and handed along.

    Arguments:
        chain: The schedule on its grid, T steps.
        a: A_1 … A_T, of shape (T, B, 1, …) if isotropic, (T, B, …) otherwise; ``a[i - 1]`` is A_i.
        var: Σ_0 … Σ_T, of shape (T + 1, …).

    Example:
        >>> process = LevyProcess(1.7)
        >>> path = process.draw_path((4, 2), process.schedule.grid(3))
        >>> path.a.shape, path.var.shape
        (torch.Size([3, 4, 1]), torch.Size([4, 4, 1]))
        >>> path.gain(1).flatten()
        tensor([1., 1., 1., 1.])
    """

    chain: Chain
    a: Tensor
    var: Tensor

    def gain(self, i: int) -> Tensor:
        """Γ_i = σ_i² A_i / Σ_i in [0, 1]."""
        return float(self.chain.sigma[i]) ** 2 * self.a[i - 1] / self.var[i]


@dataclass(frozen=True)
class Clipping:
    """LIM's knobs against large noise, off unless asked for: they cut the tail off.

    Arguments:
        a: A is capped at this value; infinity for no limit.
        norm: A noise vector longer than this is rescaled to it; infinity for no limit.

    Example:
        >>> eps, a = Clipping(a=20.0, norm=1.0).apply(torch.tensor([[3.0, 4.0]]), torch.tensor([[9.0]]))
        >>> eps
        tensor([[0.6000, 0.8000]])
    """

    a: float = 20.0
    norm: float = 200.0

    def __post_init__(self) -> None:
        for name in ("a", "norm"):
            if not getattr(self, name) > 0:
                raise ValueError(f"clipping.{name} must be above 0 (inf for no limit), got {getattr(self, name)}")

    def apply(self, eps: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        """The noise ε = √a G and its variance, clipped."""
        capped = a.clamp(max=self.a)
        eps = eps * (capped / a).sqrt()
        norm = torch.linalg.vector_norm(eps.flatten(1), dim=1).reshape(-1, *[1] * (eps.ndim - 1))
        return eps * (norm.clamp(max=self.norm) / norm.clamp_min(torch.finfo(norm.dtype).tiny)), capped


@dataclass(frozen=True)
class LevyProcess:
    r"""The forward process :math:`X_t = \barγ_t X_0 + \barσ_t ε` with α-stable noise ε.

    Arguments:
        alpha: The stability index in (0, 2]; 2 is Gaussian diffusion, with noise N(0, 2I).
        schedule: γ̄ and σ̄ as functions of time; the paper's cosine schedule by default.
        isotropic: One A for each sample (True), or one for each coordinate (False).

    Example:
        >>> process = LevyProcess(1.7)
        >>> x_0 = torch.zeros(4, 2)
        >>> x_t, eps, a = process.perturb(x_0, torch.full((4,), 0.5), torch.Generator().manual_seed(0))
        >>> x_t.shape, a.shape
        (torch.Size([4, 2]), torch.Size([4, 1]))
    """

    alpha: float
    schedule: Schedule = field(default_factory=CosineSchedule)
    isotropic: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "alpha", check_alpha(self.alpha))
        object.__setattr__(self, "schedule", self.schedule.with_alpha(self.alpha))

    def noise_dtype(self, device: torch.device | str | None = None) -> torch.dtype:
        """What noise is drawn in: float32, or float64 below α = 0.5, where A outgrows float32, if the device has it."""
        wide = self.alpha < 0.5 and (device is None or torch.device(device).type != "mps")
        return torch.float64 if wide else torch.float32

    def a_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of A for data of shape (B, …)."""
        return (shape[0],) + (1,) * (len(shape) - 1) if self.isotropic else tuple(shape)

    def noise(
        self,
        shape: Sequence[int],
        generator: Generator = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> tuple[Tensor, Tensor]:
        """ε = √A G ~ SαS(1) of the given shape (B, …), and A."""
        a = positive_stable(self.alpha, self.a_shape(shape), generator, dtype, device)
        return normal(shape, generator, dtype, device).mul_(a.sqrt()), a

    def perturb(self, x_0: Tensor, t: Tensor, generator: Generator = None, a: Tensor | None = None) -> Perturbed:
        r"""Noise the data to time t: :math:`x_t = \barγ_t x_0 + \barσ_t \sqrt{A}\, G`.

        Arguments:
            x_0: Data of shape (B, …).
            t: Times of shape (B,) or ().
            generator: The source of randomness.
            a: A, if it is to be shared with other draws; drawn otherwise.
        """
        t = torch.as_tensor(t, device=x_0.device)
        if t.ndim > 0:
            check_shape("t", t, x_0.shape[:1])
        low, high = torch.aminmax(t)
        if not (float(low) >= 0 and float(high) <= 1):
            raise ValueError(f"t must lie in [0, 1], got {float(low):g} ... {float(high):g}")
        if a is None:
            eps, a = self.noise(x_0.shape, generator, x_0.dtype, x_0.device)
        else:
            eps = normal(x_0.shape, generator, x_0.dtype, x_0.device).mul_(a.sqrt())
        gamma_bar, sigma_bar = self.levels(t, x_0)
        return Perturbed(gamma_bar * x_0 + sigma_bar * eps, eps, a)

    def levels(self, t: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """γ̄_t and σ̄_t in the dtype of x, shaped to multiply it."""
        shape = (-1,) + (1,) * (x.ndim - 1) if t.ndim else ()
        gamma_bar, sigma_bar = self.schedule.gamma_bar(t), self.schedule.sigma_bar(t)
        return gamma_bar.to(x.dtype).reshape(shape), sigma_bar.to(x.dtype).reshape(shape)

    def draw_path(
        self,
        shape: Sequence[int],
        grid: Tensor,
        generator: Generator = None,
        device: torch.device | str | None = None,
    ) -> NoisePath:
        r"""Draw :math:`A_1 … A_T` for a batch and accumulate :math:`Σ_t = σ_t^2 A_t + γ_t^2 Σ_{t-1}`.

        Isotropic noise takes O(T·B) memory, whatever the size of a sample. Numbers are float32; below α = 0.5, where A
        outgrows it, float64.

        Arguments:
            shape: The shape of the data, (B, …).
            grid: Times ``0 = t_0 < … < t_T``.

        Example:
            >>> process = LevyProcess(1.7)
            >>> path = process.draw_path((64, 3, 32, 32), process.schedule.grid(1000))
            >>> path.a.shape, (path.a.nbytes + path.var.nbytes) / 1e6 < 1.0
            (torch.Size([1000, 64, 1, 1, 1]), True)
        """
        chain = self.schedule.chain(grid)
        dtype = self.noise_dtype(device_for(generator, device))
        batch, *rest = self.a_shape(shape)
        # Samples first: a generator with one stream per sample is asked for rows.
        a = positive_stable(self.alpha, (batch, chain.steps, *rest), generator, dtype, device)
        a = a.transpose(0, 1).contiguous()
        var = a.new_zeros(chain.steps + 1, batch, *rest)
        for i in range(1, chain.steps + 1):
            step = chain.step(i)
            torch.add(step.sigma**2 * a[i - 1], var[i - 1], alpha=step.gamma**2, out=var[i])
        if not math.isfinite(float(var.sum())):
            raise FloatingPointError(f"the variance of the noise path overflows {dtype} at alpha = {self.alpha}")
        return NoisePath(chain, a, var)

    def posterior(self, x_t: Tensor, eps: Tensor, path: NoisePath, i: int) -> Posterior:
        r"""Mean and variance of :math:`X_{i-1}` given :math:`X_i = x_t`, the noise ε in it, and the path.

        :math:`\tilde m = (x_t - Γ_i \barσ_i ε)/γ_i`, :math:`\tilde Σ = Γ_i Σ_{i-1}`. At i = 1: Γ = 1 and Σ = 0, so
        the mean is the data itself.
        """
        step = path.chain.step(i)
        gain = path.gain(i)
        mean = torch.addcmul(x_t, eps, gain * -step.sigma_bar).div_(step.gamma)
        return Posterior(mean, gain * path.var[i - 1])
