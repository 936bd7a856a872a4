"""Preconditionings: exact where they say so, EDM's at α = 2, and right in the far tail."""

import pytest
import torch

from levydiff import (
    BoundedPreconditioning,
    Denoiser,
    ExplodingSchedule,
    IndependentStable,
    LevyProcess,
    SelfWeightedLoss,
    StableOracle,
    StablePreconditioning,
)
from levydiff.precondition import squash

T = torch.tensor([0.01, 0.2, 0.5, 0.8, 0.99], dtype=torch.float64)
X = torch.randn(5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def zero(x, t):
    return torch.zeros_like(x)


@pytest.mark.parametrize("alpha", [0.7, 1.0, 1.5, 2.0])
@pytest.mark.parametrize("isotropic", [True, False])
def test_zero_network_is_exact_for_stable_data(alpha, isotropic):
    process = LevyProcess(alpha, isotropic=isotropic)
    denoiser = Denoiser(zero, process, StablePreconditioning(scale=0.3), dtype=torch.float64)
    oracle = StableOracle(process, scale=0.3)
    torch.testing.assert_close(denoiser(X, T), oracle(X, T))
    torch.testing.assert_close(denoiser.x0(X, T), oracle.x0(X, T))
    torch.testing.assert_close(denoiser.score(X, T), oracle.score(X, T))


def test_stable_preconditioning_is_edms_at_alpha_two():
    # EDM (γ̄ = 1) with its σ² = 2σ̄² and σ_data² = 2s²: D = x̂_0 = c_skip' x + c_out' F,
    # c_skip' = σ_d²/(σ_d² + σ²), c_out' = σ σ_d/√(σ_d² + σ²), c_in' = 1/√(σ_d² + σ²); ours scales c_in by √2.
    process = LevyProcess(2.0, ExplodingSchedule())
    s, t = 0.5, torch.tensor(0.6, dtype=torch.float64)
    sigma = 2**0.5 * process.schedule.sigma_bar(t)
    sigma_d = 2**0.5 * s
    seen = {}

    def network(x, t):
        seen["input"] = x
        return torch.full_like(x, 0.7)

    x_0 = Denoiser(network, process, StablePreconditioning(s), dtype=torch.float64).x0(X, t)
    norm = (sigma**2 + sigma_d**2) ** 0.5
    expected = sigma_d**2 / norm**2 * X - sigma * sigma_d / norm * (0.7 / 2**0.5) * 2**0.5 / 2**0.5
    torch.testing.assert_close(x_0, expected)
    torch.testing.assert_close(seen["input"], squash(X * 2**0.5 / norm, True))


@pytest.mark.parametrize("alpha", [0.8, 1.5, 2.0])
def test_c_out_is_the_scale_of_what_c_skip_leaves(alpha):
    # For data SαS(s): c_skip x - ε = c_skip γ̄ x_0 - (1 - c_skip σ̄) ε has the scale c_out.
    process, s = LevyProcess(alpha), 0.4
    precondition = StablePreconditioning(s)
    gamma_bar, sigma_bar = process.levels(T, X)
    c_skip = Denoiser(zero, process, precondition, dtype=torch.float64)(torch.ones(5, 1, dtype=torch.float64), T)
    c_in, c_out = precondition.scales(process, X, T)
    scale = ((c_skip * gamma_bar * s) ** alpha + (1 - c_skip * sigma_bar).abs() ** alpha) ** (1 / alpha)
    torch.testing.assert_close(c_out, scale, rtol=1e-6, atol=1e-9)
    total = ((gamma_bar * s) ** alpha + sigma_bar**alpha) ** (1 / alpha)
    torch.testing.assert_close(c_in, 1 / total)


def test_squash():
    z = torch.tensor([[3.0, 4.0]], dtype=torch.float64)
    r = (25 / 2) ** 0.5
    torch.testing.assert_close(squash(z, True), z * torch.asinh(torch.tensor(r, dtype=torch.float64)) / r)
    torch.testing.assert_close(squash(z, False), torch.asinh(z))
    assert torch.equal(squash(torch.zeros(2, 3), True), torch.zeros(2, 3))
    x = torch.zeros(2, 3, requires_grad=True)
    squash(x, True).sum().backward()
    assert bool(torch.isfinite(x.grad).all())


def test_bad_scale():
    with pytest.raises(ValueError, match="scale must be finite and above 0, got -1"):
        StablePreconditioning(-1.0)


@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0])
def test_preconditioning_for_data_is_nearly_exact_on_stable_data(alpha):
    # Whatever the scale of the data: with F = 0 the denoiser is that of SαS(s), and the median of |x| is s within 5 %
    # (1 for a Cauchy law, 0.954 for N(0, 2); 20000 values give it to 1 %).
    x = 0.8 * IndependentStable(alpha, torch.zeros(1), 1.0).sample((20_000,), torch.Generator().manual_seed(0))
    assert StablePreconditioning.for_data(x).scale == pytest.approx(0.8, rel=0.06)
    narrow = torch.cat([torch.full((60, 1), 0.01), torch.ones(40, 1)])
    assert StablePreconditioning.for_data(narrow).scale == 0.5


