"""Learning rates as functions of the step."""

import pytest

from levydiff.rates import ConstantRate, CosineDecay, StepDecay


def test_learning_rates():
    assert ConstantRate(0.1).at(999, 1000) == 0.1
    assert StepDecay(1.0, 0.99, 400).at(799, 10**6) == pytest.approx(0.99)
    cosine = CosineDecay(2.0, warmup=10)
    assert cosine.at(0, 110) == pytest.approx(0.2) and cosine.at(10, 110) == 2.0
    assert cosine.at(60, 110) == pytest.approx(1.0) and cosine.at(109, 110) < 0.001
