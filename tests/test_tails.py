"""Tail metrics: samples whose quantiles, exceedances and tail indices are known."""

import math

import numpy as np
import pytest
import torch

from levydiff.tails import (
    MSLE,
    expected_shortfall,
    global_l1,
    hill,
    moment_estimator,
    msle,
    return_levels,
    tail_bias,
    tail_error,
)

X = np.random.default_rng(0).standard_normal((2000, 2))


def pareto(alpha, shape, seed=0):
    return np.random.default_rng(seed).pareto(alpha, shape) + 1.0


@pytest.mark.parametrize("xi", [0.5, 0.95, 0.9501, 0.99999])
@pytest.mark.parametrize("n", [7, 1000])
def test_msle_of_a_scaled_sample(xi, n):
    # (log c)²·(1 - ξ), exactly: only rounding is allowed for.
    x, c = pareto(1.7, n), 3.0
    error = msle(x, c * x, xi)
    assert error.mean == pytest.approx(math.log(c) ** 2, rel=1e-9)
    assert error.integral == pytest.approx(math.log(c) ** 2 * (1 - xi), rel=1e-9)
    assert msle(c * x, x, xi).integral == pytest.approx(error.integral, rel=1e-9)


def test_msle_by_hand_with_unequal_sizes():
    # On (1/2, 2/3] the log-ratio is 1, on (2/3, 1] it is 2.
    error = msle([1.0, 1.0], [1.0, math.e, math.e**2], xi=0.5)
    assert error.integral == pytest.approx(1 / 6 + 4 / 3, rel=1e-12)
    assert error.mean == pytest.approx(3.0, rel=1e-12)
    x = pareto(1.7, 999)
    assert msle(x, np.repeat(x, 2)) == MSLE(0.0, 0.0)  # the same distribution
    assert msle(x, np.repeat(x, 7)).integral < 1e-15  # the same, but i/n and 7i/(7n) may round differently


def test_msle_takes_the_signed_coordinate():
    assert msle(X, X * [2.0, 1.0]).mean == pytest.approx(math.log(2) ** 2)
    assert msle(X, X * [2.0, 1.0], coordinate=1).mean == 0.0
    assert msle(np.abs(X), -np.abs(X) * [-2.0, 1.0]).mean == pytest.approx(math.log(2) ** 2)
    with pytest.raises(ValueError, match="generated must be positive from its 0.95 quantile on, but that is -"):
        msle(np.abs(X), -np.abs(X))
    with pytest.raises(ValueError, match="real must be positive from its 0.3 quantile on, but that is -"):
        msle(X, X, xi=0.3)
    with pytest.raises(ValueError, match="but that is 0"):
        msle(np.arange(2.0), np.arange(2.0), xi=0.5)


def test_tail_error():
    assert tail_error(X, X) == 0.0
    assert tail_error(X, X.repeat(3, axis=0)) < 1e-12
    # Exact Pareto quantiles with CCDF(r) = 1/r: doubling doubles every exceedance. At 99.9 % the generated sample has
    # 200 of 10⁵ points above, so that whole counts allow an error of 1/200 there, and less elsewhere.
    x = 1.0 / (1.0 - (np.arange(100_000) + 0.5) / 100_000)
    assert tail_error(x, 2.0 * x) == pytest.approx(math.log(2.0), abs=0.005)
    assert tail_error(x, x / 2.0) == pytest.approx(math.log(2.0), abs=0.01)


