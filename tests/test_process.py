"""The forward process and its posterior."""

import math

import pytest
import torch
from scipy import stats

from levydiff import Clipping, CosineSchedule, ExplodingSchedule, LevyProcess, NoisePath
from levydiff.rng import SampleStreams


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("isotropic", [True, False])
@pytest.mark.parametrize("alpha", [0.8, 1.5, 2.0])
def test_perturb(alpha, isotropic):
    process = LevyProcess(alpha, isotropic=isotropic)
    x_0 = torch.randn(6, 3, 2, generator=generator(1), dtype=torch.float64)
    t = torch.rand(6, generator=generator(2), dtype=torch.float64)
    x_t, eps, a = process.perturb(x_0, t, generator(3))
    gamma_bar, sigma_bar = (f(t).reshape(6, 1, 1) for f in (process.schedule.gamma_bar, process.schedule.sigma_bar))
    torch.testing.assert_close(x_t, gamma_bar * x_0 + sigma_bar * eps)
    assert a.shape == ((6, 1, 1) if isotropic else (6, 3, 2))
    # with A given, ε = √A G; G is the same under the same seed
    shared = process.perturb(x_0, t, generator(4), a=a)
    g = torch.randn(6, 3, 2, generator=generator(4), dtype=torch.float64)
    torch.testing.assert_close(shared.eps, a.sqrt() * g)


def test_chain_and_one_jump_have_the_same_law():
    # X_T by T small steps of the recursion, against X_T = γ̄ X_0 + σ̄ ε at once.
    process = LevyProcess(1.6)
    n = 20_000
    chain = process.schedule.chain(process.schedule.grid(12))
    x = torch.full((n, 1), 1.5)
    source = generator(5)
    for i in range(1, 13):
        step = chain.step(i)
        x = step.gamma * x + step.sigma * process.noise((n, 1), source)[0]
    y = process.perturb(torch.full((n, 1), 1.5), chain.times[-1], source).x_t
    assert stats.ks_2samp(x.flatten().numpy(), y.flatten().numpy()).pvalue > 0.01


@pytest.mark.parametrize("isotropic", [True, False])
def test_recursion_equals_the_sum(isotropic):
    # Σ_t = Σ_k (γ̄_t/γ̄_k)² σ_k² A_k
    process = LevyProcess(1.4, isotropic=isotropic)
    path = process.draw_path((5, 3), process.schedule.grid(30), generator(6))
    assert path.a.shape == ((30, 5, 1) if isotropic else (30, 5, 3))
    chain = path.chain
    for t in (1, 9, 30):
        weights = (chain.gamma_bar[t] * chain.sigma[1 : t + 1] / chain.gamma_bar[1 : t + 1]) ** 2
        total = (weights.reshape(-1, 1, 1) * path.a[:t].double()).sum(0)
        torch.testing.assert_close(path.var[t].double(), total, rtol=1e-5, atol=0)
    assert bool((path.var[0] == 0).all())


def test_variance_has_the_law_of_one_a():
    # Σ_T = σ̄_T² A in law
    process = LevyProcess(1.3)
    path = process.draw_path((20_000, 1), process.schedule.grid(15), generator(7))
    a = path.var[-1] / path.chain.sigma_bar[-1] ** 2
    one = process.noise((20_000, 1), generator(8))[1]
    assert stats.ks_2samp(a.flatten().numpy(), one.flatten().numpy()).pvalue > 0.01


def one_step_path(process: LevyProcess, a: list[float]) -> NoisePath:
    """A two-step path with chosen variances, in float32."""
    chain = process.schedule.chain(torch.tensor([0.0, 0.3, 0.6]))
    a_ = torch.tensor(a).reshape(2, 1, 1)
    var = torch.zeros(3, 1, 1)
    for i in (1, 2):
        var[i] = chain.step(i).sigma ** 2 * a_[i - 1] + chain.step(i).gamma ** 2 * var[i - 1]
    return NoisePath(chain, a_, var)


@pytest.mark.parametrize("a", [[1e-6, 1e20], [1e20, 1e-6], [1e30, 1.0], [1.0, 1e30], [3.0, 5.0]])
def test_gain_is_exact_in_float32(a):
    # Γ_2 = σ_2² A_2/(σ_2² A_2 + γ_2² σ_1² A_1), to float32's last digits, where 1 - γ²Σ_1/Σ_2 would be 0 or 1.
    process = LevyProcess(1.7)
    path = one_step_path(process, a)
    one, two = path.chain.step(1), path.chain.step(2)
    jump, rest = two.sigma**2 * a[1], two.gamma**2 * one.sigma**2 * a[0]
    assert path.gain(2).dtype == torch.float32
    assert float(path.gain(2)) == pytest.approx(jump / (jump + rest), rel=1e-6)
    assert float(path.gain(1)) == 1.0


@pytest.mark.parametrize("alpha", [0.5, 1.0, 1.7, 2.0])
def test_gain_stays_in_the_unit_interval(alpha):
    process = LevyProcess(alpha)
    path = process.draw_path((2000, 2), process.schedule.grid(50), generator(9))
    gains = torch.stack([path.gain(i) for i in range(1, 51)])
    assert bool((gains >= 0).all()) and bool((gains <= 1).all())


