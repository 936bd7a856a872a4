"""Samplers against exact targets: point masses, the stable flow, Gaussian mixtures; and the contract of the loop."""

import math
from itertools import pairwise

import pytest
import torch
from scipy import stats

from levydiff import (
    DDIM,
    DDPM,
    DLIM,
    DLPM,
    LIM,
    LIMODE,
    CauchyDLIM,
    Clipping,
    CosineSchedule,
    Denoiser,
    ExplodingSchedule,
    LevyProcess,
    LinearSchedule,
    MixtureOracle,
    PointMassOracle,
    StableOracle,
    linear_time,
    log_ratio_spacing,
    quadratic_time,
)
from levydiff.nn import PaperMLP
from levydiff.rng import SampleStreams, normal, uniform_pair
from levydiff.sampler import Run
from levydiff.stable import positive_stable

F64 = torch.float64
POINT = torch.tensor([2.5, -1.5], dtype=F64)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


METHODS = {
    "DLPM": (1.5, DLPM, {}),
    "DLPM, consistent start": (1.5, DLPM, {"consistent_start": True}),
    "DLPM, independent noise": (1.5, DLPM, {"isotropic": False}),
    "DLIM": (1.5, DLIM, {}),
    "DLIM, rho = 0.7": (1.5, DLIM, {"rho": 0.7}),
    "DLIM, order 2": (1.5, DLIM, {"order": 2}),
    "LIM": (1.5, LIM, {}),
    "LIM, clipped": (1.5, LIM, {"clipping": Clipping()}),
    "LIM-ODE": (1.5, LIMODE, {}),
    "DDPM": (2.0, DDPM, {}),
    "DDIM": (2.0, DDIM, {}),
    "Cauchy DLIM": (1.0, CauchyDLIM, {"isotropic": False}),
}


def build(name, oracle=None, steps=10, schedule=None, **more):
    alpha, method, options = METHODS[name]
    options = {**options, **more}
    process = LevyProcess(alpha, schedule or LinearSchedule(), options.pop("isotropic", True))
    return method((oracle or (lambda p: PointMassOracle(p, POINT)))(process), steps, **options)


@pytest.mark.parametrize("steps", [1, 2, 10, 100])
@pytest.mark.parametrize("name", METHODS)
def test_a_point_mass_is_returned_exactly(name, steps):
    x = build(name, steps=steps)((50, 2), generator())
    assert x.dtype == F64  # the oracle's
    torch.testing.assert_close(x, POINT.expand(50, 2), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["DLPM", "DLIM", "DLIM, rho = 0.7", "DLIM, order 2"])
def test_a_point_mass_with_an_exploding_schedule(name):
    x = build(name, schedule=ExplodingSchedule(), steps=18)((50, 2), generator())
    torch.testing.assert_close(x, POINT.expand(50, 2), rtol=1e-9, atol=1e-9)


def flow_error(alpha, steps, spacing, order, isotropic=True):
    """Mean relative distance of DLIM's end from the exact flow's, on stable data."""
    process = LevyProcess(alpha, isotropic=isotropic)
    oracle = StableOracle(process, scale=0.8)
    x_T = process.noise((200, 2), generator(1), F64)[0]
    sampler = DLIM(oracle, steps, spacing=spacing, order=order)
    exact = oracle.exact_data(x_T, torch.tensor(process.schedule.t_max, dtype=F64))
    end = sampler((200, 2), x_T=x_T, dtype=F64)
    return float(((end - exact).norm(dim=1) / exact.norm(dim=1)).mean())


@pytest.mark.parametrize("isotropic", [True, False])
@pytest.mark.parametrize("spacing", [linear_time, quadratic_time])
@pytest.mark.parametrize("alpha", [0.8, 1.3, 1.7, 2.0])
def test_dlim_converges_with_order_one(alpha, spacing, isotropic):
    errors = [flow_error(alpha, n, spacing, 1, isotropic) for n in (200, 400, 800)]
    slope = math.log2(errors[0] / errors[2]) / 2
    assert 0.93 < slope < 1.07, errors


@pytest.mark.parametrize("spacing", [log_ratio_spacing, quadratic_time])
@pytest.mark.parametrize("alpha", [1.3, 1.5, 1.7, 2.0])
def test_dlim_converges_with_order_two(alpha, spacing):
    errors = [flow_error(alpha, n, spacing, 2) for n in (200, 400, 800)]
    slope = math.log2(errors[0] / errors[2]) / 2
    assert 1.8 < slope < 2.2, errors


