"""Preconditioning, conversions, and the denoiser around any backbone."""

import pytest
import torch
from torch import nn

from levydiff import (
    DLIM,
    Denoiser,
    LevyProcess,
    StablePreconditioning,
    eps_from_score,
    eps_from_x0,
    score_from_eps,
    x0_from_eps,
)

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


def test_half_precision_tells_a_thousand_times_apart():
    seen = []

    class Spy(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x, t):
            seen.append(float(t[0]))
            return self.layer(x)

    DLIM(Denoiser(Spy().bfloat16(), LevyProcess(1.5)), 1000)((2, 3))
    assert len(set(seen)) == 1000