@pytest.mark.parametrize("isotropic", [True, False])
def test_posterior_is_bayes(isotropic):
    # p(y_{t-1} | y_t, y_0) ∝ N(y_t; γ y_{t-1}, σ²A) N(y_{t-1}; γ̄_{t-1} y_0, Σ_{t-1}): precisions add.
    process = LevyProcess(1.5, isotropic=isotropic)
    path = process.draw_path((8, 3), process.schedule.grid(20), generator(10))
    x_0, x_t = torch.randn(2, 8, 3, generator=generator(11), dtype=torch.float64)
    for i in (2, 11, 20):
        step = path.chain.step(i)
        eps = (x_t - step.gamma_bar * x_0) / step.sigma_bar
        mean, var = process.posterior(x_t, eps, path, i)
        jump, before = step.sigma**2 * path.a[i - 1].double(), path.var[i - 1].double()
        precision = step.gamma**2 / jump + 1 / before
        expected = (step.gamma * x_t / jump + step.gamma_bar_previous * x_0 / before) / precision
        torch.testing.assert_close(var.double(), 1 / precision, rtol=1e-5, atol=0)
        torch.testing.assert_close(mean, expected, rtol=1e-4, atol=1e-5)


def test_first_posterior_is_the_data():
    process = LevyProcess(1.5)
    path = process.draw_path((8, 3), process.schedule.grid(20), generator(12))
    x_0, x_t = torch.randn(2, 8, 3, generator=generator(13), dtype=torch.float64)
    step = path.chain.step(1)
    mean, var = process.posterior(x_t, (x_t - step.gamma_bar * x_0) / step.sigma_bar, path, 1)
    torch.testing.assert_close(mean, x_0)
    assert bool((var == 0).all())


def test_path_memory():
    process = LevyProcess(1.7)
    path = process.draw_path((64, 3, 32, 32), process.schedule.grid(1000))
    assert path.a.shape == (1000, 64, 1, 1, 1)
    assert path.a.nbytes + path.var.nbytes < 1_000_000


def test_path_does_not_depend_on_the_split():
    process = LevyProcess(1.7)
    grid = process.schedule.grid(10)
    whole = process.draw_path((6, 2), grid, SampleStreams.seeded(6, generator(14)))
    parts = [process.draw_path((3, 2), grid, s) for s in SampleStreams.seeded(6, generator(14)).split(3)]
    assert torch.equal(whole.var, torch.cat([p.var for p in parts], dim=1))


def test_small_alpha_path_is_float64():
    process = LevyProcess(0.3)
    path = process.draw_path((1000, 2), process.schedule.grid(20), generator(15))
    assert path.var.dtype == torch.float64 and bool(torch.isfinite(path.var).all())


def test_overflow_of_a_path_is_an_error():
    process = LevyProcess(0.01, ExplodingSchedule(sigma_max=1e10))
    with pytest.raises(FloatingPointError, match="overflows"):
        process.draw_path((10_000, 2), process.schedule.grid(20), generator(16))


def test_clipping():
    process = LevyProcess(1.2)
    eps, a = process.noise((5000, 2), generator(17))
    clipped, capped = Clipping(a=20.0, norm=5.0).apply(eps, a)
    assert float(capped.max()) <= 20.0 and float(clipped.norm(dim=1).max()) <= 5.0 + 1e-5
    g = eps / a.sqrt()
    untouched = (a <= 20.0).squeeze(1) & (eps.norm(dim=1) <= 5.0)
    torch.testing.assert_close(clipped[untouched], eps[untouched])
    only_a = (a > 20.0).squeeze(1) & (math.sqrt(20.0) * g.norm(dim=1) <= 5.0)
    assert bool(only_a.any())
    torch.testing.assert_close(clipped[only_a], math.sqrt(20.0) * g[only_a], rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match="clipping.a must be above 0 .inf for no limit., got 0"):
        Clipping(a=0.0)


def test_bad_input():
    with pytest.raises(ValueError, match=r"alpha must lie in \(0, 2\], got 0"):
        LevyProcess(0)
    with pytest.raises(ValueError, match=r"alpha must lie in \(0, 2\], got 2.1"):
        LevyProcess(2.1)
    with pytest.raises(ValueError, match=r"t must have shape \(4,\), got \(3,\)"):
        LevyProcess(1.5).perturb(torch.zeros(4, 2), torch.zeros(3))
    for t in (1.5, -0.1, math.nan):
        with pytest.raises(ValueError, match=r"t must lie in \[0, 1\], got"):
            LevyProcess(1.5).perturb(torch.zeros(4, 2), torch.full((4,), t))
    with pytest.raises(ValueError, match="grid must increase"):
        LevyProcess(1.5).draw_path((4, 2), torch.tensor([0.0, 0.5, 0.5]))
    assert LevyProcess(2).alpha == 2.0 and LevyProcess(1.5, CosineSchedule(alpha=1.5)).schedule.alpha == 1.5
