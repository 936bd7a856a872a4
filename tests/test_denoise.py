"""Preconditioning, conversions, and the denoiser around any backbone."""

import pytest
import torch
from torch import nn

from levydiff import (
    Denoiser,
    ExplodingSchedule,
    IndependentStable,
    LevyProcess,
    StableOracle,
    StablePreconditioning,
    eps_from_score,
    eps_from_x0,
    score_from_eps,
    x0_from_eps,
)
from levydiff.precondition import squash

T = torch.tensor([0.01, 0.2, 0.5, 0.8, 0.99], dtype=torch.float64)
X = torch.randn(5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def zero(x, t):
    return torch.zeros_like(x)


@pytest.mark.parametrize("alpha", [0.7, 1.0, 1.5, 2.0])
def test_round_trips(alpha):
    process = LevyProcess(alpha)
    eps = X.flip(0)
    torch.testing.assert_close(eps_from_x0(process, X, T, x0_from_eps(process, X, T, eps)), eps)
    torch.testing.assert_close(eps_from_score(process, T, score_from_eps(process, T, eps)), eps)


def test_score_is_the_gaussian_score_at_alpha_two():
    # ∇ log N(x; γ̄x_0, 2σ̄²I) = -(x - γ̄x_0)/(2σ̄²)
    process = LevyProcess(2.0)
    x_0 = X.flip(0)
    gamma_bar, sigma_bar = process.levels(T, X)
    eps = eps_from_x0(process, X, T, x_0)
    torch.testing.assert_close(score_from_eps(process, T, eps), -(X - gamma_bar * x_0) / (2 * sigma_bar**2))


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


def test_backbone_sees_its_own_dtype_and_one_time_per_sample():
    seen = {}

    class Spy(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x, t, label):
            seen.update(x=x, t=t, label=label)
            return self.layer(x)

    denoiser = Denoiser(Spy(), LevyProcess(1.5), StablePreconditioning())
    out = denoiser(X, torch.tensor(0.5, dtype=torch.float64), label="seven")
    assert out.dtype == torch.float64 and denoiser.dtype == torch.float32
    assert seen["x"].dtype == seen["t"].dtype == torch.float32
    assert seen["t"].shape == (5,) and seen["label"] == "seven"


def test_learned_variance_splits_the_channels():
    def network(x, t):
        return torch.cat([x, 2 * x], dim=1)

    denoiser = Denoiser(network, LevyProcess(1.5), learned_variance=True, dtype=torch.float64)
    eps, v = denoiser.eps_and_variance(X, T)
    torch.testing.assert_close(eps, X)
    torch.testing.assert_close(v, 2 * X)
    with pytest.raises(ValueError, match=r"backbone's output must have shape \(5, 6\), got \(5, 3\)"):
        Denoiser(zero, LevyProcess(1.5), learned_variance=True)(X, T)
    with pytest.raises(ValueError, match=r"backbone's output must have shape \(5, 3\), got \(5, 6\)"):
        Denoiser(network, LevyProcess(1.5))(X, T)


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