@pytest.mark.parametrize("alpha", [1.2, 1.7, 2.0])
@pytest.mark.parametrize("steps", [10, 25, 100])
def test_second_order_is_better_at_the_same_cost(alpha, steps):
    for spacing in (linear_time, quadratic_time):
        assert flow_error(alpha, steps, spacing, 2) < 0.55 * flow_error(alpha, steps, spacing, 1)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("steps", [1, 5, 50])
def test_dlim_is_exact_for_cauchy_data(steps, order):
    # α = 1: ε̂ = x/(γ̄s + σ̄) is constant along the flow, a straight line, and Euler's method follows it exactly.
    assert flow_error(1.0, steps, linear_time, order) < 1e-11  # γ̄ = 7e-5 at t_max magnifies the rounding


def test_lim_ode_converges_with_order_one():
    process = LevyProcess(1.7, LinearSchedule())
    oracle = StableOracle(process)
    x_T = process.noise((100, 2), generator(2), F64)[0]
    exact = oracle.exact_data(x_T, torch.tensor(1.0, dtype=F64))
    errors = []
    for n in (400, 800, 1600):
        end = LIMODE(oracle, n)((100, 2), x_T=x_T, dtype=F64)
        errors.append(float(((end - exact).norm(dim=1) / exact.norm(dim=1)).mean()))
    assert 0.85 < math.log2(errors[0] / errors[2]) / 2 < 1.2, errors


@pytest.mark.parametrize("alpha", [1.3, 1.7, 2.0])
def test_lim_has_its_own_stationary_law(alpha):
    # Data SαS(1) are stationary under the forward process, and x → (1 - (α-1)δ)x + (αδ)^{1/α} ε' is LIM's step with
    # the exact score, δ = 1/γ - 1. Its stationary scale c solves c^α α(α-1)δ = αδ: c = (α-1)^{-1/α}, 1 at α = 2.
    process = LevyProcess(alpha, LinearSchedule())
    x = LIM(StableOracle(process), 400)((6000, 1), generator(3))
    target = (alpha - 1) ** (-1 / alpha) * process.noise((6000, 1), generator(4))[0]
    assert stats.ks_2samp(x.flatten().numpy(), target.flatten().numpy()).pvalue > 0.01


@pytest.mark.parametrize(("alpha", "steps", "factor"), [(2.0, 100, 2.8), (2.0, 400, 1.2), (1.7, 100, 3.3)])
def test_the_first_step_of_lim_from_its_own_end_of_time(alpha, steps, factor):
    # What `table1` and `table3` say. At t = 0.9946 hardly a signal is left: x is noise of scale 1 and ε̂ = x. Then the
    # step is x → (1/γ - α(1/γ - 1))x + (γ^{-α} - 1)^{1/α} ε', of the scale (|1 - (α-1)(1/γ - 1)|^α + γ^{-α} - 1)^{1/α}.
    chain = LIM(StableOracle(LevyProcess(alpha)), steps, spacing=linear_time).chain
    gamma = float(chain.gamma[steps])
    scale = (abs(1 - (alpha - 1) * (1 / gamma - 1)) ** alpha + gamma**-alpha - 1) ** (1 / alpha)
    assert scale == pytest.approx(factor, abs=0.05) and float(chain.times[steps]) == pytest.approx(0.9946)


MEANS = torch.tensor([[-1.0, 0.0], [1.0, 0.5], [0.2, -1.0]], dtype=F64)
STDS = torch.tensor([0.1, 0.2, 0.15], dtype=F64)
WEIGHTS = torch.tensor([0.5, 0.3, 0.2], dtype=F64)


