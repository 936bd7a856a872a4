r"""Denoisers known in closed form: :math:`E[ε | x_t]` without training, to test samplers against exact targets."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .checks import check_positive
from .denoise import Predictor, eps_from_x0
from .process import LevyProcess


class StableOracle(Predictor):
    r"""The exact denoiser of data SαS(s) with the α and the isotropy of the noise.

    .. math::  E[ε | x_t] = \frac{\barσ_t^{α-1} x_t}{(\barγ_t s)^α + \barσ_t^α},

    linear in x_t. (Divide both stable summands of x_t into equal independent pieces: given the sum all pieces have
    the same conditional mean, which exists for every α in (0, 2] since their conditional density decays as
    :math:`|x|^{-2(1+α)}` or faster.) The deterministic flow conserves
    :math:`x_t / ((\barγ_t s)^α + \barσ_t^α)^{1/α}`: see :meth:`exact_data`.

    Arguments:
        process: The forward process.
        scale: s, the scale of the data.

    Example:
        >>> oracle = StableOracle(LevyProcess(1.7), scale=2.0)
        >>> oracle(torch.ones(1, 2), torch.tensor(0.5)).shape
        torch.Size([1, 2])
    """

    def __init__(self, process: LevyProcess, scale: float = 1.0) -> None:
        super().__init__(process)
        self.scale = check_positive("scale", scale)

    def forward(self, x_t: Tensor, t: Tensor, **cond: Any) -> Tensor:
        _, sigma_bar = self.process.levels(t, x_t)
        alpha = self.process.alpha
        return sigma_bar ** (alpha - 1.0) / self.total_scale(x_t, t) ** alpha * x_t

    def total_scale(self, x_t: Tensor, t: Tensor) -> Tensor:
        r"""The scale of x_t: :math:`((\barγ_t s)^α + \barσ_t^α)^{1/α}`."""
        gamma_bar, sigma_bar = self.process.levels(t, x_t)
        alpha = self.process.alpha
        return ((gamma_bar * self.scale) ** alpha + sigma_bar**alpha) ** (1.0 / alpha)

    def exact_data(self, x_t: Tensor, t: Tensor) -> Tensor:
        r"""The exact flow's end: :math:`s\, x_t / ((\barγ_t s)^α + \barσ_t^α)^{1/α}`."""
        return self.scale * x_t / self.total_scale(x_t, t)


class PointMassOracle(Predictor):
    r"""The exact denoiser of data that are one point μ: :math:`ε = (x_t - \barγ_t μ)/\barσ_t`.

    Arguments:
        process: The forward process.
        point: μ, of the shape of one sample.

    Example:
        >>> oracle = PointMassOracle(LevyProcess(1.2), torch.tensor([3.0, -1.0]))
        >>> oracle.x0(torch.randn(1, 2), torch.tensor(0.5)).round(decimals=3)
        tensor([[ 3., -1.]])
    """

    point: Tensor

    def __init__(self, process: LevyProcess, point: Tensor) -> None:
        super().__init__(process)
        self.register_buffer("point", torch.as_tensor(point))

    def forward(self, x_t: Tensor, t: Tensor, **cond: Any) -> Tensor:
        return eps_from_x0(self.process, x_t, t, self.point.to(x_t.dtype).expand_as(x_t))


class MixtureOracle(Predictor):
    r"""The exact denoiser of a mixture of isotropic Gaussians :math:`\sum_k w_k N(μ_k, s_k^2 I)`, at α = 2.

    At α = 2 the noise is N(0, 2I), so given component k, x_t is Gaussian with variance
    :math:`v_k = \barγ^2 s_k^2 + 2\barσ^2`, and

    .. math::  E[ε | x_t] = \sum_k p(k | x_t)\, \frac{2\barσ}{v_k} (x_t - \barγ μ_k).

    Arguments:
        process: The forward process, α = 2.
        means: μ_k, of shape (K, d).
        stds: s_k, of shape (K,).
        weights: w_k > 0, of shape (K,), normalised here.

    Example:
        >>> means, stds, weights = torch.tensor([[-1.0], [1.0]]), torch.full((2,), 0.1), torch.ones(2)
        >>> oracle = MixtureOracle(LevyProcess(2.0), means, stds, weights)
        >>> bool(oracle.x0(torch.tensor([[0.9]]), torch.tensor(0.1)) > 0.9)
        True
    """

    means: Tensor
    stds: Tensor
    weights: Tensor

    def __init__(self, process: LevyProcess, means: Tensor, stds: Tensor, weights: Tensor) -> None:
        if process.alpha != 2:
            raise ValueError(f"process.alpha must be 2 for a Gaussian mixture oracle, got {process.alpha}")
        if means.ndim != 2 or stds.shape != means.shape[:1] or weights.shape != means.shape[:1]:
            shapes = tuple(means.shape), tuple(stds.shape), tuple(weights.shape)
            raise ValueError(f"means, stds and weights must have shapes (K, d), (K,) and (K,), got {shapes}")
        if not bool((weights > 0).all() and (stds >= 0).all()):
            raise ValueError(f"weights must be above 0 and stds not below, got {weights} and {stds}")
        super().__init__(process)
        self.register_buffer("means", means)
        self.register_buffer("stds", stds)
        self.register_buffer("weights", weights / weights.sum())

    def forward(self, x_t: Tensor, t: Tensor, **cond: Any) -> Tensor:
        gamma_bar, sigma_bar = self.process.levels(t, x_t)  # (B, 1) or ()
        means, stds, weights = (b.to(x_t.dtype) for b in (self.means, self.stds, self.weights))
        var = (gamma_bar * stds).square() + 2.0 * sigma_bar.square()  # (B, K) or (K,)
        offset = x_t.unsqueeze(1) - gamma_bar.unsqueeze(-1) * means  # (B, K, d)
        logits = weights.log() - 0.5 * x_t.shape[1] * var.log() - 0.5 * offset.square().sum(-1) / var
        responsibility = torch.softmax(logits, dim=-1) * (2.0 * sigma_bar / var)
        return (responsibility.unsqueeze(-1) * offset).sum(1)
