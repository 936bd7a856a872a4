"""Denoising losses: each formula re-derived here, equal under the same seed."""

import math

import pytest
import torch
from torch import nn

from levydiff import (
    Clipping,
    DDPMLoss,
    Denoiser,
    LevyProcess,
    LIMLoss,
    MedianOfMeans,
    OneVariableLoss,
    SelfWeightedLoss,
    StableOracle,
    StablePreconditioning,
)
from levydiff.loss import residual_norm
from levydiff.rng import SampleStreams
from levydiff.stable import positive_stable

B, D = 16, 3
X0 = torch.randn(B, D, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def network(x, t):
    return torch.tanh(x) * t.unsqueeze(-1) + 0.1 * x


def denoiser(alpha, isotropic=True, preconditioning=None):
    return Denoiser(network, LevyProcess(alpha, isotropic=isotropic), preconditioning, dtype=torch.float64)


def generator():
    return torch.Generator().manual_seed(7)


def redraw(process, x_0=X0, grid=None):
    """t, A, ε, x_t as the losses draw them: times first, then A, then G."""
    source = generator()
    u = torch.rand(len(x_0), generator=source, dtype=torch.float64)
    t_min, t_max = process.schedule.t_min, process.schedule.t_max
    t = t_min + (t_max - t_min) * u if grid is None else grid[1:][(u * (len(grid) - 1)).long()]
    shape = (len(x_0), 1) if process.isotropic else tuple(x_0.shape)
    a = positive_stable(process.alpha, shape, source, torch.float64)
    eps = a.sqrt() * torch.randn(x_0.shape, generator=source, dtype=torch.float64)
    gamma_bar, sigma_bar = (f(t).unsqueeze(-1) for f in (process.schedule.gamma_bar, process.schedule.sigma_bar))
    return t, a, eps, gamma_bar * x_0 + sigma_bar * eps


@pytest.mark.parametrize("isotropic", [True, False])
@pytest.mark.parametrize(("p", "eta"), [(2, 1), (1, 1), (2, 1.3), (3, 0.5), (1.2, 1.2)])
def test_one_variable(p, eta, isotropic):
    d = denoiser(1.7, isotropic)
    t, _, eps, x_t = redraw(d.process)
    expected = ((network(x_t, t) - eps).abs() ** p).sum(1) ** (eta / p)
    torch.testing.assert_close(OneVariableLoss(p, eta)(d, X0, generator()), expected)


def test_grid_times():
    d = denoiser(1.7)
    grid = d.process.schedule.grid(5)
    t, _, eps, x_t = redraw(d.process, grid=grid)
    assert set(t.tolist()) <= set(grid[1:].tolist())
    torch.testing.assert_close(OneVariableLoss(grid=grid)(d, X0, generator()), (network(x_t, t) - eps).norm(dim=1))


def test_rescaled():
    d = denoiser(1.7, preconditioning=StablePreconditioning(0.5))
    t, _, eps, x_t = redraw(d.process)
    _, c_out = d.preconditioning.scales(d.process, x_t, t)
    expected = ((d(x_t, t) - eps) / c_out).norm(dim=1)
    torch.testing.assert_close(OneVariableLoss(rescaled=True)(d, X0, generator()), expected)


def test_inner_average_shares_a_and_t():
    # (1/K Σ_k ‖ε̂ - ε‖²)^{1/2} over K data points with one A and one t.
    d, k = denoiser(1.7), 4
    source = generator()
    schedule = d.process.schedule
    t = schedule.t_min + (schedule.t_max - schedule.t_min) * torch.rand(B, generator=source, dtype=torch.float64)
    a = positive_stable(1.7, (B, 1), source, torch.float64)
    g = torch.randn(B * k, D, generator=source, dtype=torch.float64).reshape(B, k, D)
    total = torch.zeros(B, dtype=torch.float64)
    for j in range(k):
        eps = a.sqrt() * g[:, j]
        x_t = schedule.gamma_bar(t)[:, None] * X0.roll(-j, 0) + schedule.sigma_bar(t)[:, None] * eps
        total += (network(x_t, t) - eps).square().sum(1)
    torch.testing.assert_close(OneVariableLoss(inner=k)(d, X0, generator()), (total / k).sqrt())


def test_inner_average_picks_the_conditions_of_its_rows():
    seen = {}

    def conditional(x, t, label, style):
        seen.update(label=label, style=style)
        return x

    d = Denoiser(conditional, LevyProcess(1.7))
    OneVariableLoss(inner=2)(d, X0, label=torch.arange(B), style="plain")
    assert seen["label"].tolist() == [v % B for j in range(B) for v in (j, j + 1)]
    assert seen["style"] == "plain"


@pytest.mark.parametrize("isotropic", [True, False])
def test_self_weighted(isotropic):
    d = denoiser(1.2, isotropic, StablePreconditioning(0.5))
    t, _, eps, x_t = redraw(d.process)
    c_in, c_out = d.preconditioning.scales(d.process, x_t, t)
    size = (c_in * x_t).square()
    sigma_bar = d.process.schedule.sigma_bar(t).unsqueeze(1)
    weight = (c_in * sigma_bar) ** (2 - 1.2) / (1 + (size.mean(1, keepdim=True) if isotropic else size))
    expected = (weight * ((d(x_t, t) - eps) / c_out) ** 2).sum(1)
    torch.testing.assert_close(SelfWeightedLoss()(d, X0, generator()), expected)


@pytest.mark.parametrize("alpha", [0.8, 1.2, 1.7])
def test_self_weighted_loss_is_bounded_at_all_times(alpha):
    # Zero network, Gaussian data: without the weight of time the mean grows as σ̄^{α-2}, a factor 10⁵ at α = 0.8.
    d = Denoiser(lambda x, t: torch.zeros_like(x), LevyProcess(alpha), StablePreconditioning())
    x_0 = torch.randn(200_000, 2, generator=generator())
    means = [
        float(SelfWeightedLoss(grid=torch.tensor([0.0, t]))(d, x_0, generator()).mean()) for t in (1e-4, 1e-2, 0.5)
    ]
    assert max(means) < 5


def test_self_weighted_minimiser_is_the_mean():
    # Fit ε̂ = c·x_t at one time on stable data: least squares gives E[ε|x_t] = c*·x_t with c* of the oracle; the
    # unsquared loss does not have to. Standard error of c over 4·10⁵ samples: below 0.3 %.
    process, n = LevyProcess(1.3), 400_000
    source = torch.Generator().manual_seed(3)
    x_0 = process.noise((n, 1), source, torch.float64)[0]
    grid = torch.tensor([0.0, 0.5])
    slope = nn.Parameter(torch.tensor(0.3, dtype=torch.float64))
    d = Denoiser(lambda x, t: slope * x, process, dtype=torch.float64)
    optimizer = torch.optim.LBFGS([slope], line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        value = SelfWeightedLoss(grid=grid)(d, x_0, torch.Generator().manual_seed(4)).mean()
        value.backward()
        return value

    optimizer.step(closure)
    exact = float(StableOracle(process)(torch.ones(1, 1, dtype=torch.float64), torch.tensor(0.5, dtype=torch.float64)))
    assert float(slope.detach()) == pytest.approx(exact, rel=0.01)


def test_ddpm_to_the_last_digit():
    d = denoiser(2.0)
    t, a, eps, x_t = redraw(d.process)
    assert bool((a == 2).all())
    expected = ((network(x_t, t) - eps) ** 2).sum(1)
    assert torch.equal(OneVariableLoss(p=2, eta=2)(d, X0, generator()), expected)
    assert torch.equal(DDPMLoss()(d, X0, generator()), expected)


@pytest.mark.parametrize("beta", [0.0, 1.0])
def test_lim(beta):
    d = denoiser(1.5)
    t, _, eps, x_t = redraw(d.process)
    v = (network(x_t, t) - eps).abs()
    expected = (torch.where(v < beta, v**2 / 2, v - beta / 2)).sum(1)
    torch.testing.assert_close(LIMLoss(beta=beta)(d, X0, generator()), expected)


def test_lim_clipping():
    d = denoiser(1.5)
    t, a, eps, _ = redraw(d.process)
    eps = eps * (a.clamp(max=4) / a).sqrt()
    norm = eps.norm(dim=1, keepdim=True)
    eps = torch.where(norm > 2, eps * 2 / norm, eps)
    x_t = d.process.schedule.gamma_bar(t)[:, None] * X0 + d.process.schedule.sigma_bar(t)[:, None] * eps
    expected = (network(x_t, t) - eps).abs().sum(1)
    torch.testing.assert_close(LIMLoss(beta=0.0, clipping=Clipping(4.0, 2.0))(d, X0, generator()), expected)


@pytest.mark.parametrize(
    "loss",
    [OneVariableLoss(), SelfWeightedLoss(), LIMLoss(), MedianOfMeans(OneVariableLoss(), 3)],
    ids=lambda loss: type(loss).__name__,
)
def test_with_one_stream_per_sample_the_split_of_a_batch_does_not_matter(loss):
    d = denoiser(1.7)
    whole = loss(d, X0, SampleStreams.seeded(B, generator()))
    parts = [loss(d, x, s) for x, s in zip(X0.split(6), SampleStreams.seeded(B, generator()).split(6), strict=True)]
    torch.testing.assert_close(whole, torch.cat(parts), rtol=1e-12, atol=0)


def test_a_compiled_denoiser_has_the_same_loss():
    d = denoiser(1.7, preconditioning=StablePreconditioning(0.5))
    wrapped = torch.compile(d, backend="eager")
    for loss in (SelfWeightedLoss(), OneVariableLoss(rescaled=True)):
        torch.testing.assert_close(loss(wrapped, X0, generator()), loss(d, X0, generator()))


def test_gradient_at_a_zero_residual():
    weight = nn.Parameter(torch.zeros(()))
    residual_norm(weight * X0, 2.0, 1.0).sum().backward()
    assert float(weight.grad) == 0.0


def test_bad_input():
    with pytest.raises(ValueError, match="eta must be below alpha = 1.5 for the loss to be finite, got 1.5"):
        OneVariableLoss(eta=1.5)(denoiser(1.5), X0)
    with pytest.raises(ValueError, match="eta must be below alpha = 1 for"):
        LIMLoss()(denoiser(1.0), X0)
    LIMLoss(clipping=Clipping())(denoiser(1.0), X0)
    with pytest.raises(ValueError, match="process.alpha must be 2 for DDPMLoss, got 1.9"):
        DDPMLoss()(denoiser(1.9), X0)
    bad = X0.clone()
    bad[3, 1] = math.nan
    for loss in (OneVariableLoss(), SelfWeightedLoss(), LIMLoss(), MedianOfMeans(OneVariableLoss(), 2)):
        with pytest.raises(ValueError, match="x_0 must be finite, but row 3 holds NaN or infinity"):
            loss(denoiser(1.7), bad)
    with pytest.raises(ValueError, match=r"x_0 must be a non-empty float32 or float64 tensor of shape \(B, ...\)"):
        OneVariableLoss()(denoiser(1.7), torch.zeros(3))
    with pytest.raises(ValueError, match="inner must be a whole number of at least 1, got 0"):
        OneVariableLoss(inner=0)
    with pytest.raises(ValueError, match="p must be finite and above 0, got -2"):
        OneVariableLoss(p=-2)
    with pytest.raises(ValueError, match="grid must increase"):
        OneVariableLoss(grid=torch.tensor([0.0, 0.7, 0.3]))


@pytest.mark.parametrize("isotropic", [True, False])
def test_the_self_weighted_loss_is_finite_where_squares_of_the_noise_are_not(isotropic):
    # P(|ε| > 1.8e19), whose square float32 cannot hold, is about 1e-4 at α = 0.2: some in 50000 draws.
    process = LevyProcess(0.2, isotropic=isotropic)
    x_0 = torch.randn(50_000, 2, generator=generator())
    assert float(process.noise(x_0.shape, generator(), torch.float64)[0].abs().max()) > 1.8e19
    still = Denoiser(lambda x, t: 0 * x, process, StablePreconditioning())
    assert bool(torch.isfinite(SelfWeightedLoss()(still, x_0, generator())).all())
