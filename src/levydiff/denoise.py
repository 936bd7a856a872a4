r"""Denoisers: what predicts the noise ε in x_t, and how its three guises convert.

==========================  ==========================================================================================
ε → x_0                     :math:`x_0 = (x_t - \barσ_t ε)/\barγ_t`
ε → fractional score        :math:`s = -ε / (α \barσ_t^{α-1})`, the paper's equation for :math:`Δ^{(α-2)/2}∇p_t / p_t`
==========================  ==========================================================================================

Any function ``f(x, t, **cond)`` can be a backbone: t has shape (B,) and lies in [0, 1]. A preconditioning decides what
it sees and what its output means: see :mod:`levydiff.precondition`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from .checks import check_shape
from .precondition import Network, PlainPreconditioning, Preconditioning, StablePreconditioning
from .process import LevyProcess

__all__ = [
    "Denoiser",
    "PlainPreconditioning",
    "Predictor",
    "StablePreconditioning",
    "eps_from_score",
    "eps_from_x0",
    "score_from_eps",
    "x0_from_eps",
]


def x0_from_eps(process: LevyProcess, x_t: Tensor, t: Tensor, eps: Tensor) -> Tensor:
    r""":math:`x_0 = (x_t - \barσ_t ε)/\barγ_t`, of the shape of x_t, (B, …); t of shape (B,) or ().

    Example:
        >>> process, t = LevyProcess(1.7), torch.tensor(0.5)
        >>> x_t, eps, _ = process.perturb(torch.ones(1, 2), t)
        >>> x0_from_eps(process, x_t, t, eps).round(decimals=3)
        tensor([[1., 1.]])
    """
    gamma_bar, sigma_bar = process.levels(t, x_t)
    return (x_t - sigma_bar * eps) / gamma_bar


def eps_from_x0(process: LevyProcess, x_t: Tensor, t: Tensor, x_0: Tensor) -> Tensor:
    r""":math:`ε = (x_t - \barγ_t x_0)/\barσ_t`, the inverse of :func:`x0_from_eps`.

    Example:
        >>> process, t = LevyProcess(1.7), torch.tensor(0.5)
        >>> x_t, eps, _ = process.perturb(torch.ones(1, 2), t)
        >>> torch.allclose(eps_from_x0(process, x_t, t, torch.ones(1, 2)), eps, rtol=1e-4)
        True
    """
    gamma_bar, sigma_bar = process.levels(t, x_t)
    return (x_t - gamma_bar * x_0) / sigma_bar


def score_from_eps(process: LevyProcess, t: Tensor, eps: Tensor) -> Tensor:
    r"""The fractional score :math:`s = -ε / (α \barσ_t^{α-1})`; at α = 2 that of :math:`N(\barγ_t x_0, 2\barσ_t^2)`.

    Example:
        >>> process = LevyProcess(2.0)
        >>> t = torch.tensor(0.5)
        >>> score = score_from_eps(process, t, torch.ones(1, 2))
        >>> torch.allclose(score, -1 / (2 * process.schedule.sigma_bar(t)) * torch.ones(1, 2))
        True
    """
    _, sigma_bar = process.levels(t, eps)
    return -eps * sigma_bar ** (1.0 - process.alpha) / process.alpha


def eps_from_score(process: LevyProcess, t: Tensor, score: Tensor) -> Tensor:
    r""":math:`ε = -α \barσ_t^{α-1} s`, the inverse of :func:`score_from_eps`.

    Example:
        >>> process, t = LevyProcess(1.5), torch.tensor(0.5)
        >>> eps_from_score(process, t, score_from_eps(process, t, torch.ones(1, 2))).round(decimals=3)
        tensor([[1., 1.]])
    """
    _, sigma_bar = process.levels(t, score)
    return -score * sigma_bar ** (process.alpha - 1.0) * process.alpha


class Predictor(nn.Module, ABC):
    """Anything that predicts ε from (x_t, t): a :class:`Denoiser`, or an exact oracle (:mod:`levydiff.oracle`).

    Example:
        >>> class Nothing(Predictor):
        ...     def forward(self, x_t, t, **cond):
        ...         return torch.zeros_like(x_t)
        >>> Nothing(LevyProcess(1.7)).score(torch.ones(1, 2), torch.tensor(0.5))
        tensor([[-0., -0.]])
    """

    #: Whether ``eps_and_variance`` gives a variance: see :class:`Denoiser`.
    learned_variance: bool = False

    def __init__(self, process: LevyProcess) -> None:
        super().__init__()
        self.process = process

    @abstractmethod
    def forward(self, x_t: Tensor, t: Tensor, **cond: Any) -> Tensor:
        """ε̂ of the shape of ``x_t``, for times ``t`` of shape (B,) or ()."""

    def eps_and_variance(self, x_t: Tensor, t: Tensor, **cond: Any) -> tuple[Tensor, Tensor | None]:
        """ε̂, and the variance head's output v if there is one."""
        return self(x_t, t, **cond), None

    def scales(self, x_t: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        """(c_in, c_out) of the preconditioning; ones where there is none."""
        return x_t.new_ones(()), x_t.new_ones(())

    def x0(self, x_t: Tensor, t: Tensor, **cond: Any) -> Tensor:
        r"""The denoised sample :math:`\hat x_0 = (x_t - \barσ_t \hat ε)/\barγ_t`."""
        return x0_from_eps(self.process, x_t, t, self(x_t, t, **cond))

    def score(self, x_t: Tensor, t: Tensor, **cond: Any) -> Tensor:
        r"""The fractional score :math:`-\hat ε/(α \barσ_t^{α-1})`."""
        return score_from_eps(self.process, t, self(x_t, t, **cond))

    @property
    def device(self) -> torch.device:
        """Where the parameters (or buffers) live."""
        return self._anchor().device

    @property
    def dtype(self) -> torch.dtype:
        """What the parameters (or buffers) are made of."""
        return self._anchor().dtype

    def _anchor(self) -> Tensor:
        for tensor in chain(self.parameters(), self.buffers()):  # lazy: every call of a denoiser asks
            if tensor.is_floating_point():
                return tensor
        return torch.empty(0)


class Denoiser(Predictor):
    r"""A network made into a predictor of the noise: :math:`\hat ε(x_t, t)`.

    Arguments:
        backbone: Any callable ``f(x, t, **cond)`` that returns a tensor of the shape of x; t has shape (B,), float32 or
            finer. Give a module, not a function around one, for its parameters and device to be seen; compile it
            (``backbone.compile()``), not the denoiser.
        process: The forward process, which carries α and the schedule.
        preconditioning: What the backbone sees and what its output means; the paper's by default.
        learned_variance: The backbone returns twice the channels (dimension 1); the second half is v, by which
            the reverse variance is :math:`\tilde Σ^{1-v} (σ_t^2 A_t)^v` (v = 0: the posterior's own).
        dtype: The precision the backbone works in; that of its parameters, or torch's default if it shows none.

    Example:
        >>> process = LevyProcess(1.7)
        >>> denoiser = Denoiser(lambda x, t: torch.zeros_like(x), process, StablePreconditioning(scale=1.0))
        >>> x_t, t = torch.randn(5, 2), torch.full((5,), 0.5)
        >>> eps = denoiser(x_t, t)
        >>> torch.allclose(eps_from_x0(process, x_t, t, denoiser.x0(x_t, t)), eps, atol=1e-6)
        True
    """

    def __init__(
        self,
        backbone: Network,
        process: LevyProcess,
        preconditioning: Preconditioning | None = None,
        learned_variance: bool = False,
        dtype: torch.dtype | None = None,
    ) -> None:
        if not isinstance(process, LevyProcess):
            raise TypeError(f"process must be a LevyProcess, got {type(process).__name__}")
        super().__init__(process)
        self.backbone = backbone
        self._dtype = dtype
        self.preconditioning = preconditioning or PlainPreconditioning()
        self.learned_variance = learned_variance

    def forward(self, x_t: Tensor, t: Tensor, **cond: Any) -> Tensor:
        return self.eps_and_variance(x_t, t, **cond)[0]

    def scales(self, x_t: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        return self.preconditioning.scales(self.process, x_t, t)

    @property
    def dtype(self) -> torch.dtype:
        return self._dtype or super().dtype

    def eps_and_variance(self, x_t: Tensor, t: Tensor, **cond: Any) -> tuple[Tensor, Tensor | None]:
        v: Tensor | None = None
        dtype = self.dtype  # the backbone works in its own precision, the preconditioning in that of x_t
        # Times are never rounded to half precision, which cannot tell a thousand of them apart.
        times = t.to(torch.promote_types(dtype, torch.float32)).expand(x_t.shape[0])

        def network(z: Tensor) -> Tensor:
            nonlocal v
            out = self.backbone(z.to(dtype), times, **cond).to(x_t.dtype)
            if self.learned_variance:
                check_shape("backbone's output", out, (x_t.shape[0], 2 * x_t.shape[1], *x_t.shape[2:]))
                out, v = out.chunk(2, dim=1)
            return check_shape("backbone's output", out, x_t.shape)

        return self.preconditioning(network, self.process, x_t, t), v
