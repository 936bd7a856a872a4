"""Fidelity metrics: histograms, balls and Gaussians whose scores are known."""

import numpy as np
import pytest
from scipy import linalg

from levydiff import fidelity
from levydiff.fidelity import PRDC, frechet_distance, prd, prd_curve, prdc

X = np.random.default_rng(0).standard_normal((600, 2))
Y = 0.8 * np.random.default_rng(1).standard_normal((600, 2)) + 0.3


def f_beta(precision, recall, beta):
    return (1 + beta**2) * precision * recall / (beta**2 * precision + recall)


def test_prd_of_identical_and_disjoint_samples():
    same = prd(X, X, clusters=20, repeats=3)
    assert (same.precision, same.recall, same.f1) == pytest.approx((1.0, 1.0, 1.0), abs=1e-12)
    assert max(same.precision, same.recall, same.f1) <= 1.0
    assert (same.precision_std, same.recall_std, same.f1_std) == pytest.approx((0.0, 0.0, 0.0), abs=1e-12)
    apart = prd(X, X + 100.0, clusters=20, repeats=3)
    assert (apart.precision, apart.recall, apart.f1) == (0.0, 0.0, 0.0)


def test_prd_curve_re_derived():
    rng = np.random.default_rng(2)
    p, q = rng.dirichlet(np.ones(6), size=2)
    precision, recall = prd_curve(p, q, angles=11)
    for i, theta in enumerate(np.linspace(0, np.pi / 2, 11)[1:-1], start=1):
        slope = np.tan(theta)
        assert precision[i] == pytest.approx(sum(min(slope * u, v) for u, v in zip(p, q, strict=True)))
        assert recall[i] == pytest.approx(sum(min(u, v / slope) for u, v in zip(p, q, strict=True)))
    assert (precision[-1], recall[0]) == pytest.approx((1.0, 1.0))
    assert (precision[0], recall[-1]) == pytest.approx((0.0, 0.0), abs=1e-9)


def test_prd_of_a_lost_mode():
    # Two far clusters, p = (1/2, 1/2), q = (1, 0): the curve's corner is precision 1, recall 1/2, at λ = 2. With 201
    # angles the nearest λ is off by 0.4 %.
    left, right = X / 100 - 5.0, X / 100 + 5.0
    real, generated = np.concatenate([left[:300], right[:300]]), left
    score = prd(real, generated, clusters=2, repeats=2)
    assert score.precision == pytest.approx(f_beta(1.0, 0.5, 1 / 8), abs=0.005)
    assert score.recall == pytest.approx(f_beta(1.0, 0.5, 8), abs=0.005)
    assert score.f1 == pytest.approx(f_beta(score.precision, score.recall, 1.0))
    swapped = prd(generated, real, clusters=2, repeats=2)
    assert (swapped.precision, swapped.recall) == pytest.approx((score.recall, score.precision))


def test_prd_repeats():
    # Mean and deviation over clusterings that are the same under the same seed; rounding depends on the threads.
    score, again, other = (prd(X, Y, clusters=20, repeats=4, seed=seed) for seed in (0, 0, 1))
    assert score.f1 == pytest.approx(again.f1, rel=1e-9)
    assert score.f1 != other.f1
    assert 0.0 < score.f1_std < 0.02 and abs(score.f1 - other.f1) < 4 * score.f1_std
    assert 0.7 < score.recall < 0.95 and prd(X, Y, clusters=20, repeats=1).f1_std == 0.0


def balls(centres, points, k):
    """Which points lie in which ball, by the definition."""
    own = np.sort(np.linalg.norm(centres[:, None] - centres, axis=-1), axis=1)[:, k]
    return np.linalg.norm(centres[:, None] - points, axis=-1) < own[:, None]


@pytest.mark.parametrize("d", [1, 2, 20])  # trees in low dimension, matrix products in high
@pytest.mark.parametrize("chunk", [1 << 24, 1000])
def test_prdc_re_derived(d, chunk, monkeypatch):
    monkeypatch.setattr(fidelity, "_CHUNK", chunk)
    rng = np.random.default_rng(3)
    x, y = 1000.0 + rng.standard_normal((150, d)), 1000.0 + 0.7 * rng.standard_normal((90, d)) + 0.5
    real, generated = balls(x, y, 4), balls(y, x, 4)
    score = prdc(x, y, k=4)
    assert score.precision == pytest.approx(real.any(0).mean())
    assert score.recall == pytest.approx(generated.any(0).mean())
    assert score.density == pytest.approx(real.sum() / (4 * 90))
    assert score.coverage == pytest.approx(real.any(1).mean())
    assert 0.0 < score.recall < 1.0 and 0.0 < score.coverage < 1.0


