r"""Fidelity: does a generated sample look like the real one, and does it cover all of it?

============================  ====================================================================================
:func:`prd`                   precision and recall of two histograms over k-means clusters (Sajjadi et al., 2018)
:func:`prdc`                  precision and recall by k-nearest-neighbour balls (Kynkäänniemi et al., 2019),
                              density and coverage (Naeem et al., 2020)
:func:`frechet_distance`      distance of the Gaussians fitted to features; the FID if these are Inception's
============================  ====================================================================================

*Precision* asks what share of the generated points is plausible, *recall* what share of the real ones the model
reaches. A finite sample of the very same law does not score 1: compare with the score of two real samples.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import linalg
from sklearn.cluster import MiniBatchKMeans
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.neighbors import NearestNeighbors

# scikit-learn's own dependency. k-means, neighbours and QR run on one thread: threads that wait for each other
# thousands of times make them ten times slower on a busy machine, and move the last digits of a score.
from threadpoolctl import threadpool_limits

from .checks import check_count
from .inference import Array, Sample, read_pair

_CHUNK = 1 << 24  # distances held at once: 128 MB


@dataclass(frozen=True)
class PRD:
    """Precision, recall and their harmonic mean: means over the repeated clusterings, and standard deviations."""

    precision: float
    recall: float
    f1: float
    precision_std: float
    recall_std: float
    f1_std: float


@dataclass(frozen=True)
class PRDC:
    """Precision, recall, density and coverage by k-nearest-neighbour balls."""

    precision: float
    recall: float
    density: float
    coverage: float


def prd_curve(p: Sample, q: Sample, angles: int = 201) -> tuple[Array, Array]:
    r"""The precision-recall curve of a histogram q (generated) against p (real):

    .. math::  \mathrm{prec}(λ) = \sum_i \min(λ p_i, q_i), \qquad \mathrm{rec}(λ) = \sum_i \min(p_i, q_i/λ),

    at :math:`λ = \tan θ` for angles θ spread evenly over (0, π/2).

    Arguments:
        p: The real probabilities, shape (K,), or several histograms, shape (R, K).
        q: The generated probabilities, of the same shape.
        angles: How many, at least 3.

    Returns:
        Precision and recall, of shape (angles,) or (R, angles).

    Example:
        >>> precision, recall = prd_curve([0.5, 0.5], [1.0, 0.0], angles=3)
        >>> precision.round(3).tolist(), recall.round(3).tolist()
        ([0.0, 0.5, 1.0], [0.5, 0.5, 0.0])
    """
    _check_angles(angles)
    real, generated = np.asarray(p, dtype=np.float64), np.asarray(q, dtype=np.float64)
    if real.shape != generated.shape:
        raise ValueError(f"q must have the shape of p, {real.shape}, got {generated.shape}")
    theta = np.linspace(1e-10, np.pi / 2.0 - 1e-10, angles)
    slope = np.tan(theta)[:, None]
    precision = np.minimum(slope * real[..., None, :], generated[..., None, :]).sum(-1)
    return precision, np.minimum(real[..., None, :], generated[..., None, :] / slope).sum(-1)


def _check_angles(angles: int) -> None:
    if check_count("angles", angles) < 3:
        raise ValueError(f"angles must be at least 3, got {angles}")


def _f_score(precision: Array, recall: Array, beta: float) -> Array:
    r""":math:`F_β = (1 + β^2) PR / (β^2 P + R)`, 0 where both are."""
    total = beta**2 * precision + recall
    score: Array = (1.0 + beta**2) * precision * recall / np.where(total > 0.0, total, 1.0)
    return score


def prd(
    real: Sample, generated: Sample, clusters: int = 100, repeats: int = 10, angles: int = 201, seed: int = 0
) -> PRD:
    r"""Precision and recall for distributions (Sajjadi et al., 2018), with the settings of the published DLPM code.

    k-means on the union of both samples turns each into a histogram; from the curve of :func:`prd_curve`

    .. math::  \mathrm{precision} = \max_λ F_{1/8}, \qquad \mathrm{recall} = \max_λ F_8, \qquad
        F_1 = \frac{2 \, \mathrm{precision} · \mathrm{recall}}{\mathrm{precision} + \mathrm{recall}}.

    Each repeat clusters anew; its scores are averaged. (The published code averages the curves and scores the average:
    lower by at most 2e-4 on the paper's 2-D data.) 25000 + 25000 points in 2-D take about 3 s of one core.

    Arguments:
        real: Shape (n, d).
        generated: Shape (n, d): as many points, since clusters would favour the larger sample.
        clusters: How many clusters, at most 2n.
        repeats: How many clusterings.
        angles: How many points of the curve, at least 3.
        seed: The seed of the clusterings.

    Example:
        >>> x = np.random.default_rng(0).standard_normal((1000, 2))
        >>> round(prd(x, x, repeats=2).f1, 6), prd(x, x + 100.0, repeats=2).f1
        (1.0, 0.0)
    """
    clusters, repeats = check_count("clusters", clusters), check_count("repeats", repeats)
    _check_angles(angles)
    a, b = read_pair(real, generated)
    n = len(a)
    if len(b) != n:
        raise ValueError(f"generated must have as many points as real, {n}, got {len(b)}")
    if clusters > 2 * n:
        raise ValueError(f"clusters must be at most the number of points, {2 * n}, got {clusters}")
    union = np.concatenate([a, b])
    histograms = np.empty((2, repeats, clusters))
    with threadpool_limits(limits=1):
        for i, state in enumerate(np.random.SeedSequence(seed).generate_state(repeats)):
            labels = MiniBatchKMeans(clusters, n_init=10, random_state=int(state)).fit(union).labels_
            histograms[0, i] = np.bincount(labels[:n], minlength=clusters) / n
            histograms[1, i] = np.bincount(labels[n:], minlength=clusters) / n
    curve = prd_curve(histograms[0], histograms[1], angles)
    # Sums of probabilities can exceed 1 in the last digit.
    precision, recall = (np.minimum(_f_score(*curve, beta=beta).max(-1), 1.0) for beta in (0.125, 8.0))
    f1 = _f_score(precision, recall, beta=1.0)
    means = (float(x.mean()) for x in (precision, recall, f1))
    return PRD(*means, *(float(x.std()) for x in (precision, recall, f1)))


def prdc(real: Sample, generated: Sample, k: int = 5) -> PRDC:
    r"""Precision and recall (Kynkäänniemi et al., 2019), density and coverage (Naeem et al., 2020).

    With :math:`B(x_i)` the open ball around a point that reaches to its k-th nearest neighbour in its own sample,

    .. math::
        \mathrm{precision} = \frac1m \sum_j 1[y_j ∈ \textstyle\bigcup_i B(x_i)], \qquad
        \mathrm{recall} = \frac1n \sum_i 1[x_i ∈ \textstyle\bigcup_j B(y_j)],

        \mathrm{density} = \frac{1}{km} \sum_{i,j} 1[y_j ∈ B(x_i)], \qquad
        \mathrm{coverage} = \frac1n \sum_i 1[∃j: y_j ∈ B(x_i)].

    Density has mean 1 for equal laws and can exceed 1. Time grows as n·m: some seconds for 25000 points in 2-D.

    Arguments:
        real: The points x, shape (n, d), n > k.
        generated: The points y, shape (m, d), m > k.
        k: Which neighbour sets the radius.

    Example:
        >>> x = np.random.default_rng(0).standard_normal((500, 2))
        >>> prdc(x, x)
        PRDC(precision=1.0, recall=1.0, density=1.0, coverage=1.0)
    """
    k = check_count("k", k)
    x, y = read_pair(real, generated, minimum=k + 1)
    centre = np.median(x, axis=0)  # distances lose digits far from the origin
    x, y = x - centre, y - centre
    with threadpool_limits(limits=1):
        # Radii a hair smaller, so that rounding does not move the k-th neighbour itself inside.
        radius_x, radius_y = (
            NearestNeighbors(n_neighbors=k).fit(z).kneighbors()[0][:, -1] * (1.0 - 1e-6) for z in (x, y)
        )
    in_real = np.zeros(len(y), dtype=bool)
    recalled, covered = np.zeros(len(x), dtype=bool), np.zeros(len(x), dtype=bool)
    inside = 0
    step = max(1, _CHUNK // len(y))
    for start in range(0, len(x), step):
        rows = slice(start, start + step)
        distance = euclidean_distances(x[rows], y)
        ball = distance < radius_x[rows, None]
        in_real |= ball.any(0)
        covered[rows] = ball.any(1)
        inside += int(np.count_nonzero(ball))
        recalled[rows] = (distance < radius_y).any(1)
    return PRDC(float(in_real.mean()), float(recalled.mean()), inside / (k * len(y)), float(covered.mean()))


def frechet_distance(real: Sample, generated: Sample) -> float:
    r"""The squared Fréchet (2-Wasserstein) distance of the Gaussians with the samples' means and covariances,

    .. math::  ‖μ_1 - μ_2‖^2 + \mathrm{tr}\,Σ_1 + \mathrm{tr}\,Σ_2
        - 2 \, \mathrm{tr}\,(Σ_1^{1/2} Σ_2 Σ_1^{1/2})^{1/2}.

    With centred samples :math:`X = Q_1 R_1`, :math:`Y = Q_2 R_2` the last trace is the sum of the singular values of
    :math:`R_1 R_2^T / \sqrt{(n-1)(m-1)}`: symmetric in the samples, real, exact to rounding, and defined for singular
    covariances, so n ≤ d is allowed (but the estimate is biased upwards for small n). On features of a network this is
    the FID; on raw heavy-tailed data it is meaningless, since these have no covariance.

    Arguments:
        real: Features of shape (n, d), n ≥ 2.
        generated: Features of shape (m, d), m ≥ 2.

    Example:
        >>> x = np.random.default_rng(0).standard_normal((100, 3))
        >>> round(frechet_distance(x, x + [3.0, 4.0, 0.0]), 6)
        25.0
    """
    a, b = read_pair(real, generated, minimum=2)
    with threadpool_limits(limits=1):
        centred = ((x - x.mean(0)) / np.sqrt(len(x) - 1.0) for x in (a, b))
        factors = [linalg.qr(x, mode="r", check_finite=False)[0][: x.shape[1]] for x in centred]
        cross = float(linalg.svdvals(factors[0] @ factors[1].T).sum())
    shift = float(np.sum((a.mean(0) - b.mean(0)) ** 2))
    spread = sum(float(np.sum(r**2)) for r in factors) - 2.0 * cross
    return shift + max(spread, 0.0)  # the spread is never negative but for rounding
