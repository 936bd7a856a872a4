"""Toy sets against their closed forms.

Every test is seeded. A Kolmogorov-Smirnov or χ² p-value above 1e-3 is asked for, which a correct law misses once in a
thousand seeds; empirical characteristic functions of n points are within 5/√(2n) of the true ones (their standard
deviation is at most 1/√(2n) in the real and imaginary part near u = 0, and 1/√n at the most).
"""

import math

import pytest
import torch
from scipy import stats

from levydiff.data import (
    Checkerboard,
    Dataset,
    Funnel,
    GaussianGrid,
    StableData,
    StableMixture,
    StudentT,
    SwissRoll,
    TwoMoons,
)
from levydiff.rng import SampleStreams

N = 20_000
MIXTURE = StableMixture(1.3, ((-1.0, 0.5), (2.0, 0.0), (0.0, 0.0)), (0.1, 0.5, 1.0), (0.2, 0.3, 0.5))
ALL = [StableData(), GaussianGrid(), SwissRoll(), Checkerboard(), TwoMoons(), Funnel(), StudentT(), MIXTURE]
WIDE = [StableData(1.2, 2.0, 5), Funnel(4, 1.0), StudentT(3.0, 1), StableMixture(2.0, ((1.0,),), (1.0,), (1.0,))]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def follows(x: torch.Tensor, law) -> bool:
    return stats.kstest(x.double().flatten().numpy(), law.cdf).pvalue > 1e-3