@pytest.mark.parametrize(("name", "steps"), [("DDPM", 600), ("DDIM", 200), ("DLPM2", 600), ("DDIM2", 40)])
def test_a_gaussian_mixture_is_recovered(name, steps):
    # Each coordinate against the mixture's cdf (Kolmogorov), and the weights of the components (4 standard errors).
    oracle = MixtureOracle(LevyProcess(2.0), MEANS, STDS, WEIGHTS)
    method, options = {
        "DDPM": (DDPM, {}),
        "DDIM": (DDIM, {}),
        "DLPM2": (DLPM, {}),
        "DDIM2": (DDIM, {"order": 2, "spacing": quadratic_time}),
    }[name]
    n = 4000
    x = method(oracle, steps, **options)((n, 2), generator(5))
    for j in range(2):

        def cdf(q, j=j):
            return sum(
                float(w) * stats.norm.cdf(q, float(m[j]), float(s))
                for w, m, s in zip(WEIGHTS, MEANS, STDS, strict=True)
            )

        assert stats.kstest(x[:, j].numpy(), cdf).pvalue > 0.01
    nearest = torch.cdist(x, MEANS).argmin(1).bincount(minlength=3) / n
    assert bool(((nearest - WEIGHTS).abs() < 4 * (WEIGHTS * (1 - WEIGHTS) / n).sqrt() + 0.002).all())


def test_dlpm_at_alpha_two_is_ddpm():
    oracle = MixtureOracle(LevyProcess(2.0), MEANS, STDS, WEIGHTS)
    a, b = (method(oracle, 50)((100, 2), generator(6)) for method in (DLPM, DDPM))
    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)  # the path's Σ is float32


def test_dlim_at_alpha_two_and_rho_one_is_ddpm():
    # η = 1: the same mean and variance; DLIM draws √A G with A = 2, DDPM √2 G.
    oracle = MixtureOracle(LevyProcess(2.0), MEANS, STDS, WEIGHTS)
    a, b = DLIM(oracle, 50, rho=1.0)((100, 2), generator(6)), DDPM(oracle, 50)((100, 2), generator(6))
    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


def test_ddpm_is_the_textbooks():
    # x_{t-1} = (x_t - β/√(1-ᾱ) ε)/√(1-β) + √(β (1-ᾱ_{t-1})/(1-ᾱ)) z for standard noise; ours is √2 times as large.
    process = LevyProcess(2.0, LinearSchedule())
    oracle = MixtureOracle(process, MEANS, STDS, WEIGHTS)
    seen = []
    sampler = DDPM(oracle, 20)
    start = 2**0.5 * torch.randn(30, 2, generator=generator(7), dtype=F64)
    sampler((30, 2), generator(8), x_T=start, callback=seen.append, dtype=F64)
    streams = SampleStreams.seeded(30, generator(8))
    alpha_bar = process.schedule.gamma_bar(sampler.grid) ** 2
    x = start
    for p in seen[:-1]:
        beta = 1 - alpha_bar[p.i] / alpha_bar[p.i - 1]
        eps = oracle(x, sampler.grid[p.i]) / 2**0.5
        z = normal((30, 2), streams, torch.float32)
        std = (beta * (1 - alpha_bar[p.i - 1]) / (1 - alpha_bar[p.i])).sqrt()
        y = (x / 2**0.5 - beta / (1 - alpha_bar[p.i]).sqrt() * eps) / (1 - beta).sqrt() + std * z
        torch.testing.assert_close(p.x_t, 2**0.5 * y, rtol=1e-6, atol=1e-6)  # the noise is float32
        x = p.x_t


