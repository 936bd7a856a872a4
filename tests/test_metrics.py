"""The front door: every name is there, and every metric reads tensors and arrays alike."""

import numpy as np
import pytest
import torch

from levydiff import IsotropicStable, metrics

REAL, GENERATED = IsotropicStable(1.7, torch.zeros(2), 0.05).sample((2, 2000), torch.Generator().manual_seed(0))


def test_names():
    assert all(hasattr(metrics, name) for name in metrics.__all__)
    assert len(set(metrics.__all__)) == len(metrics.__all__)


@pytest.mark.parametrize("name", ["msle", "tail_error", "tail_bias", "global_l1", "prd", "prdc", "frechet_distance"])
def test_tensors_and_arrays(name):
    metric, options = getattr(metrics, name), {"repeats": 2} if name == "prd" else {}
    of_tensors = metric(REAL, GENERATED, **options)
    of_arrays = metric(REAL.numpy(), GENERATED.double().numpy(), **options)
    assert repr(of_tensors) == repr(of_arrays)
    assert "np." not in repr(of_tensors) and "tensor" not in repr(of_tensors)


@pytest.mark.parametrize("name", ["hill", "moment_estimator", "expected_shortfall"])
def test_tensors_and_arrays_of_one_sample(name):
    metric = getattr(metrics, name)
    assert repr(metric(REAL)) == repr(metric(REAL.numpy()))
    assert "np." not in repr(metric(REAL)) and "tensor" not in repr(metric(REAL))


def test_the_metrics_of_the_same_law_are_near_their_floor():
    # 25000 + 25000 points, as in the paper. MSLE: the k-th largest of 1250 tail values has a log of standard deviation
    # 1/(α√k), so the mean of the squared difference is (2/α²)·Σ(1/k)/1250 = 0.0043 on average, mostly from the very
    # largest points; 0.03 is far outside. One DLPM run of the paper scores 0.07.
    real, generated = IsotropicStable(1.7, torch.zeros(2), 0.05).sample((2, 25_000), torch.Generator().manual_seed(1))
    assert metrics.msle(real, generated).mean < 0.03
    assert metrics.tail_error(real, generated) < 0.15
    assert metrics.prd(real, generated, repeats=2).f1 > 0.98
    hill = metrics.hill(np.asarray(real))
    assert hill.alpha.low < 1.7 < hill.alpha.high