def test_bounded_preconditioning_is_edms_at_alpha_two():
    # With noise of variance σ² = 2σ̄² and data of variance s² (γ̄ = 1): x̂_0 = c_skip' x - c_out' F with EDM's
    # c_skip' = s²/(s² + σ²), c_out' = σ s/√(s² + σ²), c_in' = 1/√(s² + σ²).
    process, s = LevyProcess(2.0, ExplodingSchedule()), 0.5
    t = torch.tensor(0.6, dtype=torch.float64)
    sigma = 2**0.5 * process.schedule.sigma_bar(t)
    x = 0.1 * X  # not larger than twice the data
    seen = {}

    def network(x, t):
        seen["input"] = x
        return torch.full_like(x, 0.7)

    x_0 = Denoiser(network, process, BoundedPreconditioning(s), dtype=torch.float64).x0(x, t)
    norm = (sigma**2 + s**2) ** 0.5
    torch.testing.assert_close(x_0, s**2 / norm**2 * x - sigma * s / norm * 0.7)
    torch.testing.assert_close(seen["input"], x / norm)


@pytest.mark.parametrize("isotropic", [True, False])
@pytest.mark.parametrize("alpha", [0.8, 1.5, 2.0])
def test_bounded_preconditioning_leaves_no_noise_in_the_far_tail(alpha, isotropic):
    # x̂_0 = γ̄s²x/D with D ≥ m² - 4(γ̄s)²: for m ≫ γ̄s it is at most γ̄s²/m, whatever the time; F adds at most s|F|.
    process, s = LevyProcess(alpha, isotropic=isotropic), 0.7
    far = 1e6 * torch.randn(5, 3, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    times = T
    nothing = Denoiser(zero, process, BoundedPreconditioning(s), dtype=torch.float64).x0(far, times)
    assert float(nothing.abs().max()) < 1e-3
    one = Denoiser(lambda x, t: torch.ones_like(x), process, BoundedPreconditioning(s), dtype=torch.float64)
    torch.testing.assert_close(one.x0(far, times), torch.full_like(far, -s), rtol=1e-3, atol=1e-3)


def test_what_the_network_learns_has_scale_one_in_the_tail_too():
    # For data N(0, s²) in many dimensions (c_skip x - ε)/c_out has mean square 1, at any size of A: that is what
    # c_out is for. With 4000 values the mean square has a standard error of 2 %; the rest of the tolerance is for the
    # middle, where a sample of twice the data's size is not yet told from noise.
    process, s = LevyProcess(1.5), 0.7
    generator = torch.Generator().manual_seed(0)
    x_0 = s * torch.randn(5, 4000, dtype=torch.float64, generator=generator)
    eps = torch.randn(5, 4000, dtype=torch.float64, generator=generator)
    precondition = BoundedPreconditioning(s)
    for a, tolerance in ((2.0, 0.1), (1e4, 0.1), (1e8, 0.1)):
        gamma_bar, sigma_bar = process.levels(T, x_0)
        noise = a**0.5 * eps
        x_t = gamma_bar * x_0 + sigma_bar * noise
        error = Denoiser(zero, process, precondition, dtype=torch.float64)(x_t, T) - noise
        target = error / precondition.scales(process, x_t, T)[1]
        known = T.new_tensor([0, 1, 2, 3, 4] if a == 2.0 else [1, 2, 3, 4]).long()
        size = target.square().mean(1)[known]
        assert bool(((size - 1).abs() < tolerance).all()), (a, size)


@pytest.mark.parametrize("t", [0.5, 0.9])
def test_the_self_weighted_loss_of_bounded_data_has_no_large_values(t):
    # With N the size of the noise in a sample, the residual over c_out is about N/n, and n² ≥ max(2σ̄², m² - 4(γ̄s)²)
    # keeps N²/n² below some (3γ̄s)²/(2σ̄²), here about 5, for each of 16 coordinates; weights are below 1.
    process = LevyProcess(1.2)
    x_0 = torch.randn(100_000, 16, generator=torch.Generator().manual_seed(0)).sign()
    denoiser = Denoiser(zero, process, BoundedPreconditioning(1.0))
    times = torch.full((100_000,), t)
    loss = SelfWeightedLoss().evaluate(denoiser, x_0, times, torch.Generator().manual_seed(1))
    assert float(loss.max()) < 16 * 5


def test_the_scale_of_bounded_data_is_their_root_mean_square():
    assert BoundedPreconditioning.for_data(torch.tensor([[3.0, -4.0], [0.0, 5.0]])).scale == pytest.approx(12.5**0.5)
    with pytest.raises(ValueError, match="scale must be finite and above 0, got 0"):
        BoundedPreconditioning.for_data(torch.zeros(3, 2))
