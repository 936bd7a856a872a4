"""The oracles are conditional expectations: checked by quadrature and by regression."""

import pytest
import torch

from levydiff import IndependentStable, LevyProcess, MixtureOracle, PointMassOracle, StableOracle


@pytest.mark.parametrize("alpha", [0.7, 1.0, 1.3, 1.7, 2.0])
def test_stable_oracle_is_the_conditional_mean(alpha):
    # E[ε | x_t] = ∫ ε f(ε) h((x_t - σ̄ε)/γ̄) dε / ∫ …, f = SαS(1), h = SαS(s), by the trapezoidal rule in ε = sinh(y).
    process, s = LevyProcess(alpha), 0.6
    t, x = torch.tensor(0.5, dtype=torch.float64), 1.4
    gamma_bar, sigma_bar = (float(f(t)) for f in (process.schedule.gamma_bar, process.schedule.sigma_bar))
    one = torch.tensor(1.0, dtype=torch.float64)
    y = torch.linspace(-16, 16, 4001, dtype=torch.float64)
    eps = torch.sinh(y)
    log_f = IndependentStable(one * alpha, 0.0, one).log_prob(eps)
    log_h = IndependentStable(one * alpha, 0.0, one * s).log_prob((x - sigma_bar * eps) / gamma_bar)
    density = (log_f + log_h).exp() * torch.cosh(y)
    mean = torch.trapezoid(eps * density, y) / torch.trapezoid(density, y)
    predicted = StableOracle(process, s)(torch.full((1, 1), x, dtype=torch.float64), t)
    assert float(predicted) == pytest.approx(float(mean), rel=1e-4)


def test_flow_conserves_the_invariant():
    # dy/dν = ε̂ along the exact map x_t = total_scale(t)·c, by central differences.
    oracle = StableOracle(LevyProcess(1.6), scale=0.7)
    t = torch.linspace(0.2, 0.8, 2001, dtype=torch.float64)
    one = torch.ones(len(t), 1, dtype=torch.float64)
    x = oracle.total_scale(one, t) * one
    gamma_bar, sigma_bar = oracle.process.levels(t, one)
    y, nu = x / gamma_bar, sigma_bar / gamma_bar
    slope = (y[2:] - y[:-2]) / (nu[2:] - nu[:-2])
    torch.testing.assert_close(slope, oracle(x, t)[1:-1], rtol=1e-5, atol=0)
    torch.testing.assert_close(oracle.exact_data(x, t), 0.7 * one)


def test_point_mass():
    process = LevyProcess(1.3)
    mu = torch.tensor([2.0, -1.0], dtype=torch.float64)
    t = torch.full((100,), 0.7, dtype=torch.float64)
    x_t, eps, _ = process.perturb(mu.expand(100, 2), t, torch.Generator().manual_seed(0))
    torch.testing.assert_close(PointMassOracle(process, mu)(x_t, t), eps)


def test_mixture_oracle_is_the_score():
    # At α = 2, ε̂ = -2σ̄ ∇ log p_t, with p_t the noised mixture and its gradient by autograd.
    process = LevyProcess(2.0)
    means = torch.tensor([[-1.0, 0.5], [0.3, 0.2], [1.0, -1.0]], dtype=torch.float64)
    stds = torch.tensor([0.1, 0.4, 0.2], dtype=torch.float64)
    weights = torch.tensor([1.0, 3.0, 2.0], dtype=torch.float64)
    oracle = MixtureOracle(process, means, stds, weights)
    x = torch.randn(7, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64, requires_grad=True)
    t = torch.linspace(0.05, 0.9, 7, dtype=torch.float64)
    gamma_bar, sigma_bar = process.levels(t, x)
    components = torch.distributions.Normal(
        gamma_bar[:, :, None] * means, ((gamma_bar * stds) ** 2 + 2 * sigma_bar**2)[:, :, None].sqrt()
    )
    log_p = torch.logsumexp((weights / 6).log() + components.log_prob(x[:, None]).sum(-1), dim=1)
    (score,) = torch.autograd.grad(log_p.sum(), x)
    torch.testing.assert_close(oracle(x, t), -2 * sigma_bar * score)
    torch.testing.assert_close(oracle(x, t)[:1], oracle(x[:1], t[0]))  # a scalar time


def test_bad_input():
    with pytest.raises(ValueError, match="scale must be finite and above 0, got 0"):
        StableOracle(LevyProcess(1.5), 0.0)
    with pytest.raises(ValueError, match="process.alpha must be 2 for a Gaussian mixture oracle, got 1.5"):
        MixtureOracle(LevyProcess(1.5), torch.zeros(2, 2), torch.ones(2), torch.ones(2))
    with pytest.raises(ValueError, match="means, stds and weights must have shapes"):
        MixtureOracle(LevyProcess(2.0), torch.zeros(2, 2), torch.ones(3), torch.ones(2))
    with pytest.raises(ValueError, match="weights must be above 0"):
        MixtureOracle(LevyProcess(2.0), torch.zeros(2, 2), torch.ones(2), torch.tensor([1.0, -1.0]))
