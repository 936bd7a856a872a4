"""The stable laws against their transforms, scipy's cdf and closed forms."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch.distributions import Independent

from levydiff import IndependentStable, IsotropicStable, PositiveStable
from levydiff.rng import SampleStreams
from levydiff.stable import positive_stable

ALPHAS = [0.3, 0.8, 1.0, 1.2, 1.5, 1.7, 1.9, 1.99, 2.0]
N = 1_000_000


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_laplace_transform_of_a(alpha, dtype):
    # E exp(-sA) = exp(-(2s)^{α/2}); exp(-sA) lies in [0, 1], so its mean errs by less than 4·sd/√N.
    a = positive_stable(alpha, (N,), generator(1), dtype).double()
    for s in (0.05, 0.5, 2.0):
        values = torch.exp(-s * a)
        error = abs(float(values.mean()) - math.exp(-((2 * s) ** (alpha / 2))))
        assert error <= 4 * float(values.std()) / math.sqrt(N) + 1e-7


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("isotropic", [True, False])
def test_characteristic_function(alpha, isotropic):
    # E cos(u·X) = exp(-‖σu‖^α) or exp(-Σ|σu_i|^α), σ = 0.7, within 4 standard errors of the mean of cos.
    scale, d = 0.7, 3
    law = (
        IsotropicStable(alpha, torch.zeros(d), scale)
        if isotropic
        else IndependentStable(alpha, torch.zeros(d), torch.full((d,), scale))
    )
    x = law.sample((N // 2,), generator(2)).double()
    for u in ([1.0, 0.0, 0.0], [0.5, -0.7, 0.3]):
        u = torch.tensor(u, dtype=torch.float64)
        exponent = torch.linalg.vector_norm(u) ** alpha if isotropic else (u.abs() ** alpha).sum()
        values = torch.cos(x @ u)
        error = abs(values.mean() - torch.exp(-(scale**alpha) * exponent))
        assert error <= 4 * values.std() / math.sqrt(len(x))


@pytest.mark.parametrize("alpha", [0.8, 1.0, 1.5, 1.7, 1.9, 2.0])
def test_kolmogorov_against_scipy(alpha):
    # scipy's S1 law with β = 0 and scale 1 has the same characteristic function exp(-|u|^α).
    x = IndependentStable(alpha, 0.0, 1.0).sample((400,), generator(3)).double().numpy()
    assert stats.kstest(x, lambda q: stats.levy_stable.cdf(q, alpha, 0.0)).pvalue > 0.01


@pytest.mark.parametrize("alpha", [0.8, 1.0, 1.7])
def test_kolmogorov_of_a_against_scipy(alpha):
    # Positive stable: S(α/2, 1) with scale 2·cos(πα/4)^{2/α}, the factor 2 included.
    a = positive_stable(alpha, (400,), generator(4), torch.float64).numpy()
    scale = 2 * math.cos(math.pi * alpha / 4) ** (2 / alpha)
    assert stats.kstest(a, lambda q: stats.levy_stable.cdf(q, alpha / 2, 1.0, scale=scale)).pvalue > 0.01


def test_the_factor_two():
    # α = 2: A = 2, X ~ N(0, 2). α = 1: A is the Lévy law of 1/Z², X is standard Cauchy.
    assert torch.equal(positive_stable(2.0, (5,)), torch.full((5,), 2.0))
    x = IsotropicStable(2.0, torch.zeros(1), 3.0).sample((N,), generator(5))
    assert abs(float(x.var()) / 18.0 - 1) < 4 * math.sqrt(2 / N)
    a = positive_stable(1.0, (200_000,), generator(6), torch.float64).numpy()
    assert stats.kstest(a, stats.levy.cdf).pvalue > 0.01
    cauchy = IndependentStable(1.0, 0.0, 1.0).sample((200_000,), generator(7)).double().numpy()
    assert stats.kstest(cauchy, stats.cauchy.cdf).pvalue > 0.01


@pytest.mark.parametrize("alpha", [0.8, 1.5])
def test_tail(alpha):
    # P(|X| > r) r^α → Γ(α) sin(πα/2)·2/π (Samorodnitsky & Taqqu, Property 1.2.15), at r where the correction is < 1 %.
    x = IndependentStable(alpha, 0.0, 1.0).sample((4 * N,), generator(8)).abs()
    constant = 2 / math.pi * math.gamma(alpha) * math.sin(math.pi * alpha / 2)
    r = 200.0 ** (1 / alpha) if alpha < 1 else 60.0
    p = float((x > r).double().mean())
    expected = 2 * stats.levy_stable.sf(r, alpha, 0.0)
    assert abs(p - expected) < 4 * math.sqrt(expected / len(x))
    assert expected * r**alpha == pytest.approx(constant, rel=0.02)


def test_stability_under_addition():
    # SαS(σ1) + SαS(σ2) = SαS((σ1^α + σ2^α)^{1/α}): the sum, rescaled, is SαS(1).
    alpha, s1, s2 = 1.3, 0.4, 1.1
    law = IndependentStable(alpha, 0.0, 1.0)
    x = s1 * law.sample((N,), generator(9)) + s2 * law.sample((N,), generator(10))
    y = law.sample((N,), generator(11))
    total = (s1**alpha + s2**alpha) ** (1 / alpha)
    assert stats.ks_2samp((x / total).numpy(), y.numpy()).pvalue > 0.01


@pytest.mark.parametrize(("alpha", "millions"), [(0.5, 100), (0.7, 20), (1.2, 20), (1.7, 20), (1.99, 20)])
def test_float32_draws_are_finite_and_positive(alpha, millions):
    # 10⁸ draws at the hardest α, where A spans the whole range of float32.
    source = generator(12)
    for _ in range(millions):
        a = positive_stable(alpha, (N,), source)
        assert float(a.min()) > 0
        assert math.isfinite(float(a.max()))
        assert not bool(a.isnan().any())


@pytest.mark.parametrize("alpha", [0.01, 0.1, 0.3])
def test_values_beyond_float32_saturate(alpha):
    a = positive_stable(alpha, (100_000,), generator(13))
    assert bool(torch.isfinite(a).all()) and bool((a > 0).all())


def test_streams_draw_the_same_law():
    a = positive_stable(1.5, (100_000,), SampleStreams.seeded(100_000, generator(14))).numpy()
    b = positive_stable(1.5, (100_000,), generator(15)).numpy()
    assert stats.ks_2samp(a, b).pvalue > 0.01


def fourier_density(x: float, alpha: float) -> float:
    """(1/π) ∫ cos(ux) exp(-u^α) du by mpmath, panel by panel of the oscillation."""
    from mpmath import cos, exp, mp, mpf, pi, quad

    mp.dps = 25
    end = mpf(60) ** (1 / mpf(alpha))
    width = pi / 2 / max(x, 1.0)
    nodes = [width * k for k in range(int(end / width) + 1)] + [end]
    return float(quad(lambda u: cos(u * x) * exp(-(u ** mpf(alpha))), nodes) / pi)


@pytest.mark.parametrize("alpha", [0.5, 0.8, 0.99, 1.01, 1.2, 1.5, 1.7, 1.9, 1.99])
def test_log_prob_against_scipy(alpha):
    # scipy rounds |x| < 0.005 to 0, so the comparison starts above; its own quadrature limits it near α = 2.
    x = np.concatenate([[0.0], np.geomspace(0.05, 50, 60)])
    x = np.concatenate([-x, x])
    law = IndependentStable(torch.tensor(alpha, dtype=torch.float64), 0.0, torch.tensor(1.0, dtype=torch.float64))
    ours = law.log_prob(torch.tensor(x)).exp().numpy()
    np.testing.assert_allclose(ours, stats.levy_stable.pdf(x, alpha, 0.0), rtol=1e-6)


@pytest.mark.parametrize(
    ("alpha", "x"), [(0.9, 0.01), (0.999, 2.0), (1.001, 2.0), (1.2, 1e-3), (1.99, 6.0), (1.999, 6.5)]
)
def test_log_prob_where_scipy_is_weak(alpha, x):
    law = IndependentStable(torch.tensor(alpha, dtype=torch.float64), 0.0, torch.tensor(1.0, dtype=torch.float64))
    assert float(law.log_prob(torch.tensor(x, dtype=torch.float64)).exp()) == pytest.approx(
        fourier_density(x, alpha), rel=1e-9
    )


@pytest.mark.parametrize("alpha", [0.7, 1.4])
def test_density_integrates_to_one(alpha):
    # x = sinh(y) spreads the nodes over the tail, whose mass beyond 1e9 is below 1e-5.
    y = torch.linspace(-21.0, 21.0, 2001, dtype=torch.float64)
    law = IndependentStable(torch.tensor(alpha, dtype=torch.float64), 0.5, torch.tensor(2.0, dtype=torch.float64))
    total = torch.trapezoid(law.log_prob(torch.sinh(y)).exp() * torch.cosh(y), y)
    assert float(total) == pytest.approx(1.0, abs=1e-5)


def test_log_prob_gradients():
    # In x, loc, scale and α, against central differences of the density itself.
    def value(x, loc, scale, alpha):
        return IndependentStable(alpha, loc, scale).log_prob(x)

    inputs = [torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (1.3, 0.2, 0.8, 1.6)]
    assert torch.autograd.gradcheck(value, inputs, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("alpha", [1.0, 2.0])
def test_gradient_in_alpha_at_the_closed_forms(alpha):
    # The derivative of log f in α at the closed forms is that of their neighbours.
    def slope(a):
        index = torch.tensor(a, dtype=torch.float64, requires_grad=True)
        x = torch.tensor(0.7, dtype=torch.float64)
        (grad,) = torch.autograd.grad(IndependentStable(index, 0.0, torch.ones_like(x)).log_prob(x), index)
        return float(grad)

    assert slope(alpha) == pytest.approx(slope(alpha - 1e-3), rel=0.02)


def test_far_tail_of_the_density():
    # f(x) ~ αC x^{-1-α}: exact power law beyond any quadrature; -inf at infinity.
    law = IndependentStable(torch.tensor(1.5, dtype=torch.float64), 0.0, torch.tensor(1.0, dtype=torch.float64))
    a, b, c = law.log_prob(torch.tensor([1e20, 1e25, 1e100], dtype=torch.float64))
    assert float(a - b) == pytest.approx(2.5 * math.log(1e5), rel=1e-9)
    assert float(b - c) == pytest.approx(2.5 * math.log(1e75), rel=1e-9)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_draws_are_finite(dtype):
    a = positive_stable(1.2, (200_000,), generator(18), dtype)
    assert a.dtype == dtype and bool(torch.isfinite(a).all()) and bool((a > 0).all())


def test_isotropic_log_prob():
    x = torch.tensor([[0.3, -1.2]], dtype=torch.float64)
    loc = torch.tensor([0.1, 0.2], dtype=torch.float64)
    # α = 2: two independent N(loc, 2σ²). α = 1: the bivariate Cauchy 1/(2π (1 + r²)^{3/2}). d = 1: the univariate law.
    normal = stats.norm(loc.numpy(), math.sqrt(2) * 0.7).logpdf(x.numpy()).sum()
    assert float(IsotropicStable(2.0, loc, 0.7).log_prob(x)) == pytest.approx(normal)
    r2 = float(((x - loc) / 0.7).square().sum())
    cauchy = -math.log(2 * math.pi) - 1.5 * math.log1p(r2) - 2 * math.log(0.7)
    assert float(IsotropicStable(1.0, loc, 0.7).log_prob(x)) == pytest.approx(cauchy)
    one = IsotropicStable(1.5, loc[:1], 0.7).log_prob(x[:, :1])
    assert torch.allclose(one, IndependentStable(1.5, loc[:1], 0.7).log_prob(x[:, :1]).squeeze(-1))
    with pytest.raises(NotImplementedError, match="no density of the isotropic law in 2 dimensions at alpha = 1.5"):
        IsotropicStable(1.5, loc).log_prob(x)
    with pytest.raises(NotImplementedError, match="PositiveStable"):
        PositiveStable(1.5).log_prob(torch.ones(1))


def test_moments():
    zero = torch.zeros(2)
    assert IsotropicStable(2.0, zero, 3.0).variance.tolist() == [18.0, 18.0]
    assert IsotropicStable(1.5, zero).mean.tolist() == [0.0, 0.0]
    assert IsotropicStable(1.5, zero).variance.tolist() == [math.inf, math.inf]
    assert IndependentStable(1.0, zero).mean.isnan().all() and IndependentStable(1.0, zero).variance.isnan().all()
    assert float(PositiveStable(2.0).mean) == 2.0 and float(PositiveStable(2.0).variance) == 0.0
    assert math.isinf(float(PositiveStable(1.9).mean))


def test_distribution_contract():
    law = IsotropicStable(1.5, torch.zeros(3), torch.ones(4))
    assert (law.batch_shape, law.event_shape) == ((4,), (3,))
    assert law.sample((5,)).shape == (5, 4, 3)
    wide = law.expand((6, 4))
    assert wide.batch_shape == (6, 4) and wide.sample((2,)).shape == (2, 6, 4, 3)
    assert PositiveStable(1.5).expand((7,)).sample((2,)).shape == (2, 7)
    pair = Independent(IndependentStable(1.0, torch.zeros(2), 1.0).expand((3, 2)), 1)
    assert pair.log_prob(torch.zeros(3, 2)).shape == (3,)
    # rsample: d x/d loc = 1, d x/d scale = √A G = (x - loc)/scale
    loc, scale = torch.tensor(0.3, requires_grad=True), torch.tensor(2.0, requires_grad=True)
    x = IndependentStable(1.5, loc, scale).rsample(generator=generator(16))
    g_loc, g_scale = torch.autograd.grad(x, (loc, scale))
    assert float(g_loc) == 1.0
    assert float(g_scale) == pytest.approx(float((x - loc).detach() / 2.0), rel=1e-5)
    a, b = (law.sample((3,), generator(17)) for _ in range(2))
    assert torch.equal(a, b)


@pytest.mark.parametrize("alpha", [0.0, -1.0, 2.1, math.nan])
def test_bad_alpha(alpha):
    for law in (lambda: PositiveStable(alpha), lambda: IsotropicStable(alpha, torch.zeros(2))):
        with pytest.raises(ValueError, match=r"alpha must lie in \(0, 2\], got"):
            law()
    with pytest.raises(ValueError, match="alpha must be one number"):
        PositiveStable(torch.ones(2))
    for make in (lambda: IndependentStable(1.5, 0.0, -1.0), lambda: IsotropicStable(1.5, torch.zeros(2), 0.0)):
        with pytest.raises(ValueError, match="scale must be above 0, got"):
            make()


def test_log_prob_at_alpha_2_does_not_depend_on_the_gradient():
    x = torch.tensor([0.0, 1.0, 30.0], dtype=torch.float64)
    gaussian = -0.5 * math.log(4 * math.pi) - x**2 / 4
    alpha = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    log_prob = IndependentStable(alpha, torch.zeros(()), 1.0).log_prob(x)
    torch.testing.assert_close(log_prob.detach(), gaussian)
    (slope,) = torch.autograd.grad(log_prob.sum(), alpha)
    assert math.isfinite(float(slope)) and float(slope) != 0
    # One step below 2 there is a power tail: f(30) ~ (2 - α) x^{-3}, and log f is near -24, not -226.
    below = IndependentStable(2.0 - 5e-7, torch.zeros(()), 1.0).log_prob(x)
    assert float(below[2]) == pytest.approx(math.log(5e-7 * 30.0**-3), abs=0.05)  # Γ(3) sin(π·5e-7/2)/π · 2/2 to 5 %
    torch.testing.assert_close(below[:2], gaussian[:2], rtol=1e-6, atol=1e-6)