def characteristic(x: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    return torch.exp(1j * (x.double() @ u)).mean(0)


def turns(x: torch.Tensor) -> torch.Tensor:
    """The angles of points in the plane, as parts of a turn in [0, 1)."""
    return torch.atan2(x[:, 1], x[:, 0]) / (2 * math.pi) % 1


@pytest.mark.parametrize("dataset", ALL + WIDE, ids=str)
def test_shape_and_seed(dataset):
    assert isinstance(dataset, Dataset)
    x = dataset(50, generator(1))
    assert x.shape == (50, dataset.dim) and x.dtype == torch.float32 and bool(torch.isfinite(x).all())
    assert torch.equal(x, dataset(50, generator(1))) and not torch.equal(x, dataset(50, generator(2)))
    # nothing is drawn from torch's own generator but by default
    state = torch.random.get_rng_state()
    dataset(50, generator(1))
    assert torch.equal(torch.random.get_rng_state(), state)
    dataset(50)
    assert not torch.equal(torch.random.get_rng_state(), state)
    assert hash(dataset) is not None and dataset == dataset.__class__(**vars(dataset))


@pytest.mark.parametrize("dataset", ALL + WIDE, ids=str)
def test_rows_do_not_depend_on_the_split(dataset):
    whole = dataset(6, SampleStreams.seeded(6, generator(3)))
    parts = [dataset(len(s), s) for s in SampleStreams.seeded(6, generator(3)).split(4)]
    assert torch.equal(whole, torch.cat(parts))


@pytest.mark.parametrize("alpha", [0.7, 1.7])
def test_stable_characteristic_function(alpha):
    x = StableData(alpha, 0.05, 3)(N, generator(4))
    u = torch.randn(3, 20, generator=generator(5), dtype=torch.float64) * torch.logspace(0, 2, 20)
    expected = torch.exp(-((0.05 * u.norm(dim=0)) ** alpha))
    assert float((characteristic(x, u) - expected).abs().max()) < 5 / math.sqrt(2 * N)


def test_stable_closed_forms():
    # α = 2: ‖x‖²/(4 scale²) is exponential in the plane. α = 1: P(‖x‖ > r) = 1/√(1 + r²/scale²), the planar Cauchy law.
    gauss = StableData(2.0, 0.3)(N, generator(6))
    assert follows(gauss.square().sum(1) / (4 * 0.3**2), stats.expon)
    cauchy = StableData(1.0, 0.3)(N, generator(7))
    assert follows((1 + cauchy.double().square().sum(1) / 0.3**2).rsqrt(), stats.uniform)
    assert follows(turns(cauchy), stats.uniform)
    assert StableData() == StableData(alpha=1.7, scale=0.05, dim=2)


def test_gaussian_grid():
    # the paper's numbers, written out
    weights = [0.01, 0.1, 0.3, 0.2, 0.02, 0.15, 0.02, 0.15, 0.05]
    means = torch.tensor([[-1, -1], [0, -1], [1, -1], [-1, 0], [0, 0], [1, 0], [-1, 1], [0, 1], [1, 1]]).float()
    assert GaussianGrid().std == 0.05 and sum(weights) == pytest.approx(1.0)
    x = GaussianGrid()(N, generator(8))
    mode = torch.cdist(x, means).argmin(1)  # modes are 20 standard deviations apart
    counts = torch.bincount(mode, minlength=9)
    assert stats.chisquare(counts.numpy(), [N * w for w in weights]).pvalue > 1e-3
    g = (x - means[mode]) / 0.05
    assert follows(g[:, 0], stats.norm) and follows(g[:, 1], stats.norm)
    for i in range(9):
        # of the mean of k points: 5 standard deviations of each of 18 numbers
        assert float(g[mode == i].mean(0).abs().max()) < 5 / math.sqrt(int(counts[i]))
    assert abs(float((g[:, 0] * g[:, 1]).mean())) < 5 / math.sqrt(N)


@pytest.mark.parametrize("alpha", [0.8, 1.3, 2.0])
def test_stable_mixture(alpha):
    mixture = StableMixture(alpha, MIXTURE.means, MIXTURE.scales, MIXTURE.weights)
    x = mixture(N, generator(9))
    u = torch.randn(2, 20, generator=generator(10), dtype=torch.float64) * 2
    means, scales, weights = (
        torch.tensor(v, dtype=torch.float64) for v in (MIXTURE.means, MIXTURE.scales, MIXTURE.weights)
    )
    parts = torch.exp(1j * (means @ u)) * torch.exp(-((scales[:, None] * u.norm(dim=0)) ** alpha))
    assert float((characteristic(x, u) - (weights[:, None] * parts).sum(0)).abs().max()) < 5 / math.sqrt(2 * N)


def test_mixture_weight_of_zero_is_never_drawn():
    x = StableMixture(2.0, ((0.0,), (100.0,), (200.0,)), (1.0, 1.0, 1.0), (0.0, 1.0, 0.0))(N, generator(11))
    assert follows((x - 100) / math.sqrt(2), stats.norm)


@pytest.mark.parametrize(("df", "dim"), [(1.5, 2), (0.5, 3), (4.0, 1), (30.0, 5)])
def test_student_t(df, dim):
    x = StudentT(df, dim)(N, generator(12)).double()
    assert follows(x.square().sum(1) / dim, stats.f(dim, df))
    assert follows(x[:, 0], stats.t(df))
    if dim == 2:
        assert follows(turns(x), stats.uniform)
        # direction and radius are independent: the upper half turn has the same radii as the lower
        r = x.norm(dim=1)
        assert stats.ks_2samp(r[x[:, 1] > 0].numpy(), r[x[:, 1] <= 0].numpy()).pvalue > 1e-3


def test_funnel():
    x = Funnel(3, 3.0)(N, generator(13)).double()
    v = x[:, 0]
    assert follows(v / 3.0, stats.norm)
    g = x[:, 1:] * torch.exp(-v / 2)[:, None]
    assert follows(g[:, 0], stats.norm) and follows(g[:, 1], stats.norm)
    # the conditional scale in the neck and in the mouth; and no correlation left
    for side in (v < -2, v > 2):
        assert follows(g[side, 0], stats.norm)
    assert float(torch.corrcoef(torch.stack((v, g[:, 0].abs(), g[:, 1].abs()))).triu(1).abs().max()) < 5 / math.sqrt(N)


def test_swiss_roll():
    x = SwissRoll(noise=0.0)(N, generator(14)).double()
    r = x.norm(dim=1)
    assert follows((r - 1 / 3) / (2 / 3), stats.uniform)
    t = 4.5 * math.pi * r
    torch.testing.assert_close(x, torch.stack((t.cos(), t.sin()), 1) * r[:, None], atol=1e-5, rtol=0)
    noisy = SwissRoll(noise=0.3)(N, generator(14)).double()
    assert follows((noisy - x) / 0.3, stats.norm)


def test_two_moons():
    x = TwoMoons(noise=0.0)(N, generator(15)).double()
    upper = (x.norm(dim=1) - 1).abs() < 1e-6
    other = torch.tensor([1.0, 0.5]) - x  # the lower moon, turned and moved onto the upper one
    torch.testing.assert_close(other[~upper].norm(dim=1), torch.ones(int((~upper).sum())).double(), atol=1e-6, rtol=0)
    # the arcs cross where both hold; that has probability 0
    assert stats.binomtest(int(upper.sum()), N).pvalue > 1e-3
    for arc in (x[upper], other[~upper]):
        assert float(arc[:, 1].min()) > -1e-6 and follows(2 * turns(arc), stats.uniform)
    noisy = TwoMoons(noise=0.2)(N, generator(15)).double()
    assert follows((noisy - x) / 0.2, stats.norm)


def test_checkerboard():
    x = Checkerboard()(N, generator(16)).double()
    assert float(x.abs().max()) <= 1
    field = ((x + 1) * 2).floor().clamp(0, 3)
    assert bool((field.sum(1) % 2 == 0).all())
    counts = torch.bincount((4 * field[:, 0] + field[:, 1]).long(), minlength=16)
    dark = counts[counts > 0]
    assert len(dark) == 8 and stats.chisquare(dark.numpy()).pvalue > 1e-3
    inside = (x + 1) * 2 - field
    assert follows(inside[:, 0], stats.uniform) and follows(inside[:, 1], stats.uniform)
    assert abs(float(torch.corrcoef(inside.T)[0, 1])) < 5 / math.sqrt(N)


def test_beyond_float32_is_an_error():
    with pytest.raises(FloatingPointError, match=r"a draw of StudentT\(df=0.01, dim=2\) exceeds the range of float32"):
        StudentT(df=0.01)(1000, generator(17))
    with pytest.raises(FloatingPointError, match="Funnel"):
        Funnel(scale=500.0)(100, generator(17))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: StableData(alpha=2.5), r"alpha must lie in \(0, 2\], got 2.5"),
        (lambda: StableData(scale=0.0), "scale must be finite and above 0, got 0.0"),
        (lambda: StableData(dim=0), "dim must be a whole number of at least 1, got 0"),
        (lambda: GaussianGrid(std=-1.0), "std must be finite and above 0, got -1.0"),
        (lambda: SwissRoll(noise=-0.1), "noise must be finite and at least 0, got -0.1"),
        (lambda: TwoMoons(noise=math.nan), "noise must be finite and at least 0, got nan"),
        (lambda: Funnel(dim=1), "dim must be at least 2, got 1"),
        (lambda: Funnel(scale=math.inf), "scale must be finite and above 0, got inf"),
        (lambda: StudentT(df=0.0), "df must be finite and above 0, got 0.0"),
        (lambda: StudentT(dim=1.5), "dim must be a whole number of at least 1, got 1.5"),
        (lambda: StableMixture(0.0, ((0.0,),), (1.0,), (1.0,)), r"alpha must lie in \(0, 2\], got 0.0"),
        (lambda: StableMixture(1.5, (), (), ()), r"means must hold at least one row, .* got \(\)"),
        (lambda: StableMixture(1.5, ((0.0,), (0.0, 1.0)), (1.0, 1.0), (0.5, 0.5)), "all of the same length"),
        (lambda: StableMixture(1.5, ((math.nan,),), (1.0,), (1.0,)), "means must be finite"),
        (lambda: StableMixture(1.5, ((0.0,),), (1.0, 1.0), (1.0,)), "same length, got 1, 2 and 1"),
        (lambda: StableMixture(1.5, ((0.0,),), (0.0,), (1.0,)), r"scales\[0\] must be finite and above 0, got 0.0"),
        (lambda: StableMixture(1.5, ((0.0,),), (1.0,), (0.9,)), "weights must be at least 0 and sum to 1"),
        (lambda: StableMixture(1.5, ((0.0,), (1.0,)), (1.0, 1.0), (-0.5, 1.5)), "weights must be at least 0"),
        (lambda: StableMixture(1.5, ((0.0,),), (1.0,), (math.nan,)), "weights must be at least 0 and sum to 1"),
        (lambda: StableData()(0), "n must be a whole number of at least 1, got 0"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()