def test_tail_error_by_hand_and_its_floor():
    # Thresholds 2 and 3, real CCDF 1/2 and 1/4; none of 5 generated points above: 1/10.
    expected = (math.log(5) + math.log(2.5)) / 2
    assert tail_error([1.0, 2, 3, 4], [0.0] * 5, lower=0.5, upper=0.75, levels=2) == pytest.approx(expected)
    # All generated points above: CCDF 1.
    expected = (math.log(2) + math.log(4)) / 2
    assert tail_error([1.0, 2, 3, 4], [9.0], lower=0.5, upper=0.75, levels=2) == pytest.approx(expected)
    # Thresholds are evenly spaced in probability: the middle one of 3 between 0.2 and 0.8 is the median, 5.
    generated = [0.0] * 5 + [2.5] * 2 + [5.5] * 2 + [9.0]  # CCDF at 2, 5, 8: .5, .3, .1
    expected = (math.log(0.8 / 0.5) + math.log(0.5 / 0.3) + math.log(0.2 / 0.1)) / 3
    value = tail_error(np.arange(1.0, 11.0), generated, lower=0.2, upper=0.8, levels=3)
    assert value == pytest.approx(expected)


def test_tail_bias_is_the_tail_error_with_its_sign():
    # As above: CCDF 1/2 and 1/4 of the data at the thresholds, 1/10 twice or 1 twice of what was generated.
    few, many = [0.0] * 5, [9.0]
    options = {"lower": 0.5, "upper": 0.75, "levels": 2}
    assert tail_bias([1.0, 2, 3, 4], few, **options) == pytest.approx(-(math.log(5) + math.log(2.5)) / 2)
    assert tail_bias([1.0, 2, 3, 4], many, **options) == pytest.approx((math.log(2) + math.log(4)) / 2)
    # 1/2 and 1/2: right at the first threshold, twice too many at the second. 3/10 and 3/10: errors of both signs.
    assert tail_bias([1.0, 2, 3, 4], [0.0, 9.0], **options) == pytest.approx(math.log(2) / 2)
    mixed = [0.0] * 7 + [9.0] * 3
    assert tail_bias([1.0, 2, 3, 4], mixed, **options) == pytest.approx((math.log(0.6) + math.log(1.2)) / 2)
    assert tail_error([1.0, 2, 3, 4], mixed, **options) == pytest.approx((-math.log(0.6) + math.log(1.2)) / 2)
    y = X * [1.0, -3.0]
    assert tail_bias(X, y, coordinate=0) == 0.0 and tail_bias(X, y, coordinate=1) > 1.0


def test_radius_or_coordinate():
    y = X * [1.0, -3.0]
    assert tail_error(X, y, coordinate=0) == 0.0 == global_l1(X, y, coordinate=0)
    assert tail_error(X, y, coordinate=1) > 1.0
    assert global_l1(X, y, coordinate=-1) == pytest.approx(2.0 * np.abs(X[:, 1]).mean())
    angle = np.random.default_rng(1).uniform(0, 2 * np.pi, 2000)
    rotated = np.linalg.norm(X, axis=1)[:, None] * np.stack([np.cos(angle), np.sin(angle)], 1)
    assert global_l1(X, rotated) < 1e-12  # a radius to the last digits


def test_global_l1():
    r = pareto(1.5, 500)
    assert global_l1(r, r + 0.7) == pytest.approx(0.7)
    assert global_l1(r + 0.7, r) == pytest.approx(0.7)
    assert global_l1([0.0], [0.0, 1.0]) == 0.5
    assert global_l1([[3.0, 4.0]], [[0.0, 1.0]]) == 4.0
    # The definition, summed over the steps of both CCDFs.
    a, b = np.abs(X[:300, 0]), np.abs(X[:170, 1])
    grid = np.sort(np.concatenate([a, b]))
    difference = [(a > v).mean() - (b > v).mean() for v in grid[:-1]]
    assert global_l1(a, b) == pytest.approx(np.sum(np.abs(difference) * np.diff(grid)))


