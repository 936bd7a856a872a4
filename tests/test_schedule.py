"""Schedules: the formulas, transitions, grids."""

import math

import pytest
import torch

from levydiff import (
    CosineSchedule,
    ExplodingSchedule,
    LevyProcess,
    LinearSchedule,
    linear_time,
    log_ratio_spacing,
    quadratic_time,
)

ALPHAS = [0.7, 1.0, 1.5, 2.0]
KINDS = [CosineSchedule, LinearSchedule, ExplodingSchedule]
T = torch.linspace(0.0, 0.99, 34, dtype=torch.float64)


def test_cosine_formula():
    # γ̄^α = cos²(((t + c)/(1 + c))·π/2) / cos²(c/(1 + c)·π/2)
    def f(t):
        return torch.cos((t + 0.008) / 1.008 * math.pi / 2) ** 2

    schedule = CosineSchedule(alpha=1.5)
    expected = f(T) / f(torch.zeros((), dtype=torch.float64))
    torch.testing.assert_close(schedule.gamma_bar(T) ** 1.5, expected)
    torch.testing.assert_close(schedule.sigma_bar(T) ** 1.5, 1 - expected, rtol=1e-9, atol=1e-15)


def test_linear_schedule_is_ddpms():
    # ᾱ = Π(1 - β_i), β_i from 1e-4 to 0.02 in 1000 steps; the continuous form differs by O(β²) a step.
    betas = torch.linspace(1e-4, 0.02, 1000, dtype=torch.float64)
    chain = torch.cumprod(1 - betas, 0)
    schedule = LinearSchedule(alpha=2.0)
    t = torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64)
    torch.testing.assert_close(schedule.gamma_bar(t) ** 2, chain[(t * 1000).long() - 1], rtol=0.05, atol=0)


def test_exploding_grid_is_edms():
    i = torch.arange(18, dtype=torch.float64)
    edm = (80 ** (1 / 7) + i / 17 * (0.002 ** (1 / 7) - 80 ** (1 / 7))) ** 7
    schedule = ExplodingSchedule(alpha=1.3)
    torch.testing.assert_close(schedule.sigma_bar(schedule.grid(18))[1:].flip(0), edm)
    assert bool((schedule.gamma_bar(T) == 1).all())


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("kind", [CosineSchedule, LinearSchedule])
def test_scale_preserving(kind, alpha):
    schedule = kind(alpha=alpha)
    torch.testing.assert_close(schedule.gamma_bar(T) ** alpha + schedule.sigma_bar(T) ** alpha, torch.ones_like(T))


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("kind", KINDS)
def test_transitions_compose(kind, alpha):
    # s → u → t equals s → t: γ multiplies, σ^α adds as (γ_{ut} σ_{su})^α + σ_{ut}^α; from 0 it gives the levels.
    schedule = kind(alpha=alpha)
    s, u, t = (torch.tensor(v, dtype=torch.float64) for v in (0.25, 0.4, 0.9))
    (g1, s1), (g2, s2), (g, sigma) = (schedule.transition(*pair) for pair in ((s, u), (u, t), (s, t)))
    torch.testing.assert_close(g, g1 * g2)
    torch.testing.assert_close(sigma**alpha, (g2 * s1) ** alpha + s2**alpha)
    g0, s0 = schedule.transition(torch.zeros_like(t), t)
    torch.testing.assert_close(g0, schedule.gamma_bar(t))
    torch.testing.assert_close(s0, schedule.sigma_bar(t))


@pytest.mark.parametrize("kind", KINDS)
def test_cumulative_product_and_sum(kind):
    # math: γ̄_t = Π γ_k, σ̄_t^α = Σ_k (γ̄_t σ_k/γ̄_k)^α
    alpha = 1.6
    schedule = kind(alpha=alpha)
    chain = schedule.chain(schedule.grid(40))
    torch.testing.assert_close(chain.gamma_bar, chain.gamma.cumprod(0))
    for t in (1, 7, 40):
        total = ((chain.gamma_bar[t] * chain.sigma[1 : t + 1] / chain.gamma_bar[1 : t + 1]) ** alpha).sum()
        torch.testing.assert_close(chain.sigma_bar[t] ** alpha, total)


