r"""α-stable laws: exact draws, and ``torch.distributions`` classes around them.

One scale convention throughout: :math:`\mathrm{SαS}(σ)` in R^d has the characteristic function

.. math::
    E\,e^{i u·X} = \exp(-σ^α ‖u‖^α) \text{ (isotropic)} \qquad \exp(-σ^α \textstyle\sum_i |u_i|^α) \text{
    (independent)}.

At α = 2 this is :math:`N(0, 2σ^2 I)` (mind the 2), at α = 1 it is Cauchy. Below 2 there is no variance, at 1 and below
no mean: P(|X| > r) decays as :math:`r^{-α}`.

Such a law is a Gaussian with a random variance, :math:`X = σ\sqrt{A}\,G`, where A is positive (α/2)-stable with

.. math::  E\,e^{-sA} = e^{-(2s)^{α/2}}.

One A for the whole vector gives the isotropic law, one A for each coordinate the independent one. (The paper's scale
:math:`c_A = \cos^{2/α}(πα/4)` lacks a factor 2, which its own remark that A = 2 at α = 2 needs.)
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, ClassVar

import torch
from torch import Size, Tensor
from torch.distributions import Distribution, constraints
from torch.distributions.utils import broadcast_all

from .checks import check_alpha
from .density import symmetric_stable_log_density
from .rng import Generator, SampleStreams, device_for, normal, uniform_pair

_CHUNK = 1 << 16


_watched: ContextVar[list[float] | None] = ContextVar("watched", default=None)


@contextmanager
def watch_draws() -> Iterator[list[float]]:
    """Collect the largest A of every draw made inside the ``with`` block, to tell what noise a failure met.

    Example:
        >>> with watch_draws() as largest:
        ...     a = positive_stable(1.5, (10,))
        >>> largest == [float(a.max())]
        True
    """
    seen: list[float] = []
    token = _watched.set(seen)
    try:
        yield seen
    finally:
        _watched.reset(token)


def positive_stable(
    alpha: float,
    shape: Sequence[int],
    generator: Generator = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Tensor:
    r"""Exact draws of A with :math:`E e^{-sA} = e^{-(2s)^{α/2}}`, by Kanter's formula.

    With a = α/2, U uniform on (0, π), E exponential and b = (1-a)/a,

    .. math::  A = 2 \, \frac{\sin aU}{\sin U} \left( \frac{\sin((1-a)U)}{E \sin U} \right)^b.

    A reaches 1e12 and more at small α; a value beyond the dtype's range is returned as its largest (smallest) number,
    so that no draw is 0, infinite or NaN.

    Arguments:
        alpha: The index of the stable law that A is the variance of, in (0, 2].
        shape: The shape of the result.
        generator: The source of randomness.
        dtype: float32 or float64; torch's default otherwise.
        device: Where to draw.

    Example:
        >>> a = positive_stable(1.7, (100_000,), torch.Generator().manual_seed(0))
        >>> round(float((-a).exp().mean()), 2), round(math.exp(-(2**0.85)), 2)
        (0.16, 0.16)
    """
    alpha = check_alpha(alpha)
    dtype = dtype or torch.get_default_dtype()
    if alpha == 2.0:
        return torch.full(tuple(shape), 2.0, dtype=dtype, device=device_for(generator, device))
    if dtype in (torch.float16, torch.bfloat16):
        draws = positive_stable(alpha, shape, generator, torch.float32, device)
        return draws.clamp_(torch.finfo(dtype).tiny, torch.finfo(dtype).max).to(dtype)
    size = math.prod(shape)
    if isinstance(generator, SampleStreams) or size <= _CHUNK:
        out = _kanter(alpha, *uniform_pair(shape, generator, dtype, device))
    else:  # large draws go in pieces that stay in the processor's cache
        out = torch.empty(size, dtype=dtype, device=device_for(generator, device))
        for piece in out.split(_CHUNK):
            _kanter(alpha, *uniform_pair(piece.shape, generator, dtype, piece.device), out=piece)
        out = out.reshape(tuple(shape))
    if (seen := _watched.get()) is not None:
        seen.append(float(out.max()))
    return out


def _kanter(alpha: float, v: Tensor, q: Tensor, out: Tensor | None = None) -> Tensor:
    """Kanter's formula for U = π(1 - v) and E = -log(1 - q); overwrites its arguments.

    The heavy tail sits at U near π and E near 0, which is v and q near 0, where they have their finest resolution.
    """
    a = alpha / 2.0
    rest = 1.0 - v
    sin_u = torch.minimum(v, rest).mul_(math.pi).sin_()  # from the nearer end, which keeps its digits at both
    ratio = torch.sin(rest * (math.pi * a)).div_(sin_u)
    minus_e = q.neg_().log1p_()
    power = torch.sin(rest.mul_(-math.pi * (1.0 - a))).div_(minus_e.mul_(sin_u))
    power = power.log_().mul_((1.0 - a) / a).exp_()
    info = torch.finfo(v.dtype)
    return torch.mul(power, ratio, out=out).mul_(2.0).clamp_(info.tiny, info.max)


class _StabilityIndex(constraints.Constraint):
    """The half-open interval (0, 2]."""

    def check(self, value: Tensor) -> Tensor:
        return (value > 0) & (value <= 2)


def _index(alpha: float | Tensor) -> Tensor:
    """α as a scalar tensor, which may carry a gradient."""
    index = torch.as_tensor(alpha)
    index = index if index.is_floating_point() else index.to(torch.get_default_dtype())
    if index.ndim != 0:
        raise ValueError(f"alpha must be one number, got shape {tuple(index.shape)}")
    check_alpha(float(index.detach()))
    return index


def _check_scale(scale: Tensor) -> Tensor:
    """Not left to torch's ``validate_args``, which other libraries switch off globally."""
    if not bool((scale.detach() > 0).all()):
        raise ValueError(f"scale must be above 0, got {scale.detach().min().item()}")
    return scale


