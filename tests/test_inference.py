"""Intervals and tests: against the normal approximation, and by hand."""

import math

import numpy as np
import pytest
import torch
from scipy import special

from levydiff.inference import Interval, WelchTest, bootstrap, read_points, welch_t_test
from levydiff.tails import msle, tail_error

X = np.random.default_rng(0).standard_normal((400, 1))
Y = 2.0 * np.random.default_rng(1).standard_normal((900, 1)) + 1.0


def mean_difference(real, generated, factor=1.0):
    return factor * float(generated.mean() - real.mean())


def test_bootstrap_of_a_mean():
    # The interval of a difference of means is m ± z·√(s²/n + r²/m). With 4000 draws the ends have a standard error of
    # some 4 % of the half-width.
    interval = bootstrap(mean_difference, X, Y, repeats=4000, level=0.9)
    margin = 1.6449 * math.sqrt(X.var() / 400 + Y.var() / 900)
    assert interval.value == mean_difference(X, Y)
    assert interval.high - interval.value == pytest.approx(margin, rel=0.12)
    assert interval.value - interval.low == pytest.approx(margin, rel=0.12)


def test_bootstrap_covers():
    # 200 pairs of samples: 95 % with a standard deviation of 1.5 %; 100 draws cost the interval some 1.5 %.
    rng = np.random.default_rng(2)
    pairs = [(rng.standard_normal(100), 1.0 + rng.standard_normal(100)) for _ in range(200)]
    intervals = [bootstrap(mean_difference, *pair, repeats=100, seed=i) for i, pair in enumerate(pairs)]
    assert 0.89 < np.mean([i.low < 1.0 < i.high for i in intervals]) < 0.985


def test_bootstrap_is_seeded_and_hands_on_options():
    first = bootstrap(mean_difference, X, Y, repeats=20)
    assert first == bootstrap(mean_difference, torch.tensor(X), torch.tensor(Y), repeats=20)
    assert first != bootstrap(mean_difference, X, Y, repeats=20, seed=1)
    doubled = bootstrap(mean_difference, X, Y, repeats=20, factor=2.0)
    assert doubled == Interval(2 * first.value, 2 * first.low, 2 * first.high)


def test_bootstrap_of_a_dataclass():
    intervals = bootstrap(msle, X, Y, repeats=50, xi=0.9)
    assert set(intervals) == {"integral", "mean"}
    assert intervals["mean"].value == msle(X, Y, xi=0.9).mean
    assert intervals["mean"].low == pytest.approx(10 * intervals["integral"].low)
    assert intervals["mean"].low < intervals["mean"].value < intervals["mean"].high
    x = np.random.default_rng(3).pareto(1.0, 1000)  # redrawn samples repeat their largest point: CCDF 0, floored
    assert np.isfinite(bootstrap(tail_error, x, x, repeats=50).high)


def test_welch_by_hand():
    # Variances 1 and 4 over 3: t = -2/√(5/3), ν = (25/9)/((1/9 + 16/9)/2) = 50/17; p through the incomplete beta.
    test = welch_t_test([1.0, 2.0, 3.0], [2.0, 4.0, 6.0])
    t, dof = -2 / math.sqrt(5 / 3), 50 / 17
    assert test.statistic == pytest.approx(t)
    assert test.dof == pytest.approx(dof)
    assert test.p == pytest.approx(special.betainc(dof / 2, 0.5, dof / (dof + t**2)))
    assert welch_t_test([2.0, 4.0, 6.0], torch.tensor([1.0, 2.0, 3.0])) == WelchTest(-test.statistic, test.dof, test.p)
    assert welch_t_test([1.0, 2.0], [1.0, 2.0]).p == 1.0


def test_reading_samples():
    assert read_points("x", torch.ones(3, dtype=torch.bfloat16, requires_grad=True)).tolist() == [[1.0]] * 3
    assert read_points("x", [1, 2]).dtype == np.float64
    assert read_points("x", np.ones((4, 2, 3), dtype=np.float32)).shape == (4, 6)
    for bad in ([], 3.0, np.zeros((3, 0)), ["a"], [1j], [None]):
        with pytest.raises(ValueError, match="x must be a non-empty sample of real numbers"):
            read_points("x", bad)
    with pytest.raises(ValueError, match="x must be finite, but row 2 holds NaN or infinity"):
        read_points("x", [0.0, 1.0, math.inf])


def test_bad_input():
    with pytest.raises(ValueError, match="repeats must be a whole number of at least 1, got 0"):
        bootstrap(mean_difference, X, Y, repeats=0)
    with pytest.raises(ValueError, match=r"level must lie in \(0, 1\), got 95"):
        bootstrap(mean_difference, X, Y, level=95)
    with pytest.raises(ValueError, match="generated must have the dimension of real"):
        bootstrap(mean_difference, X, np.ones((3, 2)))
    with pytest.raises(ValueError, match="metric must return a number or a dataclass of numbers, got 'good'"):
        bootstrap(lambda real, generated: "good", X, Y)
    with pytest.raises(ValueError, match="second must have at least 2 points, got 1"):
        welch_t_test([1.0, 2.0], [1.0])
    with pytest.raises(ValueError, match="first must be a list of numbers, got 2 numbers for each of 3 seeds"):
        welch_t_test(np.zeros((3, 2)), [1.0, 2.0])
    with pytest.raises(ValueError, match="first and second must not both be constant"):
        welch_t_test([1.0, 1.0], [2.0, 2.0])