@pytest.mark.parametrize(
    "name", ["DLPM", "DLPM, independent noise", "DLIM", "DLIM, rho = 0.7", "LIM", "LIM-ODE", "Cauchy DLIM"]
)
def test_steps_follow_the_formula(name):
    # One step of each method re-derived, with the random numbers of the same streams.
    sampler = build(name, lambda p: StableOracle(p, 0.6), steps=6)
    process, chain, alpha = sampler.process, sampler.chain, sampler.process.alpha
    x_T = torch.randn(20, 2, generator=generator(9), dtype=F64)
    seen = []
    sampler((20, 2), generator(10), x_T=x_T, callback=seen.append, dtype=F64)
    streams = SampleStreams.seeded(20, generator(10))
    path = process.draw_path((20, 2), sampler.grid, streams) if name.startswith("DLPM") else None
    x = x_T
    for p in seen[:-1]:
        i = p.i
        gamma, sigma, bar, before = (
            float(v) for v in (chain.gamma[i], chain.sigma[i], chain.sigma_bar[i], chain.sigma_bar[i - 1])
        )
        eps = sampler.denoiser(x, chain.times[i])
        torch.testing.assert_close(p.eps, eps)
        if name.startswith("DLPM"):
            gain = 1 - gamma**2 * path.var[i - 1].double() / path.var[i].double()
            noise = (gain * path.var[i - 1]).sqrt() * normal((20, 2), streams, torch.float32)
            y = (x - gain * bar * eps) / gamma + noise
        elif name == "DLIM":
            y = x / gamma - (bar / gamma - before) * eps
        elif name == "DLIM, rho = 0.7":
            rho = 0.7 * before * sigma / bar
            a = positive_stable(alpha, (20, 1), streams, torch.float32)
            noise = a.sqrt() * normal((20, 2), streams, torch.float32)
            y = (x - bar * eps) / gamma + (before**alpha - rho**alpha) ** (1 / alpha) * eps + rho * noise
        elif name == "Cauchy DLIM":
            rho = before * sigma / bar
            u, v = uniform_pair((20, 2), streams, torch.float32)
            noise = torch.where(v < 0.5, -1.0, 1.0) / torch.tan(math.pi * u / 2)  # |C| from u, its sign from v
            y = (x - bar * eps) / gamma + (before - rho) * eps + rho * noise
        else:
            y = x / gamma - (alpha if name == "LIM" else 1) * (1 / gamma - 1) * bar ** (1 - alpha) * eps
            if name == "LIM":
                a = positive_stable(alpha, (20, 1), streams, torch.float32)
                noise = a.sqrt() * normal((20, 2), streams, torch.float32)
                y = y + (gamma**-alpha - 1) ** (1 / alpha) * noise
        if y is not None:
            torch.testing.assert_close(p.x_t, y, rtol=1e-4, atol=1e-5)
        x = p.x_t
    last = seen[-1]
    assert last.i == 1 and last.t == 0.0
    torch.testing.assert_close(last.x_t, (x - float(chain.sigma_bar[1]) * last.eps) / float(chain.gamma_bar[1]))


def test_cauchy_noise_is_cauchy():
    sampler = build("Cauchy DLIM", StableOracle)
    run = Run(sampler.chain, None, SampleStreams.seeded(50_000, generator(11)))
    noise = sampler.renewed_noise(torch.zeros(50_000, 2, dtype=F64), run)
    assert stats.kstest(noise.double().flatten().numpy(), stats.cauchy.cdf).pvalue > 0.01
    # and the sampler keeps Cauchy data Cauchy: x_0 ~ C(1), any ρ
    x = build("Cauchy DLIM", StableOracle, steps=200)((4000, 1), generator(12))
    assert stats.kstest(x.flatten().double().numpy(), stats.cauchy.cdf).pvalue > 0.01


def test_learned_variance_in_dlpm():
    # v = 1 replaces Σ̃ = σ²A Σ_{t-1}/Σ_t by σ²A.
    process = LevyProcess(1.5)

    def network(x, t):
        return torch.cat([x, torch.ones_like(x)], dim=1)

    sampler = DLPM(Denoiser(network, process, learned_variance=True, dtype=F64), 5)
    x_T, seen = torch.randn(20, 2, generator=generator(13), dtype=F64), []
    sampler((20, 2), generator(14), x_T=x_T, callback=seen.append)
    streams = SampleStreams.seeded(20, generator(14))
    path = process.draw_path((20, 2), sampler.grid, streams)
    step = sampler.chain.step(5)
    std = step.sigma * path.a[4].sqrt()
    expected = (x_T - path.gain(5) * step.sigma_bar * x_T) / step.gamma + std * normal((20, 2), streams, torch.float32)
    torch.testing.assert_close(seen[0].x_t, expected, rtol=1e-5, atol=1e-6)


def test_learned_variance_in_ddpm_is_that_of_dlpm():
    def network(x, t):
        return torch.cat([x, 0.3 * torch.ones_like(x)], dim=1)

    d = Denoiser(network, LevyProcess(2.0), learned_variance=True, dtype=F64)
    a, b = (method(d, 20)((50, 2), generator(19)) for method in (DLPM, DDPM))
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("method", [DLPM, DLIM])
def test_the_start_has_the_scale_of_the_last_noise(method):
    sampler = method(StableOracle(LevyProcess(1.5, ExplodingSchedule(sigma_max=80.0))), 5)
    x_T, _ = sampler.init((4000, 1), SampleStreams.seeded(4000, generator(20)))
    target = 80.0 * LevyProcess(1.5).noise((4000, 1), generator(21))[0]
    assert stats.ks_2samp(x_T.flatten().numpy(), target.flatten().numpy()).pvalue > 0.01


