r"""Preconditionings: what the backbone F sees, and how its output becomes ε̂.

- :class:`PlainPreconditioning`, the paper's: :math:`\hat ε = F(x, t)`. A network with normalised or bounded
  features cannot then follow ε into the tail.
- :class:`StablePreconditioning`, ours for points and tables: F ≡ 0 is already exact for α-stable data, at every α, and
  F only learns what differs from it.
- :class:`BoundedPreconditioning`, ours for images: F ≡ 0 is the best linear guess for data of one scale, whatever
  the size of the noise.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from .checks import check_positive
from .process import LevyProcess

Network = Callable[..., Tensor]


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
        >>> PlainPreconditioning()(lambda x: 2 * x, LevyProcess(1.7), torch.ones(1, 2), torch.tensor(0.5))
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
        object.__setattr__(self, "scale", check_positive("scale", self.scale))

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


@dataclass(frozen=True)
class BoundedPreconditioning(Preconditioning):
    r"""For data with light tails, such as images: what is far out is noise, and is taken away whole.

    .. math::
        \hat ε = c_{skip} x + c_{out} F(c_{in} x, t), \quad
        c_{skip} = \frac{n^2}{\barσ_t D}, \quad c_{in} = D^{-1/2}, \quad
        c_{out} = \frac{\barγ_t s\, n}{\barσ_t \sqrt D}, \quad D = (\barγ_t s)^2 + n^2,

    with n the size of the noise in the sample at hand, as far as the sample tells:
    :math:`n^2 = \max(2\barσ_t^2,\; m^2 - (2\barγ_t s)^2)`, m the :func:`radius` of x. Noise of an ordinary size has
    :math:`2\barσ_t^2` (all noise at α = 2), and while m is no larger than such noise and twice the data explain, these
    are EDM's coefficients. A sample that is larger owes the rest to a large A; then :math:`c_{skip} → 1/\barσ_t` and
    the denoised sample stays within the scale of the data. (Under stable preconditioning a share of any x is data:
    right for heavy-tailed data, but it leaves noise in images.)

    Arguments:
        scale: s, the root mean square of the data.

    Example:
        >>> process, far = LevyProcess(1.7), 1e4 * torch.randn(1, 3, 8, 8)
        >>> denoiser = lambda kind: kind(1.0)(torch.zeros_like, process, far, torch.tensor(0.5))
        >>> gamma_bar, sigma_bar = process.levels(torch.tensor(0.5), far)
        >>> [float(((far - sigma_bar * denoiser(kind)) / gamma_bar).abs().mean()) < 0.01
        ...  for kind in (StablePreconditioning, BoundedPreconditioning)]
        [False, True]
    """

    scale: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", check_positive("scale", self.scale))

    @classmethod
    def for_data(cls, x: Tensor) -> BoundedPreconditioning:
        """With s the root mean square of all entries of the data.

        Example:
            >>> BoundedPreconditioning.for_data(torch.tensor([[3.0, -3.0], [3.0, 3.0]]))
            BoundedPreconditioning(scale=3.0)
        """
        return cls(float(x.float().square().mean().sqrt()))

    def __call__(self, network: Network, process: LevyProcess, x: Tensor, t: Tensor) -> Tensor:
        c_skip, c_in, c_out = self._coefficients(process, x, t)
        return c_skip * x + c_out * network(c_in * x)

    def scales(self, process: LevyProcess, x: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        return self._coefficients(process, x, t)[1:]

    def _coefficients(self, process: LevyProcess, x: Tensor, t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        gamma_bar, sigma_bar = process.levels(t, x)
        signal = gamma_bar * self.scale
        noise = torch.maximum(2.0 * sigma_bar.square(), radius(x, process.isotropic).square() - 4.0 * signal.square())
        total = signal.square() + noise
        return noise / (sigma_bar * total), total.rsqrt(), signal * (noise / total).sqrt() / sigma_bar


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