def test_l1_of_a_perfect_model_of_two_dimensional_cauchy_data():
    # P(‖x‖ > r) = 1/√(1 + r²). What `tails` says: the L1 of a perfect model has the median 4.2 and the quartiles 2.4,
    # 8.7 (2000 pairs), and the mean of five is above 4 five times in six. Of 500 pairs the median is off by 0.25 (one
    # standard error, √(1/4 / 500) over the density 0.09), the upper quartile by 0.7, the share by 0.04.
    u = np.random.default_rng(1).random((500, 2, 25_000))
    distances = np.array([global_l1(*np.sqrt((1.0 - pair) ** -2.0 - 1.0)) for pair in u])
    assert np.quantile(distances, [0.25, 0.5, 0.75]) == pytest.approx([2.4, 4.2, 8.7], abs=1.5)
    assert np.median(distances) == pytest.approx(4.2, abs=0.75)
    assert np.mean(distances.reshape(-1, 5).mean(axis=1) > 4.0) == pytest.approx(5 / 6, abs=0.12)


def test_hill_by_hand():
    index = hill([1.0, math.e, -math.exp(2.0)], k=2)
    assert index.gamma.value == pytest.approx(1.5)
    assert index.alpha.value == pytest.approx(1 / 1.5)
    assert (index.alpha.low, index.alpha.high) == (1 / index.gamma.high, 1 / index.gamma.low)
    x = pareto(2.0, 10_000)
    assert hill(x).k == 100
    assert hill(x, k=50) == hill(torch.tensor(np.stack([x, 0 * x], 1)), k=50)
    # For large k the interval is α(1 ± 1.96/√k); the χ² one differs by O(1/k) of α.
    alpha = hill(x, k=5000).alpha
    assert alpha.low == pytest.approx(alpha.value * (1 - 1.96 / 5000**0.5), rel=1e-3)
    assert alpha.high == pytest.approx(alpha.value * (1 + 1.96 / 5000**0.5), rel=1e-3)


@pytest.mark.parametrize(("alpha", "level"), [(0.8, 0.95), (1.7, 0.8)])
def test_hill_covers(alpha, level):
    # The interval is exact for a Pareto law at any k. 1000 samples: three standard deviations are 0.02 and 0.04.
    indices = [hill(x, k=30, level=level).alpha for x in pareto(alpha, (1000, 200))]
    covered = np.mean([index.low < alpha < index.high for index in indices])
    assert covered == pytest.approx(level, abs=3 * math.sqrt(level * (1 - level) / 1000))


def test_moment_estimator_by_hand():
    # M1 = 3/2, M2 = 5/2, so γ = 3/2 + 1 - 5 = -5/2; the variance for γ < 0 in the form of the 1989 paper.
    index = moment_estimator([1.0, math.e, math.exp(2.0)], k=2)
    g = -2.5
    assert index.gamma.value == pytest.approx(g)
    inner = 4 - 8 * (1 - 2 * g) / (1 - 3 * g) + (5 - 11 * g) * (1 - 2 * g) / ((1 - 3 * g) * (1 - 4 * g))
    margin = 1.959964 * math.sqrt((1 - g) ** 2 * (1 - 2 * g) * inner / 2)
    assert index.gamma.high - g == pytest.approx(margin, rel=1e-6)
    assert g - index.gamma.low == pytest.approx(margin, rel=1e-6)
    assert index.alpha.value == math.inf == index.alpha.high


@pytest.mark.parametrize("gamma", [1.0, 0.5, -1.0])
def test_moment_estimator_covers(gamma):
    # Pareto tails, and a bounded law (uniform). The interval is asymptotic: 400 samples give ± 0.033 (three standard
    # deviations) about 95 %, and k = 300 a coverage some per cent lower.
    u = np.random.default_rng(1).uniform(size=(400, 30_000))
    x = u**-gamma if gamma > 0 else 1 + u
    indices = [moment_estimator(row, k=300) for row in x]
    covered = np.mean([index.gamma.low < gamma < index.gamma.high for index in indices])
    assert 0.90 < covered < 0.985
    if gamma > 0:
        mean = np.mean([index.alpha.low < 1 / gamma < index.alpha.high for index in indices])
        assert mean == covered


