r"""What a sample tells at best: maximum likelihood within the law that made it.

A model that is told the formula of its data, and estimates its constants alone, can hardly be beaten by one that must
learn the formula too (which is experience and no theorem). So its score says how much of an error is the sample's.

The laws are those of :mod:`levydiff.experiments.tails`, with every constant unknown:

- Student-t: the centre μ, the scatter :math:`Σ = RR^⊤` and the degrees of freedom ν, by the ECME algorithm (Liu &
  Rubin, 1995), a kind of expectation maximisation. A point has the weight :math:`w = (ν + d)/(ν +
  (x-μ)^⊤Σ^{-1}(x-μ))`; then :math:`μ = \sum w x/\sum w` and :math:`Σ = \frac1n\sum w(x-μ)(x-μ)^⊤`; then ν maximises the
  likelihood; and again.
- Funnel: :math:`v \sim N(m, s^2)` and :math:`x | v \sim N(0, e^{a + bv})`. The likelihood of a and b is that of a
  regression of x² on v with the log link and gamma errors (of shape 1/2, which does not move its maximum).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from scipy.special import gammaln
from sklearn.linear_model import GammaRegressor
from torch import Tensor

from ..data import Dataset, StudentT
from ..rng import Generator, normal


@dataclass(frozen=True, eq=False)
class FittedStudentT(Dataset):
    """The law of μ + R·T, where T is the isotropic Student-t of :class:`~levydiff.data.StudentT`."""

    center: Tensor
    root: Tensor
    df: float

    @property
    def dim(self) -> int:
        return len(self.center)

    def draw(self, n: int, generator: Generator) -> Tensor:
        return self.center + StudentT(self.df, self.dim).draw(n, generator) @ self.root.T


@dataclass(frozen=True)
class FittedFunnel(Dataset):
    """The funnel in the plane with the constants m, s, a and b."""

    m: float
    s: float
    a: float
    b: float
    dim: int = 2

    def draw(self, n: int, generator: Generator) -> Tensor:
        first, second = normal((n, 2), generator, torch.float64).unbind(1)
        v = self.m + self.s * first
        return torch.stack((v, ((self.a + self.b * v) / 2.0).exp() * second), dim=1)


def fitted_law(data: str, points: Tensor) -> Dataset:
    """The law of a data set, fitted to points of it.

    Arguments:
        data: The data set as ``levydiff train --data`` takes it: a Student-t, or the funnel in the plane.
        points: Shape (n, d).
    """
    fits: dict[str, Callable[[Tensor], Dataset]] = {"student-t": fit_student_t, "funnel": fit_funnel}
    name = data.partition(":")[0]
    if name not in fits:
        raise ValueError(f"data must be one of {', '.join(fits)}, got {data!r}")
    return fits[name](points)


def fit_student_t(points: Tensor, rounds: int = 100) -> FittedStudentT:
    """The multivariate Student-t of largest likelihood.

    Arguments:
        points: Shape (n, d).
        rounds: Of the iteration; after a hundred ν is within 1e-6 of its limit, for 5000 points of ν = 1 to 3.
    """
    x = points.double().numpy()
    n, d = x.shape
    center = np.median(x, axis=0)
    scatter, log_df = np.diag(np.median(np.abs(x - center), axis=0) ** 2), 0.0
    for _ in range(rounds):
        df = math.exp(log_df)
        weight = (df + d) / (df + _distance(x - center, scatter))
        center = weight @ x / weight.sum()
        scatter = (weight[:, None] * (x - center)).T @ (x - center) / n
        known = (_distance(x - center, scatter), d)
        log_df = minimize_scalar(_cost_of_df, bracket=(log_df - 0.1, log_df + 0.1), args=known).x
    return FittedStudentT(torch.from_numpy(center), torch.from_numpy(np.linalg.cholesky(scatter)), math.exp(log_df))


def _distance(deviation: Any, scatter: Any) -> Any:
    return (deviation @ np.linalg.inv(scatter) * deviation).sum(axis=1)


def _cost_of_df(log_df: float, distance: Any, d: int) -> float:
    """The mean of -log p(x), but for what does not depend on ν."""
    df = math.exp(log_df)
    normalisation = gammaln((df + d) / 2) - gammaln(df / 2) - d / 2 * log_df
    return float((df + d) / 2 * np.log1p(distance / df).mean() - normalisation)


def fit_funnel(points: Tensor) -> FittedFunnel:
    """The funnel in the plane of largest likelihood.

    Arguments:
        points: Shape (n, 2): v and x.
    """
    if points.shape[1] != 2:
        raise ValueError(f"points must have 2 columns, v and x, got {points.shape[1]}")
    v, x = points.double().unbind(1)
    regression = GammaRegressor(alpha=0.0, solver="newton-cholesky", tol=1e-8)
    regression.fit(v[:, None].numpy(), x.square().numpy())
    return FittedFunnel(float(v.mean()), float(v.std(correction=0)), regression.intercept_, regression.coef_[0])