def test_lim_clips_its_noise():
    # With the zero denoiser the drift is x/γ, and what is left is σ/γ times noise of norm at most 2.
    d = Denoiser(lambda x, t: torch.zeros_like(x), LevyProcess(1.2), dtype=F64)
    sampler, seen = LIM(d, 8, clipping=Clipping(a=20.0, norm=2.0)), []
    sampler((500, 2), generator(22), callback=seen.append)
    for before, after in pairwise(seen[:-1]):
        step = sampler.chain.step(after.i)
        noise = (after.x_t - before.x_t / step.gamma) / (step.sigma / step.gamma)
        assert 1.9 < float(noise.norm(dim=1).max()) < 2.0 + 1e-5
    start, _ = LIMODE(d, 8, clipping=Clipping(norm=2.0)).init((500, 2), SampleStreams.seeded(500))
    assert float(start.norm(dim=1).max()) < 2.0 + 1e-5


def test_rho_as_a_tensor():
    oracle = StableOracle(LevyProcess(1.5))
    chain = DLIM(oracle, 6).chain
    rho = 0.7 * chain.sigma_bar[:-1] * chain.sigma[1:] / chain.sigma_bar[1:]
    a, b = (DLIM(oracle, 6, rho=r)((20, 2), generator(23)) for r in (0.7, rho))
    torch.testing.assert_close(a, b)
    cauchy = build("Cauchy DLIM", StableOracle)  # ρ = 1: all of σ̄_{t-1} σ_t/σ̄_t is renewed
    full = cauchy.chain.sigma_bar[4] * cauchy.chain.sigma[5] / cauchy.chain.sigma_bar[5]
    assert float(cauchy.rho[5]) == pytest.approx(float(full))


def test_a_function_around_a_network_can_be_sampled():
    net = PaperMLP(2)
    assert DLIM(Denoiser(lambda x, t: net(x, t), LevyProcess(1.5)), 3)((4, 2)).shape == (4, 2)


def test_samples_that_do_not_fit_the_dtype_are_an_error():
    with pytest.raises(FloatingPointError, match="do not fit torch.float16"):
        DLIM(StableOracle(LevyProcess(0.8)), 4)((100_000, 1), generator(24), dtype=torch.float16)


@pytest.mark.parametrize("name", METHODS)
def test_the_split_of_a_batch_does_not_matter(name):
    sampler = build(name, StableOracle)
    whole = sampler((12, 3), generator(15))
    assert torch.equal(whole, sampler((12, 3), generator(15), batch_size=5))
    source = generator(15)
    assert torch.equal(whole, torch.cat([sampler((4, 3), source), sampler((8, 3), source)]))
    assert not torch.equal(whole, sampler((12, 3), generator(16)))


def test_conditions_are_split_with_the_batch():
    labels = []

    def network(x, t, label, style):
        labels.append((label.tolist(), style))
        return x

    DLIM(Denoiser(network, LevyProcess(1.5)), 1)((5, 2), batch_size=2, label=torch.arange(5), style="plain")
    assert labels == [([0, 1], "plain"), ([2, 3], "plain"), ([4], "plain")]


def test_consistent_start():
    # x_T = √Σ_T G with the path's own Σ_T; both starts have the law σ̄_T SαS(1).
    process = LevyProcess(1.5)
    sampler = DLPM(StableOracle(process), 10, consistent_start=True)
    x_T, path = sampler.init((3000, 1), SampleStreams.seeded(3000, generator(17)))
    g = x_T / path.var[-1].sqrt()
    assert stats.kstest(g.flatten().numpy(), "norm").pvalue > 0.01
    other, _ = DLPM(StableOracle(process), 10).init((3000, 1), SampleStreams.seeded(3000, generator(18)))
    assert stats.ks_2samp(x_T.flatten().numpy(), other.flatten().numpy()).pvalue > 0.01


def test_any_grid_and_any_schedule():
    oracle = StableOracle(LevyProcess(1.7, ExplodingSchedule()), 0.5)
    for spacing in (linear_time, quadratic_time, log_ratio_spacing):
        for steps in (1, 7):
            assert DLPM(oracle, steps, spacing=spacing)((4, 2)).shape == (4, 2)
    own = torch.tensor([0.0, 0.3, 0.35, 0.9])
    assert DLIM(oracle, grid=own).chain.steps == 3