@pytest.mark.parametrize("spacing", [linear_time, quadratic_time, log_ratio_spacing])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("steps", [1, 2, 10, 1000])
def test_grids(kind, spacing, steps):
    schedule = kind(alpha=1.7)
    grid = schedule.grid(steps, spacing)
    assert grid.shape == (steps + 1,) and grid.dtype == torch.float64
    assert grid[0] == 0 and float(grid[-1]) == pytest.approx(schedule.t_max, abs=1e-15)
    assert bool((grid.diff() > 0).all())


def test_spacings():
    schedule = CosineSchedule(alpha=1.7)
    torch.testing.assert_close(schedule.grid(8), 0.9946 * torch.arange(9, dtype=torch.float64) / 8)
    torch.testing.assert_close(
        schedule.grid(8, quadratic_time), 0.9946 * (torch.arange(9, dtype=torch.float64) / 8) ** 2
    )
    for kind in KINDS:
        schedule = kind(alpha=1.7)
        times = schedule.grid(20, log_ratio_spacing)[1:]
        steps = schedule.log_ratio(times).diff()
        torch.testing.assert_close(steps, steps.mean().expand_as(steps), rtol=1e-6, atol=0)
        torch.testing.assert_close(schedule.time_at(schedule.log_ratio(times)), times)


@pytest.mark.parametrize("kind", KINDS)
def test_changing_the_number_of_steps_keeps_the_kind(kind):
    # The level at a time does not depend on the grid that visits it.
    process = LevyProcess(1.5, kind())
    coarse, fine = (process.schedule.chain(process.schedule.grid(n)) for n in (11, 101))
    if kind is not ExplodingSchedule:
        torch.testing.assert_close(coarse.sigma_bar[-1], fine.sigma_bar[-1])
    for chain in (coarse, fine):
        torch.testing.assert_close(chain.gamma_bar, process.schedule.gamma_bar(chain.times))
        assert type(process.schedule) is kind


def test_levels_keep_their_digits_near_zero():
    # σ̄^α near t = 0 in float32, against float64: no cancellation.
    t = torch.tensor([1e-6, 1e-5, 1e-4])
    for kind in (CosineSchedule, LinearSchedule):
        schedule = kind(alpha=1.7)
        torch.testing.assert_close(schedule.sigma_bar(t).double(), schedule.sigma_bar(t.double()), rtol=1e-6, atol=0)


def test_bad_input():
    schedule = CosineSchedule(alpha=1.5)
    with pytest.raises(ValueError, match="steps must be a whole number of at least 1, got 0"):
        schedule.grid(0)
    with pytest.raises(ValueError, match="grid must increase, got 0.5 then 0.4 at position 2"):
        schedule.chain(torch.tensor([0.0, 0.5, 0.4]))
    with pytest.raises(ValueError, match="grid must start at 0"):
        schedule.chain(torch.tensor([0.1, 0.5]))
    with pytest.raises(ValueError, match="grid must increase"):
        schedule.chain(torch.tensor([0.0, math.nan, 0.5]))
    with pytest.raises(ValueError, match="t must not be below s"):
        schedule.transition(torch.tensor(0.5), torch.tensor(0.4))
    with pytest.raises(ValueError, match=r"alpha must lie in \(0, 2\], got 2.5"):
        CosineSchedule(alpha=2.5)
    with pytest.raises(ValueError, match="0 < t_min < t_max <= 1"):
        CosineSchedule(alpha=1.5, t_max=1.5)
    with pytest.raises(ValueError, match=r"alpha must be given, as in CosineSchedule\(alpha=1.7\)"):
        CosineSchedule().gamma_bar(T)
    with pytest.raises(ValueError, match="alpha must be the schedule's own 1.5, got 1.7"):
        LevyProcess(1.7, schedule)
    with pytest.raises(ValueError, match="beta_min"):
        LinearSchedule(beta_min=-1.0)
    with pytest.raises(ValueError, match="sigma_min"):
        ExplodingSchedule(sigma_min=90.0)
