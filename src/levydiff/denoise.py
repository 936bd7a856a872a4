r"""Denoisers: what predicts the noise ε in x_t, and how its three guises convert.

==========================  ==========================================================================================
ε → x_0                     :math:`x_0 = (x_t - \barσ_t ε)/\barγ_t`
ε → fractional score        :math:`s = -ε / (α \barσ_t^{α-1})`, the paper's equation for :math:`Δ^{(α-2)/2}∇p_t / p_t`
==========================  ==========================================================================================

Any function ``f(x, t, **cond)`` can be a backbone: t has shape (B,) and lies in [0, 1]. The *preconditioning*
decides what the backbone F sees and what its output means:

- :class:`PlainPreconditioning`, the paper's: :math:`\hat ε = F(x, t)`. A network with normalised or bounded
  features cannot then follow ε into the tail.
- :class:`StablePreconditioning`, ours: :math:`\hat ε = c_{skip} x + c_{out} F(\mathrm{squash}(c_{in} x), t)`. F ≡ 0 is
  already exact for α-stable data, at every α, and F only learns what differs from it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .checks import check_positive, check_shape
from .process import LevyProcess

Network = Callable[..., Tensor]


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


class Preconditioning(ABC):
    """How a backbone becomes a predictor of ε."""

    @abstractmethod
    def __call__(self, network: Network, process: LevyProcess, x: Tensor, t: Tensor) -> Tensor:
        """ε̂ of the shape of x, from a network that is a function of x alone."""

    @abstractmethod
    def scales(self, process: LevyProcess, x: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        """(c_in, c_out), shaped to multiply x: the scales of the backbone's input and output."""


@dataclass(frozen=True)
class PlainPreconditioning(Preconditioning):
    r"""The paper's: :math:`\hat ε = F(x, t)`.

    Example:
        >>> denoiser = Denoiser(lambda x, t: 2 * x, LevyProcess(1.7), PlainPreconditioning())
        >>> denoiser(torch.ones(1, 2), torch.tensor(0.5))
        tensor([[2., 2.]])
    """

    def __call__(self, network: Network, process: LevyProcess, x: Tensor, t: Tensor) -> Tensor:
        return network(x)

    def scales(self, process: LevyProcess, x: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        return x.new_ones(()), x.new_ones(())


@dataclass(frozen=True)
class StablePreconditioning(Preconditioning):
    r"""Linear in the far tail: :math:`\hat ε = c_{skip} x + c_{out} F(\mathrm{squash}(c_{in} x), t)`.

    With :math:`Q = (\barγ_t s)^α + \barσ_t^α`, the α-th power of the scale of x_t for data of scale s,

    .. math::
        c_{skip} = \barσ_t^{α-1}/Q, \quad c_{in} = Q^{-1/α}, \quad
        c_{out} = \left[(\barγ_t s)^{α^2} + (\barσ_t^{α-1} \barγ_t s)^α\right]^{1/α} / Q,

    :math:`c_{skip} x` is :math:`E[ε|x_t]` for data SαS(s), and c_out is the scale of what it leaves. At α = 2
    these are EDM's coefficients. ``squash`` grows like a logarithm, :math:`z \mapsto z\, \mathrm{asinh}(r)/r`,
    with r the root mean square of the sample for isotropic noise (so that it does not depend on the dimension) and
    :math:`r = |z_i|` for independent noise.

    Arguments:
        scale: s, a robust scale of the data: the median of \|x\|, not the standard deviation, which may not exist.

    Example:
        >>> c_in, c_out = StablePreconditioning(1.0).scales(LevyProcess(1.7), torch.zeros(1, 2), torch.tensor(0.5))
        >>> c_in.round(decimals=3)  # data SαS(1) stay SαS(1) on a scale-preserving schedule
        tensor(1.)
    """

    scale: float = 1.0

    def __post_init__(self) -> None:
        check_positive("scale", self.scale)

    @classmethod
    def for_data(cls, x: Tensor) -> StablePreconditioning:
        r"""With s the median of \|x_i\| over all entries of scaled data, which is right to 5 % for stable laws; but not
        below 1/2, which would be the width of one narrow mode, not the scale of the data.

        Example:
            >>> StablePreconditioning.for_data(torch.tensor([[0.1, -0.8], [0.9, 1e9]])).scale > 0.7
            True
        """
        return cls(max(float(x.abs().median()), 0.5))

    def __call__(self, network: Network, process: LevyProcess, x: Tensor, t: Tensor) -> Tensor:
        c_skip, c_in, c_out = self._coefficients(process, x, t)
        return c_skip * x + c_out * network(squash(c_in * x, process.isotropic))

    def scales(self, process: LevyProcess, x: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        return self._coefficients(process, x, t)[1:]

    def _coefficients(self, process: LevyProcess, x: Tensor, t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        gamma_bar, sigma_bar = process.levels(t, x)
        alpha, signal = process.alpha, gamma_bar * self.scale
        skip = sigma_bar ** (alpha - 1.0)
        q = signal**alpha + sigma_bar**alpha
        c_out = (signal ** (alpha * alpha) + (skip * signal) ** alpha) ** (1.0 / alpha) / q
        return skip / q, q ** (-1.0 / alpha), c_out


def radius(z: Tensor, isotropic: bool) -> Tensor:
    """The size of z that one A acts on: root mean square of each sample if isotropic, absolute value if not."""
    if not isotropic:
        return z.abs()
    norm: Tensor = torch.linalg.vector_norm(z.flatten(1), dim=1)  # unlike a root, it has a gradient at 0
    return (norm / math.sqrt(z[0].numel())).reshape(-1, *[1] * (z.ndim - 1))


def squash(z: Tensor, isotropic: bool) -> Tensor:
    """z·asinh(r)/r with r = :func:`radius`: the identity near 0, logarithmic in the tail, same direction."""
    r = radius(z, isotropic).clamp_min(torch.finfo(z.dtype).tiny ** 0.5)
    return z * (torch.asinh(r) / r)


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
        for tensor in (*self.parameters(), *self.buffers()):
            if tensor.is_floating_point():
                return tensor
        return torch.empty(0)


class Denoiser(Predictor):
    r"""A network made into a predictor of the noise: :math:`\hat ε(x_t, t)`.

    Arguments:
        backbone: Any callable ``f(x, t, **cond)`` that returns a tensor of the shape of x; t has shape (B,). Give a
            module, not a function around one, for its parameters and device to be seen; compile it, not the denoiser.
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
        times = t.to(dtype).expand(x_t.shape[0])

        def network(z: Tensor) -> Tensor:
            nonlocal v
            out = self.backbone(z.to(dtype), times, **cond).to(x_t.dtype)
            if self.learned_variance:
                check_shape("backbone's output", out, (x_t.shape[0], 2 * x_t.shape[1], *x_t.shape[2:]))
                out, v = out.chunk(2, dim=1)
            return check_shape("backbone's output", out, x_t.shape)

        return self.preconditioning(network, self.process, x_t, t), v