class PositiveStable(Distribution):
    r"""The law of A, the random variance of a symmetric α-stable law: :math:`E e^{-sA} = e^{-(2s)^{α/2}}`.

    Mean and variance are infinite, but at α = 2, where A = 2. The density has no closed form and ``log_prob`` raises
    ``NotImplementedError``.

    Arguments:
        alpha: The index α in (0, 2], one number.

    Example:
        >>> PositiveStable(2.0).sample((3,))
        tensor([2., 2., 2.])
        >>> PositiveStable(1.5).mean
        tensor(inf)
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {"alpha": _StabilityIndex()}
    support = constraints.positive

    def __init__(self, alpha: float | Tensor, validate_args: bool | None = None) -> None:
        self.alpha = _index(alpha)
        super().__init__(validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> PositiveStable:
        new: PositiveStable = self._get_checked_instance(PositiveStable, _instance)  # type: ignore[no-untyped-call]
        new.alpha = self.alpha
        super(PositiveStable, new).__init__(Size(batch_shape), validate_args=False)
        return new

    @property
    def mean(self) -> Tensor:
        return self.alpha.new_full(self.batch_shape, 2.0 if self.alpha == 2 else math.inf)

    @property
    def variance(self) -> Tensor:
        return self.alpha.new_full(self.batch_shape, 0.0 if self.alpha == 2 else math.inf)

    def sample(self, sample_shape: Sequence[int] = (), generator: Generator = None) -> Tensor:
        """Draws of shape ``sample_shape + batch_shape``."""
        shape = self._extended_shape(Size(sample_shape))
        return positive_stable(float(self.alpha.detach()), shape, generator, self.alpha.dtype, self.alpha.device)

    def log_prob(self, value: Tensor) -> Tensor:
        raise NotImplementedError("the density of PositiveStable has no closed form; its Laplace transform has")


class _SymmetricStable(Distribution):
    """What the two symmetric laws share: parameters, moments and the Gaussian scale mixture."""

    support: constraints.Constraint
    has_rsample = True
    alpha: Tensor
    loc: Tensor
    scale: Tensor

    @property
    def mean(self) -> Tensor:
        """``loc``; NaN for α ≤ 1, where there is none."""
        return self.loc if self.alpha > 1 else torch.full_like(self.loc, math.nan)

    @property
    def variance(self) -> Tensor:
        """Of each coordinate: 2·scale² at α = 2, infinite below, NaN for α ≤ 1, where there is no mean."""
        if self.alpha == 2:
            return 2.0 * self._coordinate_scale().square().expand_as(self.loc)
        return torch.full_like(self.loc, math.inf if self.alpha > 1 else math.nan)

    def _coordinate_scale(self) -> Tensor:
        raise NotImplementedError

    def sample(self, sample_shape: Sequence[int] = (), generator: Generator = None) -> Tensor:
        """Draws of shape ``sample_shape + batch_shape + event_shape``, without gradient."""
        with torch.no_grad():
            return self.rsample(sample_shape, generator)

    def rsample(self, sample_shape: Sequence[int] = (), generator: Generator = None) -> Tensor:
        r"""Draws :math:`\mathrm{loc} + \mathrm{scale} \sqrt{A} G`, differentiable in ``loc`` and ``scale``."""
        shape = self._extended_shape(Size(sample_shape))
        a_shape = shape[: len(shape) - len(self.event_shape)] + (1,) * len(self.event_shape)
        dtype, device = self.loc.dtype, self.loc.device
        a = positive_stable(float(self.alpha.detach()), a_shape, generator, dtype, device)
        return self.loc + self._coordinate_scale() * a.sqrt() * normal(shape, generator, dtype, device)


class IsotropicStable(_SymmetricStable):
    r"""Rotation-invariant SαS in R^d: characteristic function :math:`\exp(i u·\mathrm{loc} - \mathrm{scale}^α ‖u‖^α)`.

    ``log_prob`` is exact for d = 1 (by quadrature), for α = 1 (the multivariate Cauchy law) and for α = 2 (Gaussian);
    elsewhere it raises ``NotImplementedError``.

    Arguments:
        alpha: The index α in (0, 2], one number.
        loc: The centre, of shape (…, d).
        scale: The scale > 0, of shape (…).

    Example:
        >>> law = IsotropicStable(1.7, torch.zeros(2), 0.05)
        >>> law.sample((3,), torch.Generator().manual_seed(0)).shape
        torch.Size([3, 2])
        >>> law.mean, law.variance
        (tensor([0., 0.]), tensor([inf, inf]))
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {
        "alpha": _StabilityIndex(),
        "loc": constraints.real_vector,
        "scale": constraints.positive,
    }
    support = constraints.real_vector

    def __init__(
        self, alpha: float | Tensor, loc: Tensor, scale: float | Tensor = 1.0, validate_args: bool | None = None
    ) -> None:
        if loc.ndim < 1:
            raise ValueError(f"loc must have shape (..., d), got {tuple(loc.shape)}")
        self.alpha = _index(alpha)
        scale = torch.as_tensor(scale, dtype=loc.dtype, device=loc.device)
        batch_shape = torch.broadcast_shapes(loc.shape[:-1], scale.shape)
        self.loc = loc.expand(*batch_shape, loc.shape[-1])
        self.scale = _check_scale(scale.expand(batch_shape))
        super().__init__(batch_shape, loc.shape[-1:], validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> IsotropicStable:
        new: IsotropicStable = self._get_checked_instance(IsotropicStable, _instance)  # type: ignore[no-untyped-call]
        new.alpha = self.alpha
        new.loc = self.loc.expand(*batch_shape, *self.event_shape)
        new.scale = self.scale.expand(*batch_shape)
        super(IsotropicStable, new).__init__(Size(batch_shape), self.event_shape, validate_args=False)
        return new

    def _coordinate_scale(self) -> Tensor:
        return self.scale.unsqueeze(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        z = (value - self.loc) / self._coordinate_scale()
        d = self.event_shape[0]
        if self.alpha == 2:
            log_density = -z.square().sum(-1) / 4.0 - 0.5 * d * math.log(4.0 * math.pi)
        elif self.alpha == 1:
            constant = math.lgamma((d + 1) / 2) - 0.5 * (d + 1) * math.log(math.pi)
            log_density = constant - 0.5 * (d + 1) * torch.log1p(z.square().sum(-1))
        elif d == 1:
            log_density = symmetric_stable_log_density(z.squeeze(-1), self.alpha)
        else:
            raise NotImplementedError(
                f"no density of the isotropic law in {d} dimensions at alpha = {float(self.alpha.detach()):g}: "
                "d = 1, alpha = 1 and alpha = 2 have one"
            )
        return log_density - d * self.scale.log()


class IndependentStable(_SymmetricStable):
    r"""SαS in each coordinate, all independent: characteristic function :math:`\exp(i u·loc - \sum_i |scale_i u_i|^α)`.

    Every coordinate is an event of its own, as in ``torch.distributions.Normal``; ``log_prob`` is by quadrature,
    relative error below 1e-9 for α ≥ 0.3 (but 1e-5 within 1e-6 of α = 1, where the Cauchy density stands in),
    differentiable in all parameters, α included.

    Arguments:
        alpha: The index α in (0, 2], one number.
        loc: The centre of each coordinate, of any shape.
        scale: The scale > 0 of each coordinate, of any shape.

    Example:
        >>> cauchy = IndependentStable(1.0, torch.zeros(()), 1.0)
        >>> cauchy.log_prob(torch.tensor(1.0)).exp() * 2 * torch.pi
        tensor(1.0000)
        >>> IndependentStable(1.5, torch.zeros(4), 2.0).rsample((5,)).shape
        torch.Size([5, 4])
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {
        "alpha": _StabilityIndex(),
        "loc": constraints.real,
        "scale": constraints.positive,
    }
    support = constraints.real

    def __init__(
        self,
        alpha: float | Tensor,
        loc: float | Tensor = 0.0,
        scale: float | Tensor = 1.0,
        validate_args: bool | None = None,
    ) -> None:
        self.alpha = _index(alpha)
        self.loc, self.scale = broadcast_all(loc, scale)
        _check_scale(self.scale)
        super().__init__(self.loc.shape, validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> IndependentStable:
        new: IndependentStable = self._get_checked_instance(IndependentStable, _instance)  # type: ignore[no-untyped-call]
        new.alpha = self.alpha
        new.loc, new.scale = self.loc.expand(*batch_shape), self.scale.expand(*batch_shape)
        super(IndependentStable, new).__init__(Size(batch_shape), validate_args=False)
        return new

    def _coordinate_scale(self) -> Tensor:
        return self.scale

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return symmetric_stable_log_density((value - self.loc) / self.scale, self.alpha) - self.scale.log()
