"""The KL losses: re-derived from Gaussian and Cauchy divergences, and agreeing in expectation."""

import math

import pytest
import torch
from torch.distributions import Cauchy, Normal, kl_divergence

from levydiff import CauchyLoss, Denoiser, FullKLLoss, LevyProcess, OneVariableLoss, StableOracle, TwoVariableLoss
from levydiff.rng import SampleStreams
from levydiff.stable import positive_stable

B, D, T = 16, 3, 8
X0 = torch.randn(B, D, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def network(x, t):
    return 0.4 * torch.tanh(x) + 0.2 * x * t.unsqueeze(-1)


def generator(seed=7):
    return torch.Generator().manual_seed(seed)


def setup(alpha, isotropic=True, learned=False):
    process = LevyProcess(alpha, isotropic=isotropic)

    def both(x, t):
        return torch.cat([network(x, t), 0.3 * torch.sin(x)], dim=1)

    return Denoiser(
        both if learned else network, process, learned_variance=learned, dtype=torch.float64
    ), process.schedule.grid(T)


def reference(denoiser, grid, steps, var_previous, jump, g, r, learned=False, x_0=X0):
    """KL^r from torch's own Normal divergence between the posterior (by Bayes) and the model's step."""
    process = denoiser.process
    values = []
    for b in range(len(steps)):
        i = int(steps[b])
        step = process.schedule.chain(grid).step(i)
        before, leap = var_previous[b], jump[b]
        var = leap + step.gamma**2 * before
        x_t = step.gamma_bar * x_0[b] + var.sqrt() * g[b]
        t = grid[i : i + 1]
        gain = leap / var
        posterior_var = 1 / (step.gamma**2 / leap + 1 / before)
        posterior_mean = (step.gamma * x_t / leap + step.gamma_bar_previous * x_0[b] / before) * posterior_var
        model_mean = (x_t - gain * step.sigma_bar * network(x_t[None], t)[0]) / step.gamma
        v = 0.3 * torch.sin(x_t) if learned else torch.zeros(D)
        model_var = posterior_var ** (1 - v) * leap**v
        one = torch.ones(D, dtype=torch.float64)
        kl = kl_divergence(
            Normal(posterior_mean, posterior_var.sqrt() * one), Normal(model_mean, model_var.sqrt() * one)
        )
        values.append(kl.sum() ** r)
    return torch.stack(values)


@pytest.mark.parametrize("isotropic", [True, False])
@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("r", [0.5, 0.3])
def test_two_variables(isotropic, learned, r):
    d, grid = setup(1.7, isotropic, learned)
    source = generator()
    steps = 2 + (torch.rand(B, generator=source) * (T - 1)).long()
    shape = (B, 1) if isotropic else (B, D)
    a_0, a_1 = (positive_stable(1.7, shape, source, torch.float64) for _ in range(2))
    g = torch.randn(B, D, generator=source, dtype=torch.float64)
    chain = d.process.schedule.chain(grid)
    var_previous = chain.sigma_bar[steps - 1].unsqueeze(1) ** 2 * a_0
    jump = chain.sigma[steps].unsqueeze(1) ** 2 * a_1
    expected = reference(d, grid, steps, var_previous, jump, g, r, learned)
    torch.testing.assert_close(TwoVariableLoss(grid, r=r)(d, X0, generator()), expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("isotropic", [True, False])
@pytest.mark.parametrize("learned", [False, True])
def test_full(isotropic, learned):
    d, grid = setup(1.7, isotropic, learned)
    source = generator()
    steps = 2 + (torch.rand(B, generator=source) * (T - 1)).long()
    path = d.process.draw_path((B, D), grid, source)
    g = torch.randn(B, D, generator=source, dtype=torch.float64)
    rows = torch.arange(B)
    jump = path.chain.sigma[steps].unsqueeze(1) ** 2 * path.a[steps - 1, rows].double()
    expected = reference(d, grid, steps, path.var[steps - 1, rows].double(), jump, g, 0.5, learned)
    torch.testing.assert_close(FullKLLoss(grid)(d, X0, generator()), expected, rtol=1e-6, atol=1e-9)


def test_equal_variances_give_lambda():
    # KL = λ²‖ε̂ - ε‖², λ² = Γ²σ̄²/(2γ²Σ̃); at α = 2: Γ = σ²/σ̄², Σ = 2σ̄², a deterministic weight.
    process = LevyProcess(2.0)
    grid = process.schedule.grid(T)
    d = Denoiser(network, process, dtype=torch.float64)
    values = TwoVariableLoss(grid, r=1.0)(d, X0, generator())
    source = generator()
    steps = 2 + (torch.rand(B, generator=source) * (T - 1)).long()
    eps = math.sqrt(2) * torch.randn(B, D, generator=source, dtype=torch.float64)
    for b in range(B):
        step = process.schedule.chain(grid).step(int(steps[b]))
        gain = step.sigma**2 / step.sigma_bar**2
        weight = gain**2 * step.sigma_bar**2 / (2 * step.gamma**2 * gain * 2 * step.sigma_bar_previous**2)
        x_t = step.gamma_bar * X0[b] + step.sigma_bar * eps[b]
        residual = network(x_t[None], grid[steps[b]][None])[0] - eps[b]
        assert float(values[b]) == pytest.approx(float(weight * residual.square().sum()), rel=1e-8)


@pytest.mark.parametrize("alpha", [1.3, 1.8])
def test_two_variables_and_full_agree_in_expectation(alpha):
    # r = 0.3: KL^{2r} has a finite mean (2r < α/2), so they have standard errors; within 4 of them.
    process = LevyProcess(alpha)
    grid, n = process.schedule.grid(5), 200_000
    x_0 = torch.randn(n, 1, generator=generator(1))
    d = StableOracle(process, 0.5)
    two, full = (loss(grid, r=0.3)(d, x_0, generator(2)) for loss in (TwoVariableLoss, FullKLLoss))
    error = math.sqrt(float(two.var() + full.var()) / n)
    assert abs(float(two.mean() - full.mean())) < 4 * error


def test_split_of_a_batch_does_not_matter():
    for alpha, isotropic, loss in ((1.7, True, TwoVariableLoss), (1.7, True, FullKLLoss), (1.0, False, CauchyLoss)):
        d, grid = setup(alpha, isotropic)
        whole = loss(grid)(d, X0, SampleStreams.seeded(B, generator()))
        parts = zip(X0.split(6), SampleStreams.seeded(B, generator()).split(6), strict=True)
        torch.testing.assert_close(whole, torch.cat([loss(grid)(d, x, s) for x, s in parts]), rtol=1e-9, atol=0)


@pytest.mark.parametrize("learned", [False, True])
def test_inner_average(learned):
    # K rows share the step and both A, have the data of neighbours, and their divergences are averaged before the root.
    d, grid = setup(1.7, learned=learned)
    k = 3
    source = generator()
    steps = 2 + (torch.rand(B, generator=source) * (T - 1)).long()
    a_0, a_1 = (positive_stable(1.7, (B, 1), source, torch.float64) for _ in range(2))
    g = torch.randn(B * k, D, generator=source, dtype=torch.float64)
    chain = d.process.schedule.chain(grid)
    var_previous = chain.sigma_bar[steps - 1].unsqueeze(1) ** 2 * a_0
    jump = chain.sigma[steps].unsqueeze(1) ** 2 * a_1
    shared = (v.repeat_interleave(k, 0) for v in (steps, var_previous, jump))
    neighbours = X0[[(b + j) % B for b in range(B) for j in range(k)]]
    each = reference(d, grid, *shared, g, 1.0, learned, neighbours)
    expected = each.reshape(B, k).mean(1).sqrt()
    torch.testing.assert_close(TwoVariableLoss(grid, inner=k)(d, X0, generator()), expected, rtol=1e-6, atol=1e-9)


def test_cauchy():
    # KL(C(μ1, ρ) ‖ C(μ2, ρ)) = log(1 + (μ1 - μ2)²/(4ρ²)), Chyzak & Nielsen 2019, between the true and the model's mean.
    process = LevyProcess(1.0, isotropic=False)
    grid = process.schedule.grid(T)
    source = generator()
    steps = 2 + (torch.rand(B, generator=source) * (T - 1)).long()
    a = positive_stable(1.0, (B, D), source, torch.float64)
    eps = a.sqrt() * torch.randn(B, D, generator=source, dtype=torch.float64)
    chain = process.schedule.chain(grid)
    expected = torch.zeros(B, dtype=torch.float64)
    for b in range(B):
        step = chain.step(int(steps[b]))
        rho = 0.8 * step.sigma_bar_previous * step.sigma / step.sigma_bar
        x_t = step.gamma_bar * X0[b] + step.sigma_bar * eps[b]
        predicted = network(x_t[None], grid[steps[b]][None])[0]
        true_mean = step.gamma_bar_previous * X0[b] + (step.sigma_bar_previous - rho) * eps[b]
        model_mean = (x_t - step.sigma_bar * predicted) / step.gamma + (step.sigma_bar_previous - rho) * predicted
        expected[b] = torch.log1p((true_mean - model_mean) ** 2 / (4 * rho**2)).sum()
    d = Denoiser(network, process, dtype=torch.float64)
    torch.testing.assert_close(CauchyLoss(grid, rho=0.8)(d, X0, generator()), expected)


def test_the_cauchy_divergence_formula():
    # by quadrature over x = tan(πu - π/2)
    u = torch.linspace(0, 1, 200_001, dtype=torch.float64)[1:-1]
    p, q = Cauchy(torch.tensor(0.3), torch.tensor(0.7)), Cauchy(torch.tensor(1.1), torch.tensor(0.7))
    x = 0.3 + 0.7 * torch.tan(math.pi * (u - 0.5))
    kl = (p.log_prob(x) - q.log_prob(x)).mean()
    assert float(kl) == pytest.approx(math.log1p(0.8**2 / (4 * 0.7**2)), rel=1e-3)


def test_gradient_of_learned_variance():
    d, grid = setup(1.7, learned=True)
    x = X0.clone().requires_grad_()
    FullKLLoss(grid)(d, x, generator()).sum().backward()
    assert bool(torch.isfinite(x.grad).all())


def test_bad_input():
    d, grid = setup(1.5)
    for loss in (TwoVariableLoss, FullKLLoss):
        with pytest.raises(ValueError, match="r must be below alpha/2 = 0.75 for the loss to be finite, got 0.75"):
            loss(grid, r=0.75)(d, X0)
        with pytest.raises(ValueError, match=r"r must lie in \(0, 1\], got 1.5"):
            loss(grid, r=1.5)
        with pytest.raises(ValueError, match="grid must have at least 2 steps"):
            loss(torch.tensor([0.0, 0.5]))
    with pytest.raises(ValueError, match="process must have alpha = 1 and isotropic = False for CauchyLoss"):
        CauchyLoss(grid)(d, X0)
    with pytest.raises(ValueError, match=r"rho must lie in \(0, 1\], got 0"):
        CauchyLoss(grid, rho=0.0)
    # the finiteness check of the one-variable loss is the same with η = 2r
    with pytest.raises(ValueError, match="eta must be below alpha"):
        OneVariableLoss(eta=1.5)(d, X0)
