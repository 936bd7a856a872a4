r"""How sure is a score? Intervals by resampling, and a test between two methods.

A metric compares a *real* sample with a *generated* one and is itself random: another sample, another number. Two
questions follow, and they are different.

- **Would another sample of the same size give another number?** :func:`bootstrap` redraws both samples with
  replacement and reports the central range of the metric. It knows nothing of the randomness of training.
- **Is one method better than another, over training seeds?** :func:`welch_t_test` compares two lists of per-seed
  scores without assuming that they spread equally (the paper's p-values).

Every metric takes its samples as torch tensors or numpy arrays on any device, computes in float64, and returns plain
floats.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any, TypeAlias, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from torch import Tensor

from .checks import check_count

Sample: TypeAlias = "Tensor | ArrayLike"
"""What a metric reads: a tensor, an array, or nested lists of numbers."""

Array: TypeAlias = NDArray[np.float64]


def read_points(name: str, x: Sample, minimum: int = 1) -> Array:
    """Return a sample as float64 rows (n, d); (n,) is read as (n, 1), further dimensions are flattened."""
    array = np.asarray(x.detach().cpu().double().numpy() if isinstance(x, Tensor) else x)
    if array.ndim < 1 or array.size == 0 or array.dtype.kind not in "fiu":
        raise ValueError(
            f"{name} must be a non-empty sample of real numbers, shape (n,) or (n, d), "
            f"got shape {array.shape}, dtype {array.dtype}"
        )
    points: Array = array.reshape(len(array), -1).astype(np.float64)
    if not np.isfinite(points).all():
        row = int(np.flatnonzero(~np.isfinite(points).all(axis=1))[0])
        raise ValueError(f"{name} must be finite, but row {row} holds NaN or infinity")
    if len(points) < minimum:
        raise ValueError(f"{name} must have at least {minimum} points, got {len(points)}")
    return points


def read_pair(real: Sample, generated: Sample, minimum: int = 1) -> tuple[Array, Array]:
    """Return two samples as rows of the same dimension."""
    pair = read_points("real", real, minimum), read_points("generated", generated, minimum)
    if pair[0].shape[1] != pair[1].shape[1]:
        raise ValueError(
            f"generated must have the dimension of real, {pair[0].shape[1]} numbers a point, got {pair[1].shape[1]}"
        )
    return pair


def check_fraction(name: str, value: float) -> float:
    """Return a number strictly between 0 and 1."""
    if not 0.0 < value < 1.0:  # also catches NaN
        raise ValueError(f"{name} must lie in (0, 1), got {value}")
    return float(value)


@dataclass(frozen=True)
class Interval:
    """An estimate and the ends of its confidence interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class WelchTest:
    """Welch's t-test: the statistic (positive if the first mean is larger), its degrees of freedom, the p-value."""

    statistic: float
    dof: float
    p: float


@overload
def bootstrap(
    metric: Callable[..., float],
    real: Sample,
    generated: Sample,
    repeats: int = ...,
    level: float = ...,
    seed: int = ...,
    **options: Any,
) -> Interval: ...


@overload
def bootstrap(
    metric: Callable[..., object],
    real: Sample,
    generated: Sample,
    repeats: int = ...,
    level: float = ...,
    seed: int = ...,
    **options: Any,
) -> dict[str, Interval]: ...


def bootstrap(
    metric: Callable[..., Any],
    real: Sample,
    generated: Sample,
    repeats: int = 200,
    level: float = 0.95,
    seed: int = 0,
    **options: Any,
) -> Interval | dict[str, Interval]:
    r"""The percentile interval of a metric when both samples are redrawn, independently and with replacement.

    With :math:`m^*_1 … m^*_B` the metric of B redrawn pairs, the interval runs from the (1 - level)/2 to the
    (1 + level)/2 quantile of the :math:`m^*`; the value is the metric of the samples as given.

    Three things to know. A distance between samples is biased upwards, more so when redrawn, so that the interval can
    lie above the value. A redrawn sample repeats points, which k-nearest-neighbour scores feel. And where the metric
    is a mean of something without variance (``global_l1`` below α = 2) no bootstrap is consistent: there the interval
    shows the spread, without a guaranteed coverage.

    Arguments:
        metric: Called as ``metric(real, generated, **options)``; returns a number, or a dataclass of numbers.
        real: Shape (n,) or (n, d).
        generated: Shape (m,) or (m, d).
        repeats: B.
        level: The coverage, in (0, 1).
        seed: The seed of the redrawing.
        options: Handed to the metric.

    Returns:
        One :class:`Interval`, or one for each field of the dataclass, by name.

    Example:
        >>> from levydiff.metrics import global_l1
        >>> x = np.random.default_rng(0).exponential(size=1000)
        >>> interval = bootstrap(global_l1, x, x + 1.0)
        >>> interval.low < 1.0 < interval.high, round(interval.value, 6)
        (True, 1.0)
    """
    repeats, level = check_count("repeats", repeats), check_fraction("level", level)
    a, b = read_pair(real, generated)
    rng = np.random.default_rng(seed)
    value = metric(a, b, **options)
    draws = [
        _numbers(metric(a[rng.integers(len(a), size=len(a))], b[rng.integers(len(b), size=len(b))], **options))
        for _ in range(repeats)
    ]
    intervals = {}
    for name, estimate in _numbers(value).items():
        low, high = np.quantile([draw[name] for draw in draws], [(1.0 - level) / 2.0, (1.0 + level) / 2.0])
        intervals[name] = Interval(estimate, float(low), float(high))
    return intervals if is_dataclass(value) else intervals["value"]


def _numbers(result: Any) -> dict[str, float]:
    """A metric's result as named numbers."""
    fields = asdict(result) if is_dataclass(result) and not isinstance(result, type) else {"value": result}
    try:
        return {name: float(number) for name, number in fields.items()}
    except (TypeError, ValueError):
        raise ValueError(f"metric must return a number or a dataclass of numbers, got {result!r}") from None


def welch_t_test(first: Sequence[float] | Sample, second: Sequence[float] | Sample) -> WelchTest:
    r"""Welch's t-test (two-sided) that two lists of per-seed scores have the same mean, unequal variances allowed.

    .. math::
        t = \frac{\bar a - \bar b}{\sqrt{s_a^2/n_a + s_b^2/n_b}}, \qquad
        ν = \frac{(s_a^2/n_a + s_b^2/n_b)^2}{(s_a^2/n_a)^2/(n_a - 1) + (s_b^2/n_b)^2/(n_b - 1)}.

    Arguments:
        first: The scores of one method, at least two.
        second: The scores of the other, at least two.

    Example:
        >>> test = welch_t_test([1.0, 2.0, 3.0], [2.0, 4.0, 6.0])
        >>> round(test.statistic, 3), round(test.dof, 3), round(test.p, 3)
        (-1.549, 2.941, 0.221)
    """
    a, b = (read_points(name, x, minimum=2) for name, x in (("first", first), ("second", second)))
    for name, x in (("first", a), ("second", b)):
        if x.shape[1] != 1:
            raise ValueError(f"{name} must be a list of numbers, got {x.shape[1]} numbers for each of {len(x)} seeds")
    if np.ptp(a) == 0 and np.ptp(b) == 0:
        raise ValueError("first and second must not both be constant: without any spread there is no test")
    result = stats.ttest_ind(a[:, 0], b[:, 0], equal_var=False)
    test = WelchTest(float(result.statistic), float(result.df), float(result.pvalue))
    if not math.isfinite(test.statistic):
        raise FloatingPointError(f"Welch's t-test overflowed: {test}")
    return test
