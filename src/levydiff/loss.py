r"""Denoising losses: how far :math:`\hat ε(x_t)` is from the noise ε that was added, one class per objective.

A loss is called as ``loss(denoiser, x_0, generator, **cond)`` and returns one value per sample, shape (B,); the caller
averages. The general form is :math:`‖\hat ε - ε‖_p^η`:

===========================  =====================================================  ===================================
:class:`OneVariableLoss`     p = 2, η = 1 (any p, η); inner average over K draws    the paper's (Prop. 9, Algorithm 1)
:class:`SelfWeightedLoss`    p = 2, η = 2, weighted by a function of (x_t, t)       ours
:class:`LIMLoss`             p = 1, η = 1, smoothed near 0                          LIM's
:class:`DDPMLoss`            p = 2, η = 2, α = 2 only                               DDPM's
===========================  =====================================================  ===================================

The KL losses, from which the paper derives these, are in :mod:`levydiff.kl`; the median of means over several draws
of the noise, the paper's DLPM_M, is in :mod:`levydiff.robust`.

**Which minimiser?** ε has no variance below α = 2, so the squared loss is infinite. The paper takes
:math:`E_A[(E[‖\hat ε - ε‖^2 | A])^{1/2}]`; its Algorithm 1 takes one draw inside the root, which is
:math:`E‖\hat ε - ε‖`, and that is minimised by the spatial *median* of ε given x_t. ``inner`` > 1 averages draws
that share A before the root. The self-weighted loss is finite and keeps the *mean* :math:`E[ε | x_t]`
as minimiser, because its weight does not look at ε.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .checks import check_count, check_data, check_grid, check_positive
from .conditions import pick_rows
from .denoise import Predictor
from .precondition import radius
from .process import Clipping, LevyProcess
from .rng import Generator, uniform
from .stable import positive_stable


class Loss(ABC):
    """The base of all losses.

    Arguments:
        grid: Train on the times of this grid above 0, as the paper does. By default on all of [t_min, t_max], so
            that the network can be sampled on any grid.

    Example:
        >>> class Largest(Loss):  # a loss of one's own
        ...     def evaluate(self, denoiser, x_0, t, generator, **cond):
        ...         x_t, eps, _ = denoiser.process.perturb(x_0, t, generator)
        ...         return (denoiser(x_t, t, **cond) - eps).abs().flatten(1).amax(1)
        >>> from levydiff import StableOracle
        >>> Largest()(StableOracle(LevyProcess(1.7)), torch.randn(8, 2)).shape
        torch.Size([8])
    """

    def __init__(self, grid: Tensor | None = None) -> None:
        self.grid = None if grid is None else check_grid(grid)

    def __call__(self, denoiser: Predictor, x_0: Tensor, generator: Generator = None, **cond: Any) -> Tensor:
        """The loss of each sample at a random time.

        Arguments:
            denoiser: What predicts ε.
            x_0: Data of shape (B, …).
            generator: The source of the times and the noise.
            cond: Handed to the denoiser.

        Returns:
            One value per sample, shape (B,).
        """
        self.check(denoiser.process)
        # Below α = 1/2 in float64: float32 cannot hold the square of the noise.
        x_0 = check_data("x_0", x_0)
        x_0 = x_0.to(torch.promote_types(x_0.dtype, denoiser.process.noise_dtype(x_0.device)))
        return self.evaluate(denoiser, x_0, self.draw_times(denoiser.process, x_0, generator), generator, **cond)

    @abstractmethod
    def evaluate(self, denoiser: Predictor, x_0: Tensor, t: Tensor, generator: Generator, **cond: Any) -> Tensor:
        """The loss of each sample at the time given for it, shape (B,)."""

    def check(self, process: LevyProcess) -> None:  # noqa: B027 (most losses suit every process)
        """Refuse a process for which the loss is infinite or undefined."""

    def draw_times(self, process: LevyProcess, x_0: Tensor, generator: Generator = None) -> Tensor:
        """Independent uniform times, shape (B,)."""
        # float64 where the device has it: near t = 0 and t = 1 the levels feel the digits of t.
        dtype = torch.float32 if x_0.device.type == "mps" else torch.float64
        u = uniform((len(x_0),), generator, dtype, x_0.device)
        if self.grid is None:
            schedule = process.schedule
            return u.mul_(schedule.t_max - schedule.t_min).add_(schedule.t_min)
        times = self.grid[1:].to(x_0.device, dtype)
        return times[(u * len(times)).long()]


def check_power(
    power: float, alpha: float, name: str = "eta", bound: str = "alpha", limit: float | None = None
) -> None:
    """Refuse an exponent at which the expectation over A is infinite.

    ``‖ε‖^η`` has a finite mean only for η < α (KL^r for r < α/2), but at α = 2 every power does.
    """
    limit = alpha if limit is None else limit
    if alpha < 2.0 and not power < limit:
        raise ValueError(f"{name} must be below {bound} = {limit:g} for the loss to be finite, got {power}")


def residual_norm(residual: Tensor, p: float, eta: float, inner: int = 1) -> Tensor:
    r""":math:`(\frac1K \sum_k ‖v_k‖_p^p)^{η/p}` over the K rows of each sample: (B·K, …) to (B,)."""
    flat = residual.reshape(len(residual) // inner, -1)
    if eta == p:  # no root: keeps the squared loss free of the detour through one
        total = flat.square() if p == 2 else flat.abs() ** p
        return total.sum(1) / inner
    norm: Tensor = torch.linalg.vector_norm(flat, p, dim=1) / inner ** (1.0 / p)
    return norm if eta == 1 else norm**eta


class OneVariableLoss(Loss):
    r"""The paper's simplified loss: :math:`‖\hat ε(x_t) - ε‖_p^η`, :math:`x_t = \barγ_t x_0 + \barσ_t ε`,
    :math:`ε = \sqrt{A} G`.

    With ``inner`` = K > 1: :math:`(\frac1K \sum_k ‖\hat ε(x_t^{(k)}) - ε^{(k)}‖_p^p)^{η/p}`, where the K draws
    share t and A but not G nor the data point (the batch's next K-1 rows), as the inner expectation of the paper's
    objective demands. It costs K network evaluations a sample.

    Arguments:
        p: The norm.
        eta: The power, below α (any power at α = 2).
        inner: K, the draws averaged before the root.
        rescaled: Divide the residual by the preconditioning's c_out, so that all times weigh alike.
        grid: See :class:`Loss`.

    Example:
        >>> from levydiff import StableOracle
        >>> process = LevyProcess(1.7)
        >>> x_0 = torch.randn(8, 2)
        >>> OneVariableLoss()(StableOracle(process), x_0, torch.Generator().manual_seed(0)).shape
        torch.Size([8])
    """

    def __init__(
        self, p: float = 2.0, eta: float = 1.0, inner: int = 1, rescaled: bool = False, grid: Tensor | None = None
    ) -> None:
        super().__init__(grid)
        self.p = check_positive("p", p)
        self.eta = check_positive("eta", eta)
        self.inner = check_count("inner", inner)
        self.rescaled = rescaled

    def check(self, process: LevyProcess) -> None:
        check_power(self.eta, process.alpha)

    def evaluate(self, denoiser: Predictor, x_0: Tensor, t: Tensor, generator: Generator, **cond: Any) -> Tensor:
        process, a = denoiser.process, None
        if self.inner > 1:
            a = positive_stable(process.alpha, process.a_shape(x_0.shape), generator, x_0.dtype, x_0.device)
            x_0, t, a, cond = share(x_0, t, a, self.inner, cond)
        x_t, eps, _ = process.perturb(x_0, t, generator, a)
        residual = denoiser(x_t, t, **cond) - eps
        if self.rescaled:
            residual = residual / denoiser.scales(x_t, t)[1]
        return residual_norm(residual, self.p, self.eta, self.inner)


class Shared(NamedTuple):
    """A batch in which every K consecutive rows share t and A."""

    x_0: Tensor
    t: Tensor
    a: Tensor
    cond: dict[str, Any]


def share(x_0: Tensor, t: Tensor, a: Tensor, inner: int, cond: dict[str, Any]) -> Shared:
    """Row j becomes K rows with its t and A, and the data (and conditions) of rows j, j + 1, …, j + K - 1."""
    size, device = len(x_0), x_0.device
    rows = (torch.arange(size, device=device)[:, None] + torch.arange(inner, device=device)).flatten() % size
    return Shared(x_0[rows], t.repeat_interleave(inner), a.repeat_interleave(inner, 0), pick_rows(cond, rows, size))


class SelfWeightedLoss(Loss):
    r"""A squared loss that is finite below α = 2: :math:`w(x_t, t)\, ‖(\hat ε - ε)/c_{out}‖^2`.

    .. math::  w(x_t, t) = \frac{(c_{in} \barσ_t)^{2-α}}{1 + r^2},

    r the :func:`~levydiff.precondition.radius` of :math:`c_{in} x_t`; for independent noise each coordinate has one.
    A large ε makes a large x_t, and the denominator bounds its square: at the latest where ε is of the order of
    :math:`1/(c_{in}\barσ_t)`, which leaves a mean of the order of :math:`(c_{in}\barσ_t)^{α-2}`, and the numerator
    takes that away. Since w is a function of (x_t, t) alone the minimiser is :math:`E[ε | x_t]`, which the
    deterministic sampler needs. (If the data are as heavy-tailed as the noise the mean is finite for α > 1/2.)

    Example:
        >>> from levydiff import StableOracle
        >>> SelfWeightedLoss()(StableOracle(LevyProcess(0.9)), torch.randn(8, 2)).shape
        torch.Size([8])
    """

    def evaluate(self, denoiser: Predictor, x_0: Tensor, t: Tensor, generator: Generator, **cond: Any) -> Tensor:
        process = denoiser.process
        x_t, eps, _ = process.perturb(x_0, t, generator)
        c_in, c_out = denoiser.scales(x_t, t)
        residual: Tensor = (denoiser(x_t, t, **cond) - eps) / c_out
        time_weight = (c_in * process.levels(t, x_t)[1]) ** (2.0 - process.alpha)
        weight = time_weight / (1.0 + radius(c_in * x_t, process.isotropic).square())
        return (weight * residual.square()).flatten(1).sum(1)


class DDPMLoss(OneVariableLoss):
    r"""DDPM's: :math:`‖\hat ε(x_t) - ε‖^2` at α = 2, where ε ~ N(0, 2I).

    Example:
        >>> from levydiff import StableOracle
        >>> DDPMLoss()(StableOracle(LevyProcess(2.0)), torch.randn(8, 2)).shape
        torch.Size([8])
    """

    def __init__(self, grid: Tensor | None = None) -> None:
        super().__init__(p=2.0, eta=2.0, grid=grid)

    def check(self, process: LevyProcess) -> None:
        if process.alpha != 2:
            raise ValueError(f"process.alpha must be 2 for DDPMLoss, got {process.alpha}")


class LIMLoss(Loss):
    r"""LIM's: the :math:`ℓ_1` distance of the noises, :math:`\sum_i h(\hat ε_i - ε_i)`, with :math:`h(v) = |v|`
    smoothed to :math:`v^2/(2β)` for :math:`|v| < β` (smooth-L1, as its code has it). Finite for α > 1, or with
    clipping.

    Arguments:
        beta: The width of the smoothing; 0 is the plain ℓ_1 norm of the paper.
        clipping: LIM's limits on A and ‖ε‖; off by default.
        grid: See :class:`Loss`.

    Example:
        >>> from levydiff import StableOracle
        >>> LIMLoss(clipping=Clipping())(StableOracle(LevyProcess(1.5)), torch.randn(8, 2)).shape
        torch.Size([8])
    """

    def __init__(self, beta: float = 1.0, clipping: Clipping | None = None, grid: Tensor | None = None) -> None:
        super().__init__(grid)
        self.beta = beta if beta == 0 else check_positive("beta", beta)
        self.clipping = clipping

    def check(self, process: LevyProcess) -> None:
        if self.clipping is None:
            check_power(1.0, process.alpha)

    def evaluate(self, denoiser: Predictor, x_0: Tensor, t: Tensor, generator: Generator, **cond: Any) -> Tensor:
        process = denoiser.process
        eps, a = process.noise(x_0.shape, generator, x_0.dtype, x_0.device)
        if self.clipping is not None:
            eps, _ = self.clipping.apply(eps, a)
        gamma_bar, sigma_bar = process.levels(t, x_0)
        predicted = denoiser(gamma_bar * x_0 + sigma_bar * eps, t, **cond)
        distance = torch.nn.functional.smooth_l1_loss(predicted, eps, reduction="none", beta=self.beta)
        return distance.flatten(1).sum(1)
