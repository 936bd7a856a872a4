r"""How much signal and how much noise at time t: :math:`X_t = \barγ_t X_0 + \barσ_t \bar ε_t` in law, t in [0, 1].

A schedule is a function of continuous time. A chain is that function on a grid :math:`0 = t_0 < … < t_T`, so one
network can be sampled in any number of steps. Between two times s < t the process moves as

.. math::
    X_t = γ X_s + σ ε, \qquad γ = \barγ_t / \barγ_s, \qquad σ^α = \barσ_t^α - γ^α \barσ_s^α.

Every schedule gives its *signal* :math:`\barγ_t^α` and its *noise* :math:`\barσ_t^α`, each without cancellation:

==========================  ===========================================  ==============================
:class:`CosineSchedule`     scale preserving: signal + noise = 1         the paper's
:class:`LinearSchedule`     scale preserving, rate β(t) linear in t      DDPM's
:class:`ExplodingSchedule`  scale exploding: signal = 1                  EDM's
==========================  ===========================================  ==============================

α enters as an exponent only. :class:`~levydiff.process.LevyProcess` hands its own α to its schedule; alone, a schedule
is given one: ``CosineSchedule(alpha=1.7)``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from .checks import check_alpha, check_count, check_grid, check_positive

S = TypeVar("S", bound="Schedule")

_LEAST_SIGNAL = 1e-12


class Step(NamedTuple):
    """The numbers of one step i of a chain, from time t_i to the ``previous`` t_{i-1}."""

    t: float
    gamma: float
    sigma: float
    gamma_bar: float
    sigma_bar: float
    gamma_bar_previous: float
    sigma_bar_previous: float


@dataclass(frozen=True)
class Chain:
    """A schedule on a grid: float64 tensors of shape (T + 1,), indexed as in the paper (γ_0 = 1, σ_0 = 0)."""

    times: Tensor
    gamma_bar: Tensor
    sigma_bar: Tensor
    gamma: Tensor
    sigma: Tensor

    @property
    def steps(self) -> int:
        """T, the number of steps."""
        return len(self.times) - 1

    def step(self, i: int) -> Step:
        """The numbers of step i in 1 … T."""
        now = (self.times, self.gamma, self.sigma, self.gamma_bar, self.sigma_bar)
        before = (self.gamma_bar, self.sigma_bar)
        return Step(*(float(x[i]) for x in now), *(float(x[i - 1]) for x in before))


@dataclass(frozen=True, kw_only=True)
class Schedule(ABC):
    r"""The base of all schedules: a subclass gives ``signal``, ``noise`` and ``time_at``.

    Arguments:
        alpha: The stability index; ``None`` until a process gives it.
        t_min: The smallest time above 0 that grids and training visit.
        t_max: The largest; there the data must be all but gone.

    Example:
        >>> schedule = LinearSchedule(alpha=1.7)
        >>> chain = schedule.chain(schedule.grid(10))
        >>> bool(torch.isclose(chain.gamma_bar[-1], chain.gamma.prod()))
        True
    """

    alpha: float | None = None
    t_min: float = 1e-6
    t_max: float = 1.0

    def __post_init__(self) -> None:
        if self.alpha is not None:
            check_alpha(self.alpha)
        if not 0 < self.t_min < self.t_max <= 1:
            raise ValueError(f"times must satisfy 0 < t_min < t_max <= 1, got {self.t_min} and {self.t_max}")

    def with_alpha(self: S, alpha: float) -> S:
        """The same schedule for the index α; an error if it was made for another."""
        if self.alpha is not None and self.alpha != alpha:
            raise ValueError(f"alpha must be the schedule's own {self.alpha}, got {alpha}")
        return replace(self, alpha=alpha)

    @property
    def index(self) -> float:
        """α, or an error that says how to give it."""
        if self.alpha is None:
            raise ValueError(
                f"alpha must be given, as in {type(self).__name__}(alpha=1.7) or by a LevyProcess, got None"
            )
        return self.alpha

    @abstractmethod
    def signal(self, t: Tensor) -> Tensor:
        r""":math:`\barγ_t^α`, of the shape of ``t``."""

    @abstractmethod
    def noise(self, t: Tensor) -> Tensor:
        r""":math:`\barσ_t^α`, of the shape of ``t``."""

    @abstractmethod
    def time_at(self, log_ratio: Tensor) -> Tensor:
        r"""The time at which :math:`\log(\barγ_t/\barσ_t)` has the given value."""

    def gamma_bar(self, t: Tensor) -> Tensor:
        r""":math:`\barγ_t`, the factor of the data in :math:`X_t`."""
        return self.signal(t) ** (1.0 / self.index)

    def sigma_bar(self, t: Tensor) -> Tensor:
        r""":math:`\barσ_t`, the scale of the noise in :math:`X_t`."""
        return self.noise(t) ** (1.0 / self.index)

    def log_ratio(self, t: Tensor) -> Tensor:
        r""":math:`\log(\barγ_t/\barσ_t)`, half the log signal-to-noise ratio of the Gaussian case."""
        return (self.signal(t).log() - self.noise(t).log()) / self.index

    def transition(self, s: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        r"""(γ, σ) of :math:`X_t = γ X_s + σ ε` for s ≤ t: :math:`γ = \barγ_t/\barγ_s`,
        :math:`σ^α = \barσ_t^α - γ^α\barσ_s^α`.

        Example:
            >>> schedule = CosineSchedule(alpha=1.7)
            >>> s, u, t = torch.tensor([0.2, 0.5, 0.9], dtype=torch.float64)
            >>> (g1, s1), (g2, s2), (g, sigma) = (schedule.transition(*p) for p in ((s, u), (u, t), (s, t)))
            >>> bool(torch.isclose(g, g1 * g2)), bool(torch.isclose(sigma**1.7, (g2 * s1) ** 1.7 + s2**1.7))
            (True, True)
        """
        if bool((torch.as_tensor(t) < torch.as_tensor(s)).any()):
            raise ValueError(f"t must not be below s, got s = {s} and t = {t}")
        ratio = self.signal(t) / self.signal(s)
        noise = self.noise(t) - ratio * self.noise(s)
        return ratio ** (1.0 / self.index), noise.clamp_min(0.0) ** (1.0 / self.index)

    def grid(self, steps: int, spacing: Spacing | None = None) -> Tensor:
        """Times :math:`0 = t_0 < … < t_T = t_{max}`, float64 of shape (steps + 1,).

        Arguments:
            steps: T, at least 1.
            spacing: :func:`linear_time` (the default), :func:`quadratic_time`, :func:`log_ratio_spacing`, or any
                function of (schedule, steps) that returns the T times above 0.

        Example:
            >>> CosineSchedule(alpha=1.7, t_max=0.8).grid(4)
            tensor([0.0000, 0.2000, 0.4000, 0.6000, 0.8000], dtype=torch.float64)
        """
        steps = check_count("steps", steps)
        times = (spacing or linear_time)(self, steps)
        return check_grid(torch.cat([times.new_zeros(1), times]))

    def chain(self, grid: Tensor) -> Chain:
        """This schedule on a grid ``0 = t_0 < … < t_T``, with its transitions."""
        grid = check_grid(grid)
        left = float(self.signal(grid[-1]))
        if not left > _LEAST_SIGNAL:  # the first step back divides by it
            raise ValueError(
                f"grid must end where a signal of at least {_LEAST_SIGNAL} is left, "
                f"got {left:.1g} at t = {float(grid[-1])}"
            )
        gamma, sigma = self.transition(grid[:-1], grid[1:])
        one, zero = grid.new_ones(1), grid.new_zeros(1)
        # The noise at t = 0 is 0 by definition; a power of a rounding error would not be.
        sigma_bar = torch.cat([zero, self.sigma_bar(grid[1:])])
        gamma, sigma = torch.cat([one, gamma]), torch.cat([zero, sigma])
        return Chain(grid, self.gamma_bar(grid), sigma_bar, gamma, sigma)


Spacing = Callable[[Schedule, int], Tensor]


def _even(low: float, high: float, steps: int) -> Tensor:
    """``steps`` evenly spaced numbers that end at ``high``; the first is ``low`` if there are two or more."""
    if steps == 1:
        return torch.tensor([high], dtype=torch.float64)
    return torch.linspace(low, high, steps, dtype=torch.float64)


def linear_time(schedule: Schedule, steps: int) -> Tensor:
    r"""Evenly spaced in t: the paper's grid, :math:`t_i = t_{max}\, i/T`, the first time not below ``t_min``.

    Example:
        >>> linear_time(LinearSchedule(alpha=1.7), 4)
        tensor([0.2500, 0.5000, 0.7500, 1.0000], dtype=torch.float64)
    """
    return _even(max(schedule.t_min, schedule.t_max / steps), schedule.t_max, steps)


def quadratic_time(schedule: Schedule, steps: int) -> Tensor:
    r"""Evenly spaced in √t, denser near the data: :math:`t_i = t_{max} (i/T)^2`, but not below ``t_min``.

    Example:
        >>> quadratic_time(LinearSchedule(alpha=1.7), 4)
        tensor([0.0625, 0.2500, 0.5625, 1.0000], dtype=torch.float64)
    """
    low = max(math.sqrt(schedule.t_min), math.sqrt(schedule.t_max) / steps)
    return _even(low, math.sqrt(schedule.t_max), steps).square().clamp(max=schedule.t_max)


def log_ratio_spacing(schedule: Schedule, steps: int, smallest_noise: float = 0.002) -> Tensor:
    r"""Evenly spaced in :math:`\log(\barγ/\barσ)`, down to :math:`\barσ/\barγ` = ``smallest_noise``.

    Example:
        >>> schedule = ExplodingSchedule(alpha=1.7)  # where it is evenly spaced in log σ̄
        >>> schedule.sigma_bar(log_ratio_spacing(schedule, 3)).log().diff()
        tensor([5.2983, 5.2983], dtype=torch.float64)
    """
    t_min, t_max = torch.tensor([schedule.t_min, schedule.t_max], dtype=torch.float64)
    high = min(-math.log(check_positive("smallest_noise", smallest_noise)), float(schedule.log_ratio(t_min)))
    times = schedule.time_at(_even(high, float(schedule.log_ratio(t_max)), steps))
    times[-1] = t_max  # exactly, whatever the round trip through the logarithm did
    return times


@dataclass(frozen=True, kw_only=True)
class CosineSchedule(Schedule):
    r"""Scale preserving, the paper's: :math:`\barγ_t^α = \cos^2 u_t / \cos^2 u_0`,
    :math:`u_t = \frac{t + c}{1 + c} \frac{π}{2}`.

    The noise :math:`1 - \barγ_t^α = \sin(u_t - u_0) \sin(u_t + u_0) / \cos^2 u_0` is computed in this form. At t =
    1 no signal is left; the default ``t_max`` is that of LIM. (The published DLPM code ends at (T-1)/T instead, so
    that its last noise level changes with the number of steps.)

    Arguments:
        offset: c = 0.008, which keeps the first steps from being too small (Nichol & Dhariwal, 2021).

    Example:
        >>> schedule = CosineSchedule(alpha=2.0)
        >>> t = torch.tensor([0.0, 0.5])
        >>> schedule.gamma_bar(t), (schedule.gamma_bar(t) ** 2 + schedule.sigma_bar(t) ** 2)
        (tensor([1.0000, 0.7027]), tensor([1.0000, 1.0000]))
    """

    offset: float = 0.008
    t_max: float = 0.9946

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("offset", self.offset)

    @property
    def _rate(self) -> float:
        return math.pi / 2 / (1.0 + self.offset)

    def signal(self, t: Tensor) -> Tensor:
        u = (t + self.offset) * self._rate
        return (torch.cos(u) / math.cos(self.offset * self._rate)).square()

    def noise(self, t: Tensor) -> Tensor:
        first, second = torch.sin(t * self._rate), torch.sin((t + 2 * self.offset) * self._rate)
        return first * second / math.cos(self.offset * self._rate) ** 2

    def time_at(self, log_ratio: Tensor) -> Tensor:
        signal, noise = torch.sigmoid(self.index * log_ratio), torch.sigmoid(-self.index * log_ratio)
        u_0 = self.offset * self._rate
        sin_u = (math.sin(u_0) ** 2 + noise * math.cos(u_0) ** 2).sqrt()
        return torch.atan2(sin_u, signal.sqrt() * math.cos(u_0)) / self._rate - self.offset


@dataclass(frozen=True, kw_only=True)
class LinearSchedule(Schedule):
    r"""Scale preserving with a rate linear in time: :math:`\barγ_t^α = e^{-h(t)}`,
    :math:`h(t) = β_0 t + (β_1 - β_0) t^2/2`.

    The defaults are the continuous form of DDPM's 1000 steps from 1e-4 to 0.02.

    Example:
        >>> LinearSchedule(alpha=2.0).gamma_bar(torch.tensor(1.0))
        tensor(0.0066)
    """

    beta_min: float = 0.1
    beta_max: float = 20.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.beta_min <= self.beta_max < math.inf:
            raise ValueError(f"rates must satisfy 0 < beta_min <= beta_max, got {self.beta_min} and {self.beta_max}")

    def _integral(self, t: Tensor) -> Tensor:
        return self.beta_min * t + 0.5 * (self.beta_max - self.beta_min) * t * t

    def signal(self, t: Tensor) -> Tensor:
        return torch.exp(-self._integral(t))

    def noise(self, t: Tensor) -> Tensor:
        return -torch.expm1(-self._integral(t))

    def time_at(self, log_ratio: Tensor) -> Tensor:
        h = torch.nn.functional.softplus(-self.index * log_ratio)
        return 2 * h / (self.beta_min + (self.beta_min**2 + 2 * (self.beta_max - self.beta_min) * h).sqrt())


@dataclass(frozen=True, kw_only=True)
class ExplodingSchedule(Schedule):
    r"""Scale exploding: :math:`\barγ = 1`, :math:`\barσ_t = σ_{max} t^ρ`.

    Evenly spaced times from ``t_min``, where :math:`\barσ = σ_{min}`, to 1 are exactly EDM's noise levels (Karras
    et al., 2022).

    Example:
        >>> schedule = ExplodingSchedule(alpha=1.7)
        >>> schedule.sigma_bar(schedule.grid(5))
        tensor([0.0000e+00, 2.0000e-03, 1.6975e-01, 2.5152e+00, 1.7528e+01, 8.0000e+01],
               dtype=torch.float64)
    """

    t_min: float = field(init=False, default=0.0)  # follows from sigma_min
    sigma_min: float = 0.002
    sigma_max: float = 80.0
    rho: float = 7.0

    def __post_init__(self) -> None:
        check_positive("rho", self.rho)
        if not 0 < self.sigma_min < self.sigma_max < math.inf:
            raise ValueError(f"scales must satisfy 0 < sigma_min < sigma_max, got {self.sigma_min}, {self.sigma_max}")
        object.__setattr__(self, "t_min", (self.sigma_min / self.sigma_max) ** (1 / self.rho))
        super().__post_init__()

    def signal(self, t: Tensor) -> Tensor:
        return torch.ones_like(t)

    def noise(self, t: Tensor) -> Tensor:
        return (self.sigma_max * t**self.rho) ** self.index

    def time_at(self, log_ratio: Tensor) -> Tensor:
        return torch.exp((-log_ratio - math.log(self.sigma_max)) / self.rho)
