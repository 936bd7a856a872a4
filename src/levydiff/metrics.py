r"""Metrics: how good is a generated sample, above all in its tails, and how sure can one be of it?

- :mod:`levydiff.tails` compares extremes: MSLE, tail error, global L1; tail indices, shortfall, return levels.
- :mod:`levydiff.fidelity` compares shapes: PRD, k-nearest-neighbour precision and recall, the Fréchet distance.
- :mod:`levydiff.inference` says how sure the numbers are: bootstrap intervals, Welch's t-test.

Metrics are called as ``metric(real, generated)``, in this order; the samples are tensors or arrays of shape (n, d) or
(n,), the results plain floats or small dataclasses of them. This module imports scipy's and scikit-learn's heavier
parts, and is therefore not imported by ``import levydiff``.

Example:
    >>> import torch
    >>> from levydiff import IsotropicStable
    >>> law = IsotropicStable(1.7, torch.zeros(2), 0.05)
    >>> real, generated = law.sample((2, 25_000), torch.Generator().manual_seed(0))
    >>> msle(real, generated).mean < 0.05 and tail_error(real, generated) < 0.2
    True
"""

from .fidelity import PRD, PRDC, frechet_distance, prd, prdc
from .inference import Interval, Sample, WelchTest, bootstrap, welch_t_test
from .tails import (
    MSLE,
    TailIndex,
    expected_shortfall,
    global_l1,
    hill,
    moment_estimator,
    msle,
    return_levels,
    tail_bias,
    tail_error,
)

__all__ = [
    "MSLE",
    "PRD",
    "PRDC",
    "Interval",
    "Sample",
    "TailIndex",
    "WelchTest",
    "bootstrap",
    "expected_shortfall",
    "frechet_distance",
    "global_l1",
    "hill",
    "moment_estimator",
    "msle",
    "prd",
    "prdc",
    "return_levels",
    "tail_bias",
    "tail_error",
    "welch_t_test",
]
