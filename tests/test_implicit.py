"""DLIM's latent space: encode, interpolate, decode."""

import warnings

import pytest
import torch
from scipy import stats

from levydiff import (
    DLIM,
    Denoiser,
    LevyProcess,
    MixtureOracle,
    PointMassOracle,
    StableOracle,
    interpolate,
    quadratic_time,
)
from levydiff.implicit import _fixed_point

F64 = torch.float64


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("steps", [5, 25, 100])
@pytest.mark.parametrize("alpha", [1.0, 1.7, 2.0])
def test_encode_decode_returns_stable_data(alpha, steps, order):
    process = LevyProcess(alpha)
    sampler = DLIM(StableOracle(process, 0.8), steps, order=order)
    x_0 = 0.8 * process.noise((50, 2), generator(1), F64)[0]
    latents = sampler.encode(x_0, tolerance=1e-9)
    decoded = sampler(x_0.shape, x_T=latents, dtype=F64)
    assert float(((decoded - x_0).norm(dim=1) / (1 + x_0.norm(dim=1))).max()) < 1e-5


@pytest.mark.parametrize("order", [1, 2])
def test_encode_decode_returns_a_mixture(order):
    means = torch.tensor([[-1.0, 0.0], [1.0, 0.5], [0.2, -1.0]], dtype=F64)
    stds, weights = torch.full((3,), 0.2, dtype=F64), torch.tensor([0.5, 0.3, 0.2], dtype=F64)
    sampler = DLIM(MixtureOracle(LevyProcess(2.0), means, stds, weights), 50, spacing=quadratic_time, order=order)
    k = torch.multinomial(weights, 200, replacement=True, generator=generator(2))
    x_0 = means[k] + 0.2 * torch.randn(200, 2, generator=generator(3), dtype=F64)
    latents = sampler.encode(x_0, tolerance=1e-9)
    decoded = sampler(x_0.shape, x_T=latents, dtype=F64)
    assert float((decoded - x_0).abs().max()) < 1e-5
    # the latents of data are noise: N(0, 2σ̄²) in each coordinate, up to the signal left at t_max
    assert stats.kstest(latents[:, 0].numpy() / 2**0.5, "norm").pvalue > 0.01


def test_encode_with_a_float32_network():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.Tanh(), torch.nn.Linear(32, 2))

    class Backbone(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, x, t):
            return self.net(x) * 0.5

    sampler = DLIM(Denoiser(Backbone(), LevyProcess(1.7)), 20)
    x_0 = torch.randn(30, 2, generator=generator(4))
    latents = sampler.encode(x_0)
    assert latents.dtype == torch.float32
    torch.testing.assert_close(sampler(x_0.shape, x_T=latents), x_0, rtol=1e-4, atol=1e-4)


def test_encode_follows_the_exact_map():
    # Fine grid: the latent of x_0 is the exact flow's, x_T = x_0·total_scale(t_max)/s.
    oracle = StableOracle(LevyProcess(1.6), 0.5)
    sampler = DLIM(oracle, 2000)
    x_0 = torch.tensor([[0.3, -2.0]], dtype=F64)
    t = torch.tensor(oracle.process.schedule.t_max, dtype=F64)
    torch.testing.assert_close(sampler.encode(x_0), x_0 * oracle.total_scale(x_0, t) / 0.5, rtol=2e-3, atol=0)


def test_encode_says_when_it_fails():
    # Two starting points of a point mass decode to the same data: there is nothing to invert.
    sampler = DLIM(PointMassOracle(LevyProcess(1.5), torch.zeros(2, dtype=F64)), 5)
    with pytest.warns(RuntimeWarning, match="DLIM.encode: relative error"):
        sampler.encode(torch.ones(1, 2, dtype=F64), iterations=5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DLIM(StableOracle(LevyProcess(1.5)), 5).encode(torch.ones(1, 2))
    with pytest.raises(FloatingPointError, match="DLIM.encode met a non-finite value"):
        DLIM(Denoiser(lambda x, t: x * torch.nan, LevyProcess(1.5)), 5).encode(torch.ones(1, 2))
    with pytest.raises(ValueError, match="rho must be 0 to encode"):
        DLIM(StableOracle(LevyProcess(1.5)), 5, rho=0.5).encode(torch.ones(1, 2))
    with pytest.raises(ValueError, match="x_0 must be finite, but row 0"):
        sampler.encode(torch.full((1, 2), torch.nan))


@pytest.mark.parametrize("alpha", [0.8, 1.5, 2.0])
def test_interpolation_keeps_the_law(alpha):
    # (1-w)^{1/α} x + w^{1/α} y ~ SαS(1), by stability.
    process = LevyProcess(alpha)
    x, y, z = (process.noise((20_000, 1), generator(seed))[0] for seed in (5, 6, 7))
    between = interpolate(x, y, 0.3, alpha)
    assert stats.ks_2samp(between.flatten().numpy(), z.flatten().numpy()).pvalue > 0.01
    torch.testing.assert_close(interpolate(x, y, 0.0, alpha), x)
    torch.testing.assert_close(interpolate(x, y, 1.0, alpha), y)
    with pytest.raises(ValueError, match=r"weight must lie in \[0, 1\], got 2"):
        interpolate(x, y, 2, alpha)
    with pytest.raises(ValueError, match="y must have shape"):
        interpolate(x, y[:3], 0.5, alpha)


def test_the_fixed_point_in_float32():
    # The first sample's residual stops changing at once: 0/0 where 1e-300 stood for the smallest number.
    start = torch.zeros(2, 1)
    found, missed = _fixed_point(lambda z: torch.stack([torch.ones(1), 0.5 * z[1] + 1.0]), start, 50, 1e-6)
    torch.testing.assert_close(found, torch.tensor([[1.0], [2.0]]))
    assert missed < 1e-6
