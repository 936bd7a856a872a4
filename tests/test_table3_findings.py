"""What the findings of Table 3 say in numbers that no run prints."""

import pytest

from levydiff import CosineSchedule
from levydiff.experiments.table3_findings import FINDINGS


@pytest.mark.parametrize(("steps", "factor"), [(100, 2.8), (400, 1.2)])
def test_the_first_step_of_lim_at_alpha_two(steps, factor):
    """From noise N(0, 2σ̄²) with the exact ε̂ = x/σ̄: x/γ - 2(1/γ - 1)ε̂/σ̄ + (σ/γ)ε' is so many times as large."""
    schedule = CosineSchedule(alpha=2.0)
    step = schedule.chain(schedule.grid(steps)).step(steps)
    kept = 1 / step.gamma - 2 * (1 / step.gamma - 1) / step.sigma_bar**2
    assert (kept**2 + (step.sigma / step.gamma) ** 2) ** 0.5 == pytest.approx(factor, abs=0.05)
    assert f"by {factor}" in FINDINGS["mnist", "cpu"]