def test_moment_estimator_recognises_light_tails():
    assert moment_estimator(X[:, 0], k=100).gamma.low < 0.0 < moment_estimator(pareto(1.0, 2000), k=100).gamma.low


def test_expected_shortfall():
    # 1.6 of 4 steps lie above 0.6.
    assert expected_shortfall([4.0, 1.0, 3.0, 2.0], p=0.6) == pytest.approx((4.0 + 0.6 * 3.0) / 1.6)
    assert expected_shortfall([4.0, 1.0, 3.0, 2.0], p=0.999) == 4.0
    assert expected_shortfall(-X, p=0.95, coordinate=1) == pytest.approx(-np.sort(X[:, 1])[:100].mean())
    # Exponential law: 1 - log(1 - p). Standard error of 10⁶ points: 0.006.
    x = np.random.default_rng(0).exponential(size=1_000_000)
    assert expected_shortfall(x, 0.95) == pytest.approx(1 - math.log(0.05), abs=0.02)


def test_return_levels():
    x = np.random.default_rng(0).permutation(np.arange(1.0, 1001.0))
    assert return_levels(x, [2, 10, 100, 1000]) == [500.0, 900.0, 990.0, 999.0]
    assert return_levels(np.stack([x, -x], 1), [10], coordinate=1) == [-101.0]
    with pytest.raises(
        ValueError, match="periods must lie above 1 and at most at the number of points, 1000, got 1001"
    ):
        return_levels(x, [10, 1001])
    with pytest.raises(ValueError, match="got 1"):
        return_levels(x, [1])


@pytest.mark.parametrize("value", [0.0, 1.0, -0.5, math.nan])
def test_fractions_outside_the_unit_interval(value):
    for name, call in {
        "xi": lambda: msle(X, X, xi=value),
        "lower": lambda: tail_error(X, X, lower=value),
        "upper": lambda: tail_error(X, X, upper=value),
        "level": lambda: hill(X, level=value),
        "p": lambda: expected_shortfall(X, p=value),
    }.items():
        with pytest.raises(ValueError, match=rf"{name} must lie in \(0, 1\), got {value}"):
            call()


def test_bad_input():
    for metric in (msle, tail_error, global_l1):
        with pytest.raises(ValueError, match="generated must have the dimension of real, 2 numbers a point, got 1"):
            metric(X, X[:, 0])
        with pytest.raises(ValueError, match="real must be a non-empty sample"):
            metric([], X)
        with pytest.raises(ValueError, match="generated must be finite, but row 1 holds NaN or infinity"):
            metric([1.0, 2.0], [1.0, math.nan])
        with pytest.raises(ValueError, match="coordinate must be below the dimension 2, got 2"):
            metric(X, X, coordinate=2)
    with pytest.raises(ValueError, match="real must have at least 1000 points for the 0.999 quantile, got 999"):
        tail_error(X[:999], X)
    with pytest.raises(ValueError, match="lower must be below upper = 0.9, got 0.95"):
        tail_error(X, X, upper=0.9)
    with pytest.raises(ValueError, match="levels must be a whole number of at least 1, got 0"):
        tail_error(X, X, levels=0)
    for estimator in (hill, moment_estimator):
        for k in (1, 2000, 3000):
            with pytest.raises(ValueError, match=f"k must be at least 2 and below the number of points, 2000, got {k}"):
                estimator(X, k=k)
        with pytest.raises(ValueError, match="x must have at least 3 points, got 2"):
            estimator([1.0, 2.0])
        with pytest.raises(ValueError, match="x must have more than k = 3 values other than 0, got 2"):
            estimator([0.0, 0.0, 0.0, 1.0, 2.0], k=3)
        with pytest.raises(ValueError, match="x must not repeat one value 3 times at its top, got 5"):
            estimator([1.0, 5.0, 5.0, 5.0], k=2)
    with pytest.raises(ValueError, match="x must not take only two values among its 3 largest"):
        moment_estimator([1.0, 5.0, 5.0], k=2)