def test_a_non_finite_value_stops_the_run():
    def network(x, t):
        return torch.where(t[:, None] < 0.5, math.nan, 1.0) * x

    with pytest.raises(
        FloatingPointError, match=r"DLIM met a non-finite value at step 5 of 10 .*alpha = 1.5.* 6 non-finite of 6"
    ):
        DLIM(Denoiser(network, LevyProcess(1.5)), 10)((3, 2))


def test_result_dtype_and_network_dtype():
    d = Denoiser(PaperMLP(2), LevyProcess(1.5))
    assert DLPM(d, 3)((4, 2)).dtype == torch.float32
    assert DLPM(d, 3)((4, 2), dtype=F64).dtype == F64


def test_global_seed_and_progress(capsys):
    sampler = DLPM(StableOracle(LevyProcess(1.5)), 4)
    torch.manual_seed(1)
    a = sampler((3, 2), progress=True)
    torch.manual_seed(1)
    assert torch.equal(a, sampler((3, 2)))
    assert "DLPM" in capsys.readouterr().err


def test_bad_input():
    oracle, gaussian = StableOracle(LevyProcess(1.5)), StableOracle(LevyProcess(2.0))
    with pytest.raises(ValueError, match="steps must be a whole number of at least 1, got 0"):
        DLPM(oracle, 0)
    with pytest.raises(ValueError, match="grid must increase"):
        DLPM(oracle, grid=torch.tensor([0.0, 0.6, 0.5]))
    with pytest.raises(ValueError, match="grid must end where a signal of at least 1e-12 is left"):
        DLPM(StableOracle(LevyProcess(1.5, LinearSchedule(beta_max=1e5))), 10)
    with pytest.raises(ValueError, match=r"shape must be \(B, ...\) with whole sizes of at least 1, got \(0, 2\)"):
        DLPM(oracle)((0, 2))
    with pytest.raises(ValueError, match=r"x_T must have shape \(3, 2\), got \(2, 2\)"):
        DLIM(oracle)((3, 2), x_T=torch.zeros(2, 2))
    with pytest.raises(ValueError, match="x_T must be finite, but row 1"):
        DLIM(oracle)((2, 1), x_T=torch.tensor([[0.0], [math.inf]]))
    with pytest.raises(ValueError, match="batch_size must be a whole number of at least 1, got 0"):
        DLIM(oracle)((3, 2), batch_size=0)
    for method in (DDPM, DDIM):
        with pytest.raises(ValueError, match=f"process.alpha must be 2 for {method.__name__}, got 1.5"):
            method(oracle)
    with pytest.raises(ValueError, match=r"rho must lie in \[0, 1\], got 1.5"):
        DLIM(oracle, rho=1.5)
    with pytest.raises(ValueError, match=r"rho must have shape \(10,\), got \(3,\)"):
        DLIM(oracle, 10, rho=torch.zeros(3))
    with pytest.raises(ValueError, match=r"rho must lie in \[0, sigma_bar of the time before\]"):
        DLIM(oracle, 10, rho=torch.ones(10))
    with pytest.raises(ValueError, match="order must be 1 or 2, got 3"):
        DLIM(oracle, order=3)
    with pytest.raises(ValueError, match="order must be 1 where rho is above 0"):
        DLIM(oracle, rho=0.5, order=2)
    with pytest.raises(ValueError, match="alpha = 1 and isotropic = False for CauchyDLIM"):
        CauchyDLIM(oracle)
    with pytest.raises(ValueError, match="process.schedule must be scale preserving for LIM, got ExplodingSchedule"):
        LIM(StableOracle(LevyProcess(1.5, ExplodingSchedule())))
    assert DDIM(gaussian, 3, rho=1.0)((2, 2)).shape == (2, 2)
    with pytest.raises(TypeError, match="generator must be a torch.Generator or None, got int"):
        DLIM(oracle)((3, 2), 0)
    with pytest.raises(ValueError, match=r"shape must be \(B, ...\) with whole sizes of at least 1, got 5"):
        DLIM(oracle)(5)
    with pytest.raises(ValueError, match="grid must end where a signal of at least 1e-12 is left"):
        DLIM(StableOracle(LevyProcess(1.5, CosineSchedule(t_max=1.0))))
