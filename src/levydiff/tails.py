r"""Tails: how far the extremes of a generated sample are from those of the real one, and how heavy a tail is.

Means and variances say little about a law that may have neither. What is compared here are quantiles and exceedance
probabilities, each exactly as the empirical distributions have them, without interpolation: :math:`F^{-1}(p)` is the
step function :math:`x_{(⌈np⌉)}`, and CCDF(r) is the share of points above r.

============================  ==============================================================================
:func:`msle`                  squared log-ratio of quantiles above ξ (the paper's score; signed coordinate)
:func:`tail_error`            log-ratio of exceedance probabilities between the 95 % and the 99.9 % quantile
:func:`tail_bias`             the same with its sign: too few extremes, or too many
:func:`global_l1`             area between the two CCDFs: the 1-Wasserstein distance of the radii
:func:`hill`                  tail index of one sample, for laws with a power tail
:func:`moment_estimator`      the same, which also recognises tails lighter than any power
:func:`expected_shortfall`    the mean of the worst values
:func:`return_levels`         the value exceeded once in m observations
============================  ==============================================================================

A sample (n, d) becomes a list of numbers in one of two ways. ``coordinate=None`` takes the radius ‖x‖ (of a sample of
shape (n,): \|x\|); an index takes one coordinate, as its absolute value where the size is meant (``tail_error``,
``tail_bias``, ``global_l1``, ``hill``, ``moment_estimator``) and with its sign where the upper tail is (the others).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from .checks import check_count
from .inference import Array, Interval, Sample, check_fraction, read_pair, read_points


@dataclass(frozen=True)
class MSLE:
    """The mean squared logarithmic error in both normalisations.

    ``integral`` is the paper's formula; ``mean`` is that divided by 1 - ξ, which is what its tables hold.
    """

    integral: float
    mean: float


@dataclass(frozen=True)
class TailIndex:
    r"""A tail's index: α in :math:`P(X > r) ≈ C r^{-α}` and γ = 1/α, from the k largest values.

    An end of α's interval is infinite where γ is not above 0: there the tail may be lighter than any power.
    """

    alpha: Interval
    gamma: Interval
    k: int


def _column(points: Array, coordinate: int) -> Array:
    """One coordinate, with its sign."""
    if not -points.shape[1] <= coordinate < points.shape[1]:
        raise ValueError(f"coordinate must be below the dimension {points.shape[1]}, got {coordinate}")
    return points[:, coordinate]


def _radius(points: Array, coordinate: int | None) -> Array:
    """‖x‖, or |x_i|."""
    radius: Array = np.linalg.norm(points, axis=1) if coordinate is None else np.abs(_column(points, coordinate))
    return radius


def _rank(p: Array | float, n: int) -> NDArray[np.intp]:
    """⌈np⌉ in 1 … n, unmoved by the rounding of p."""
    return np.clip(np.ceil(np.asarray(p) * n - 1e-9), 1, n).astype(np.intp)


def msle(real: Sample, generated: Sample, xi: float = 0.95, coordinate: int = 0) -> MSLE:
    r"""Mean squared logarithmic error of the upper quantiles,

    .. math::  \mathrm{MSLE}(ξ) = \int_ξ^1 \left( \log F^{-1}(p) - \log \hat F^{-1}(p) \right)^2 dp,

    exactly for the two empirical distributions; any sizes n, m. A model that is off by a factor c has
    :math:`(\log c)^2 (1 - ξ)`. A tail value that is not positive has no logarithm and is an error, never clamped.

    Arguments:
        real: Shape (n,) or (n, d).
        generated: Shape (m,) or (m, d).
        xi: ξ, in (0, 1).
        coordinate: Which coordinate, with its sign.

    Example:
        >>> x = np.random.default_rng(0).pareto(1.7, 1000)
        >>> error = msle(x, math.e * x)
        >>> round(error.integral, 6), round(error.mean, 6)
        (0.05, 1.0)
    """
    xi = check_fraction("xi", xi)
    a, b = (np.sort(_column(points, coordinate)) for points in read_pair(real, generated))
    for name, x in (("real", a), ("generated", b)):
        lowest = float(x[_rank(xi, len(x)) - 1])
        if lowest <= 0.0:
            raise ValueError(f"{name} must be positive from its {xi:g} quantile on, but that is {lowest:g}")
    # Both quantile functions are constant between neighbouring multiples of 1/n and 1/m.
    jumps = np.concatenate([np.arange(1, len(x)) / len(x) for x in (a, b)])
    p = np.unique(np.concatenate([[xi, 1.0], jumps[jumps > xi]]))
    middle = (p[1:] + p[:-1]) / 2.0
    log_ratio = np.log(a[(middle * len(a)).astype(np.intp)]) - np.log(b[(middle * len(b)).astype(np.intp)])
    integral = float(np.sum(np.diff(p) * log_ratio**2))
    return MSLE(integral, integral / (1.0 - xi))


def tail_error(
    real: Sample,
    generated: Sample,
    coordinate: int | None = None,
    lower: float = 0.95,
    upper: float = 0.999,
    levels: int = 20,
) -> float:
    r"""Mean error of the log exceedance probability at K quantiles :math:`r_k` of the real sample,

    .. math::  \frac1K \sum_k \left| \log \mathrm{CCDF}_{gen}(r_k) - \log \mathrm{CCDF}_{real}(r_k) \right|,
        \qquad r_k = F^{-1}_{real}(p_k), \quad p_k \text{ evenly from lower to upper}.

    Where no point of a sample lies above :math:`r_k` its CCDF is taken as 1/(2n), half a point: the error stays finite
    and grows with the logarithm of the sample's size.

    Arguments:
        real: Shape (n,) or (n, d); n at least 1/(1 - upper), 1000 by default.
        generated: Shape (m,) or (m, d).
        coordinate: |x_i| of this coordinate; ‖x‖ by default.
        lower: The lowest probability, in (0, 1).
        upper: The highest probability, in (lower, 1).
        levels: K.

    Example:
        >>> x = np.random.default_rng(0).pareto(1.0, 10_000) + 1.0  # CCDF(r) = 1/r
        >>> round(tail_error(x, 2.0 * x), 1), round(math.log(2.0), 1)
        (0.7, 0.7)
    """
    return float(np.mean(np.abs(_log_ratios(real, generated, coordinate, lower, upper, levels))))


def tail_bias(
    real: Sample,
    generated: Sample,
    coordinate: int | None = None,
    lower: float = 0.95,
    upper: float = 0.999,
    levels: int = 20,
) -> float:
    """As :func:`tail_error`, with the sign: negative where the generated sample has too few extremes, positive where it
    has too many.

    Too many at some quantiles and too few at others cancel, so it can be 0 where the tail error is not.

    Arguments:
        real, generated, coordinate, lower, upper, levels: As for :func:`tail_error`.

    Example:
        >>> x = np.random.default_rng(0).pareto(1.0, 10_000) + 1.0  # CCDF(r) = 1/r
        >>> round(tail_bias(x, 2.0 * x), 1), round(tail_bias(x, 0.5 * x), 1)
        (0.7, -0.7)
    """
    return float(np.mean(_log_ratios(real, generated, coordinate, lower, upper, levels)))


def _log_ratios(
    real: Sample, generated: Sample, coordinate: int | None, lower: float, upper: float, levels: int
) -> NDArray[np.float64]:
    """log CCDF_gen(r_k) - log CCDF_real(r_k) at the quantiles r_k of :func:`tail_error`."""
    lower, upper, levels = check_fraction("lower", lower), check_fraction("upper", upper), check_count("levels", levels)
    if lower >= upper:
        raise ValueError(f"lower must be below upper = {upper:g}, got {lower:g}")
    points = read_pair(real, generated)
    needed = math.ceil(1.0 / (1.0 - upper) - 1e-6)
    if len(points[0]) < needed:
        raise ValueError(f"real must have at least {needed} points for the {upper:g} quantile, got {len(points[0])}")
    a, b = (np.sort(_radius(x, coordinate)) for x in points)
    thresholds = a[_rank(np.linspace(lower, upper, levels), len(a)) - 1]
    log_ccdf = [np.log(np.maximum(len(x) - np.searchsorted(x, thresholds, "right"), 0.5) / len(x)) for x in (a, b)]
    return log_ccdf[1] - log_ccdf[0]


def global_l1(real: Sample, generated: Sample, coordinate: int | None = None) -> float:
    r""":math:`\int_0^∞ |\mathrm{CCDF}_{gen}(r) - \mathrm{CCDF}_{real}(r)| dr`, exactly.

    This is the 1-Wasserstein distance of the two empirical distributions of ‖x‖ (or |x_i|). It is finite for every
    sample, but for α ≤ 1 it grows without bound with the sample's size, and a single extreme point may decide it.

    Arguments:
        real: Shape (n,) or (n, d).
        generated: Shape (m,) or (m, d).
        coordinate: |x_i| of this coordinate; ‖x‖ by default.

    Example:
        >>> global_l1([1.0, 2.0, 3.0], [2.0, 3.0, 4.0])
        1.0
    """
    a, b = (_radius(points, coordinate) for points in read_pair(real, generated))
    return float(stats.wasserstein_distance(a, b))


def _log_spacings(x: Sample, k: int | None, coordinate: int | None) -> Array:
    """The k values log X_(n-i+1) - log X_(n-k), i = 1 … k, of the largest radii."""
    radius = np.sort(_radius(read_points("x", x, minimum=3), coordinate))[::-1]
    k = max(2, math.isqrt(len(radius))) if k is None else check_count("k", k)
    if not 2 <= k < len(radius):
        raise ValueError(f"k must be at least 2 and below the number of points, {len(radius)}, got {k}")
    if radius[k] <= 0.0:
        raise ValueError(f"x must have more than k = {k} values other than 0, got {int(np.sum(radius > 0))}")
    if radius[0] == radius[k]:
        raise ValueError(f"x must not repeat one value {k + 1} times at its top, got {radius[0]:g}")
    spacings: Array = np.log(radius[:k]) - np.log(radius[k])
    return spacings


def _tail_index(gamma: Interval, k: int) -> TailIndex:
    value, low, high = (1.0 / g if g > 0.0 else math.inf for g in (gamma.value, gamma.high, gamma.low))
    return TailIndex(Interval(value, low, high), gamma, k)


def hill(x: Sample, k: int | None = None, coordinate: int | None = None, level: float = 0.95) -> TailIndex:
    r"""Hill's estimate of the tail index from the k + 1 largest radii,

    .. math::  \hat γ = \frac1k \sum_{i=1}^k \log X_{(n-i+1)} - \log X_{(n-k)}, \qquad \hat α = 1/\hat γ,
        \qquad \frac{2 k \hat γ}{γ} \sim χ^2_{2k}.

    The interval is the one of that χ² law: exact for a Pareto tail, asymptotically :math:`\hat α (1 ± z/\sqrt k)`
    for every power tail. It knows the variance, not the bias, which grows with k. For an α-stable law the power tail
    begins late when α is near 2: of 25000 isotropic points at α = 1.7, k = 158 gives 1.77 ± 0.14 on average and
    k = 1250 gives 2.02. Hence the cautious default.

    Arguments:
        x: Shape (n,) or (n, d), n ≥ 3.
        k: How many of the largest values, from 2 to n - 1; the whole part of √n by default.
        coordinate: |x_i| of this coordinate; ‖x‖ by default.
        level: The coverage of the interval, in (0, 1).

    Example:
        >>> x = np.random.default_rng(0).pareto(1.5, 40_000) + 1.0
        >>> index = hill(x)
        >>> index.k, index.alpha.low < 1.5 < index.alpha.high
        (200, True)
    """
    level = check_fraction("level", level)
    spacings = _log_spacings(x, k, coordinate)
    k, gamma = len(spacings), float(spacings.mean())
    low, high = (float(stats.chi2.ppf((1.0 + side * level) / 2.0, 2 * k)) for side in (-1.0, 1.0))
    return _tail_index(Interval(gamma, 2.0 * k * gamma / high, 2.0 * k * gamma / low), k)


def moment_estimator(x: Sample, k: int | None = None, coordinate: int | None = None, level: float = 0.95) -> TailIndex:
    r"""The moment estimate of Dekkers, Einmahl and de Haan (1989), for γ of any sign,

    .. math::
        \hat γ = M_1 + 1 - \frac12 \left( 1 - \frac{M_1^2}{M_2} \right)^{-1}, \qquad
        M_j = \frac1k \sum_{i=1}^k (\log X_{(n-i+1)} - \log X_{(n-k)})^j.

    γ > 0 is a power tail with α = 1/γ, γ = 0 an exponential or Gaussian tail, γ < 0 a bounded law. The interval is
    :math:`\hat γ ± z \sqrt{v/k}` with :math:`v = 1 + γ^2` for γ ≥ 0 and
    :math:`v = (1-γ)^2 (1-2γ)(1-γ+6γ^2) / ((1-3γ)(1-4γ))` below. It is wider than Hill's, the price for not
    presuming a power tail: an interval for γ that reaches 0 (for α: infinity) says that the data do not show one.

    Arguments:
        x: Shape (n,) or (n, d), n ≥ 3.
        k: How many of the largest values, from 2 to n - 1; the whole part of √n by default.
        coordinate: |x_i| of this coordinate; ‖x‖ by default.
        level: The coverage of the interval, in (0, 1).

    Example:
        >>> index = moment_estimator(np.random.default_rng(0).standard_normal(40_000))
        >>> index.gamma.low < 0.0 < index.gamma.high, index.alpha.high
        (True, inf)
    """
    level = check_fraction("level", level)
    spacings = _log_spacings(x, k, coordinate)
    k, m1, m2 = len(spacings), float(spacings.mean()), float(np.mean(spacings**2))
    gamma = m1 + 1.0 - 0.5 / (1.0 - m1 * m1 / m2) if m2 > m1 * m1 else -math.inf
    if not math.isfinite(gamma):
        raise ValueError(f"x must not take only two values among its {k + 1} largest")
    variance = 1.0 + gamma**2
    if gamma < 0.0:
        variance = (1.0 - gamma) ** 2 * (1.0 - 2.0 * gamma) * (1.0 - gamma + 6.0 * gamma**2)
        variance /= (1.0 - 3.0 * gamma) * (1.0 - 4.0 * gamma)
    margin = float(stats.norm.ppf((1.0 + level) / 2.0)) * math.sqrt(variance / k)
    return _tail_index(Interval(gamma, gamma - margin, gamma + margin), k)


def expected_shortfall(x: Sample, p: float = 0.95, coordinate: int = 0) -> float:
    r"""The mean of the largest values, :math:`\mathrm{ES}_p = \frac{1}{1-p} \int_p^1 F^{-1}(u) du`, exactly.

    For the losses of a table of returns, hand in the returns with the opposite sign. Without a mean (α ≤ 1) the
    number exists for every sample but settles nowhere.

    Arguments:
        x: Shape (n,) or (n, d).
        p: Where the tail begins, in (0, 1).
        coordinate: Which coordinate, with its sign.

    Example:
        >>> expected_shortfall([1.0, 2.0, 3.0, 4.0], p=0.5)
        3.5
    """
    p = check_fraction("p", p)
    values = np.sort(_column(read_points("x", x), coordinate))
    # How much of each step ((i-1)/n, i/n] lies above p, in units of a step.
    weights = np.clip(np.arange(1, len(values) + 1) - p * len(values), 0.0, 1.0)
    return float(weights @ values / weights.sum())


def return_levels(x: Sample, periods: Sequence[float], coordinate: int = 0) -> list[float]:
    r"""The values exceeded on average once in m observations, :math:`F^{-1}(1 - 1/m)`, for each m of ``periods``.

    They are read off the sample, never extrapolated: m can be at most n.

    Arguments:
        x: Shape (n,) or (n, d).
        periods: Numbers m, above 1 and at most n.
        coordinate: Which coordinate, with its sign.

    Example:
        >>> return_levels(np.arange(1.0, 1001.0), [10, 100])
        [900.0, 990.0]
    """
    values = np.sort(_column(read_points("x", x), coordinate))
    for period in periods:
        if not 1.0 < period <= len(values):
            raise ValueError(
                f"periods must lie above 1 and at most at the number of points, {len(values)}, got {period}"
            )
    return [float(values[_rank(1.0 - 1.0 / period, len(values)) - 1]) for period in periods]