def test_prdc_of_known_samples():
    assert prdc(X, X) == PRDC(1.0, 1.0, 1.0, 1.0)
    assert prdc(X, X + 100.0) == PRDC(0.0, 0.0, 0.0, 0.0)
    # Equal laws: mean density 1 (standard deviation over seeds about 0.05), coverage 1 - 2^-k (0.969 at k = 5).
    rng = np.random.default_rng(4)
    score = prdc(*rng.standard_normal((2, 3000, 2)))
    assert score.density == pytest.approx(1.0, abs=0.1)
    assert score.coverage == pytest.approx(1 - 2.0**-5, abs=0.015)


def standardised(n, d, seed=0):
    """A sample whose mean is 0 and whose covariance is the identity, to rounding."""
    x = np.random.default_rng(seed).standard_normal((n, d))
    x -= x.mean(0)
    return x @ np.linalg.inv(np.linalg.cholesky(np.cov(x, rowvar=False))).T


def test_frechet_distance_in_closed_form():
    # Commuting covariances: ‖μ1 - μ2‖² + Σ (s_i - r_i)².
    s, r, shift = np.array([1.0, 2.0, 3.0]), np.array([2.0, 0.5, 3.5]), np.array([1.0, 0.0, -2.0])
    x, y = standardised(50, 3) * s, standardised(70, 3, seed=1) * r + shift
    assert frechet_distance(x, y) == pytest.approx(np.sum((s - r) ** 2) + np.sum(shift**2), rel=1e-10)
    assert frechet_distance(x[:, 0], 3.0 * x[:, 0] + 2.0) == pytest.approx(4.0 + 4.0, rel=1e-10)


def test_frechet_distance_of_covariances_that_do_not_commute():
    rng = np.random.default_rng(5)
    x, y = (rng.standard_normal((200, 4)) @ rng.standard_normal((4, 4)) for _ in range(2))
    c, e = np.cov(x, rowvar=False), np.cov(y, rowvar=False)
    expected = np.sum((x.mean(0) - y.mean(0)) ** 2) + np.trace(c + e - 2 * linalg.sqrtm(c @ e).real)
    assert frechet_distance(x, y) == pytest.approx(expected, rel=1e-9)
    assert frechet_distance(y, x) == pytest.approx(expected, rel=1e-9)


def test_frechet_distance_of_singular_covariances():
    x = standardised(40, 3) * [1.0, 2.0, 0.0]
    y = standardised(40, 3, seed=1) * [0.0, 5.0, 4.0]
    assert frechet_distance(x, y) == pytest.approx(1.0 + 9.0 + 16.0, rel=1e-12)
    assert frechet_distance(x, x.copy()) == pytest.approx(0.0, abs=1e-12)
    # Fewer points than dimensions, in two orthogonal subspaces: both traces and nothing in common.
    few, other = np.zeros((5, 30)), np.zeros((6, 30))
    few[:, :10], other[:, 10:] = np.random.default_rng(6).standard_normal((5, 10)), 1.0
    other[:, 10:] *= np.random.default_rng(7).standard_normal((6, 20))
    expected = few.var(0, ddof=1).sum() + other.var(0, ddof=1).sum() + np.sum((few.mean(0) - other.mean(0)) ** 2)
    assert frechet_distance(few, other) == pytest.approx(expected, rel=1e-12)
    assert frechet_distance([[1.0, 2.0]] * 3, [[1.0, 5.0]] * 3) == 9.0


def test_bad_input():
    for metric in (prd, prdc, frechet_distance):
        with pytest.raises(ValueError, match="generated must have the dimension of real, 2 numbers a point, got 1"):
            metric(X, X[:, 0])
        with pytest.raises(ValueError, match="generated must be a non-empty sample"):
            metric(X, np.zeros((0, 2)))
        with pytest.raises(ValueError, match="real must be finite, but row 7 holds NaN or infinity"):
            metric(np.where(np.arange(600)[:, None] == 7, np.inf, X), X)
    with pytest.raises(ValueError, match="generated must have as many points as real, 600, got 599"):
        prd(X, X[1:])
    with pytest.raises(ValueError, match="clusters must be at most the number of points, 1200, got 1201"):
        prd(X, X, clusters=1201)
    with pytest.raises(ValueError, match="angles must be at least 3, got 2"):
        prd(X, X, angles=2)
    with pytest.raises(ValueError, match=r"q must have the shape of p, \(2,\), got \(3,\)"):
        prd_curve([0.5, 0.5], [1.0, 0.0, 0.0])
    with pytest.raises(ValueError, match="generated must have at least 6 points, got 5"):
        prdc(X, X[:5])
    with pytest.raises(ValueError, match="real must have at least 2 points, got 1"):
        frechet_distance(X[:1], X)
