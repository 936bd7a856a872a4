"""Scaling by medians and trimmed means."""

import json
import math

import numpy as np
import pytest
import torch

from levydiff.data import AsinhScaling, GaussianGrid, Scaling, StableData, check_table, fit_asinh_scaling, fit_scaling
from levydiff.scaling import scaling_for


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def heavy(n: int, d: int = 3, alpha: float = 1.2) -> torch.Tensor:
    return StableData(alpha, 1.0, d)(n, generator(1)).double()


@pytest.mark.parametrize("n", [1000, 1001])
def test_median_and_trimmed_mean(n):
    x = heavy(n) * torch.tensor([1.0, 50.0, 1e-3]) + torch.tensor([0.0, 7.0, -1e4])
    scaling = fit_scaling(x)
    center = np.median(x.numpy(), axis=0)
    np.testing.assert_allclose(scaling.center, center)
    smallest = np.sort(np.abs(x.numpy() - center), axis=0)[:800]  # of 1000 or 1001
    np.testing.assert_allclose(scaling.scale, 1.15 * smallest.mean(axis=0))
    y = scaling.apply(x)
    again = fit_scaling(y)
    torch.testing.assert_close(again.center, torch.zeros(3).double(), atol=1e-9, rtol=0)
    torch.testing.assert_close(again.scale, torch.ones(3).double(), atol=1e-9, rtol=0)


@pytest.mark.parametrize("n", [500, 501])
@pytest.mark.parametrize("per_column", [True, False])
@pytest.mark.parametrize("a", [3.0, -0.2])
def test_equivariance(a, per_column, n):
    # center(a x + b) = a center(x) + b and scale(a x + b) = |a| scale(x), so the scaled data are the same up to sign
    x = heavy(n)
    b = torch.tensor([5.0, -2.0, 0.0], dtype=torch.float64)
    one, two = fit_scaling(x, per_column), fit_scaling(a * x + b, per_column)
    torch.testing.assert_close(two.center, a * one.center + b)
    torch.testing.assert_close(two.scale, abs(a) * one.scale)
    torch.testing.assert_close(two.apply(a * x + b), math.copysign(1, a) * one.apply(x))


def test_largest_values_do_not_matter():
    x = heavy(1001)
    wild = torch.where(x.abs() > 20, x * 1e30, x)
    assert not torch.equal(x, wild)
    assert fit_scaling(x).to_json() == fit_scaling(wild).to_json()


def test_common_scale():
    x = heavy(1000) * torch.tensor([1.0, 10.0, 100.0])
    scaling = fit_scaling(x, per_column=False)
    deviation = (x - scaling.center).abs().numpy()
    torch.testing.assert_close(scaling.center, fit_scaling(x).center)
    np.testing.assert_allclose(scaling.scale, np.full(3, 1.15 * np.sort(deviation, axis=None)[:2400].mean()))
    # float32 rows are kept in float32, with the same result to its precision
    torch.testing.assert_close(fit_scaling(x.float(), per_column=False).scale, scaling.scale, rtol=1e-5, atol=0)


@pytest.mark.parametrize("alpha", [1.0, 1.3, 1.7, 2.0])
def test_the_scale_of_a_stable_law(alpha):
    # 1.15·mean of the smallest four fifths: 1.07 for a Cauchy law, 0.91 for N(0, 2); the sampling error is below 0.01
    assert abs(fit_scaling(StableData(alpha, 0.05, 1)(200_000, generator())).scale.item() / 0.05 - 1.0) < 0.1


def test_more_than_half_equal():
    # 60 % zeros: of 1 2 3 6 the smallest 3 have mean 2. 90 % zeros: there is only the 6.
    x = torch.zeros(10, 2)
    x[:4, 0] = torch.tensor([1.0, 2.0, 3.0, 6.0])
    x[0, 1] = 6.0
    scale = [pytest.approx(1.15 * 2.0), pytest.approx(1.15 * 6.0)]
    assert fit_scaling(x).to_json() == {"center": [0.0, 0.0], "scale": scale}
    # pooled: of 1 2 3 6 6 the smallest 4 have mean 3
    assert fit_scaling(x, per_column=False).to_json() == {
        "center": [0.0, 0.0],
        "scale": [pytest.approx(1.15 * 3.0)] * 2,
    }


@pytest.mark.parametrize("zeros", [3000, 3900, 3999, 4000, 4950])
@pytest.mark.parametrize("fit", [fit_scaling, fit_asinh_scaling])
def test_rain_has_its_own_scale_however_rare(fit, zeros):
    # The days with rain are of scale 1 after the scaling, whether they are 40 or 1 % of all: a mean over the smallest
    # four fifths of all days would be a mean of zeros and a few drizzles.
    x = heavy(5000, 1, alpha=1.5).abs()
    x[:zeros] = 0.0
    y = fit(x).apply(x)
    assert 0.5 < y[zeros:].median() < 2.0 and bool((y[:zeros] == 0).all())


def test_a_narrow_mode_with_half_of_the_data_does_not_set_the_scale():
    # Half of the points near 1, the rest far away: the median absolute deviation jumps between 0.22 and 0.90 from one
    # sample to the next, as the median falls into the mode or beside it; the trimmed mean between 0.49 and 0.73.
    scales = [fit_scaling(GaussianGrid()(32_000, generator(seed))).scale[0] for seed in range(6)]
    assert max(scales) / min(scales) < 1.6


def test_constant_column():
    x = torch.randn(10, 3, generator=generator())
    x[:, 1] = 3.0
    with pytest.raises(ValueError, match=r"^column 1 is constant and cannot be scaled"):
        fit_scaling(x)
    with pytest.raises(ValueError, match=r"^column 1 \('rain'\) is constant"):
        fit_scaling(x, columns=("loss", "rain", "wind"))
    assert bool((fit_scaling(x, per_column=False).scale > 0).all())  # the common scale is another column's
    with pytest.raises(ValueError, match="^all columns are constant"):
        fit_scaling(torch.ones(10, 3), per_column=False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_round_trip(dtype):
    x = heavy(1000).to(dtype)
    scaling = fit_scaling(x)
    y = scaling.apply(x)
    assert y.dtype == dtype and scaling.invert(y).dtype == dtype
    # two roundings each way: within 4 epsilons of the largest number met
    torch.testing.assert_close(scaling.invert(y), x, rtol=4 * torch.finfo(dtype).eps, atol=4 * torch.finfo(dtype).eps)


def test_json_is_exact():
    scaling = fit_scaling(heavy(1000))
    again = Scaling.from_json(json.loads(json.dumps(scaling.to_json())))
    assert torch.equal(again.center, scaling.center) and torch.equal(again.scale, scaling.scale)
    images = Scaling(torch.tensor(0.5), torch.tensor(0.25))
    assert images.to_json() == {"center": 0.5, "scale": 0.25}
    assert Scaling.from_json(images.to_json()).center.shape == ()
    assert torch.equal(images.apply(torch.ones(2, 3, 4, 4)), torch.full((2, 3, 4, 4), 2.0))


def test_array_on_disk(tmp_path):
    x = heavy(1000).float()
    np.save(tmp_path / "x.npy", x.numpy())
    disk = np.load(tmp_path / "x.npy", mmap_mode="r")
    for per_column in (True, False):
        assert fit_scaling(disk, per_column).to_json() == fit_scaling(x, per_column).to_json()
    assert np.array_equal(disk, x.numpy())  # what is reordered is a copy


def test_bad_scaling():
    one = torch.ones(2)
    for center, scale in ((one, torch.ones(3)), (torch.ones(2, 2), torch.ones(2, 2)), (one, torch.tensor(1.0))):
        with pytest.raises(ValueError, match=r"center and scale must both have shape \(d,\) or both \(\), got"):
            Scaling(center, scale)
    for bad in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="scale must be finite and above 0, got"):
            Scaling(one, torch.tensor([1.0, bad]))
    with pytest.raises(ValueError, match="center must be finite, got"):
        Scaling(torch.tensor([0.0, math.nan]), one)
    with pytest.raises(ValueError, match=r"x must be floating-point of shape \(..., 2\), got \(5, 1\)"):
        Scaling(one, one).apply(torch.zeros(5, 1))
    with pytest.raises(ValueError, match="x must be floating-point"):
        Scaling(one, one).invert(torch.zeros(5, 2, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"numbers must have the keys center and scale, .*got \['center'\]"):
        Scaling.from_json({"center": [0.0]})


@pytest.mark.parametrize("on_disk", [False, True])
def test_check_table(on_disk):
    def table(x):
        return x.numpy() if on_disk else x

    check_table(table(torch.zeros(2, 1)))
    for shape in ((0, 3), (1, 3), (3, 0), (3,), (3, 2, 2)):
        with pytest.raises(ValueError, match=r"values must have shape \(n, d\) with n >= 2 rows and d >= 1, got"):
            check_table(table(torch.zeros(shape)))
    with pytest.raises(ValueError, match="columns must name the 2 columns of values, got 1 names"):
        check_table(table(torch.zeros(3, 2)), ["a"])
    for bad in (math.nan, math.inf, -math.inf):
        x = torch.zeros(70_000, 2)  # the second of the pieces that are looked at
        x[69_000, 1] = x[69_999, 0] = bad
        with pytest.raises(ValueError, match=f"values must be finite, but row 69000, column 1 is {bad}$"):
            check_table(table(x))
        with pytest.raises(ValueError, match=r"row 69000, column 1 \('rain'\) is"):
            fit_scaling(table(x), columns=["loss", "rain"])
    # the sum overflows, the values are finite
    check_table(table(torch.full((4, 1), 3e38)))


def test_data_far_from_zero_keep_their_digits():
    # Around 1e9 the numbers of float32 are 64 apart: they must be centred before they are rounded, and not after.
    x = 1e9 + torch.randn(1000, 1, generator=generator(), dtype=torch.float64)
    scaling = fit_scaling(x)
    y = scaling.apply(x).float()
    assert not scaling.resolved_by(torch.float32) and len(y.unique()) == 1000
    back = scaling.invert(y)
    assert back.dtype == torch.float64
    torch.testing.assert_close(back, x, rtol=0, atol=1e-6)  # float32 rounds y, of size 5 at most, by 2⁻²³
    near = fit_scaling(x - 1e9 + 100.0)
    assert near.resolved_by(torch.float32) and near.invert(y).dtype == torch.float32


def test_what_does_not_fit_is_said():
    wide = Scaling(torch.tensor([0.0], dtype=torch.float64), torch.tensor([1e10], dtype=torch.float64))
    assert wide.invert(torch.tensor([[1e30]])).item() == pytest.approx(1e40)  # in float64, where it fits
    with pytest.raises(FloatingPointError, match="samples as large as 1e.300, scaled, do not fit torch.float64"):
        wide.invert(torch.tensor([[1e300]], dtype=torch.float64))


@pytest.mark.parametrize("per_column", [True, False])
def test_asinh_scaling(per_column):
    # y = asinh(z)/w with z the robustly scaled x, and w what the same rule makes of asinh(z); so y has the scale 1
    x = heavy(1001) * torch.tensor([1.0, 50.0, 1e-3]) + torch.tensor([0.0, 7.0, -1e4])
    scaling = fit_asinh_scaling(x, per_column)
    z = (x.numpy() - np.median(x.numpy(), axis=0)) / fit_scaling(x, per_column).scale.numpy()
    bent = np.abs(np.arcsinh(z))  # the median is a data point, so the centre of asinh(z) is 0
    kept = np.sort(bent, axis=0)[:800] if per_column else np.sort(bent, axis=None)[:2402]  # of 1001, of 3003
    width = np.broadcast_to(1.15 * kept.mean(axis=0), 3)
    np.testing.assert_allclose(scaling.width, width)
    np.testing.assert_allclose(scaling.apply(x), np.arcsinh(z) / width, atol=1e-12)
    again = fit_scaling(scaling.apply(x), per_column)
    torch.testing.assert_close(again.scale, torch.ones(3).double())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_asinh_round_trip(dtype):
    x = torch.cat((heavy(1000), torch.tensor([[-1e30, 0.0, 1e30]]).double())).to(dtype)
    scaling = fit_asinh_scaling(x)
    y = scaling.apply(x)
    assert y.dtype == dtype and y.abs().max() < 120 and scaling.invert(y).dtype == dtype
    # the rounding of y by half an epsilon of 100 is multiplied by the width, about 1, in log x
    torch.testing.assert_close(scaling.invert(y), x, rtol=200 * torch.finfo(dtype).eps, atol=1e-6)
    with pytest.raises(FloatingPointError, match=r"samples as large as 2e\+03, scaled, do not fit"):
        scaling.invert(torch.full((1, 3), 2000.0, dtype=dtype))


def test_asinh_scaling_as_json():
    scaling = fit_asinh_scaling(heavy(1000))
    again = Scaling.from_json(json.loads(json.dumps(scaling.to_json())))
    assert isinstance(again, AsinhScaling)
    assert all(torch.equal(getattr(again, name), getattr(scaling, name)) for name in ("center", "scale", "width"))
    assert scaling.affine.to_json() == fit_scaling(heavy(1000)).to_json() == scaling.affine.affine.to_json()


def test_compression_takes_the_tails_away():
    # P(|x| > r) ~ r^-ν becomes P(|y| > q) ~ exp(-ν width q): the kurtosis of a Laplace law is 6, with 50000 draws of
    # a Cauchy law about 1 below it (the bulk is not exponential), where that of x is near n.
    x = heavy(50_000, 1, alpha=1.0)
    kurtosis = [float((z - z.mean()).pow(4).mean() / z.var().square()) for z in (x, fit_asinh_scaling(x).apply(x))]
    assert kurtosis[0] > 10_000 and 4.0 < kurtosis[1] < 7.0


def test_bad_asinh_scaling(tmp_path):
    one = torch.ones(2)
    with pytest.raises(ValueError, match=r"width must have shape \(2,\), got \(3,\)"):
        AsinhScaling(one, one, torch.ones(3))
    for bad in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="width must be finite and above 0, got"):
            AsinhScaling(one, one, torch.tensor([1.0, bad]))
    with pytest.raises(ValueError, match=r"may have width, got \['center', 'kind', 'scale'\]"):
        Scaling.from_json({"center": [0.0], "scale": [1.0], "kind": "asinh"})
    with pytest.raises(ValueError, match="alpha must be 2 for compressed columns, got 1.7"):
        scaling_for(heavy(10), 1.7, compress=True)
    assert type(scaling_for(heavy(10), 1.7)) is Scaling and type(scaling_for(heavy(10), 2, True)) is AsinhScaling
    for x in (heavy(1000), heavy(1000).float()):
        np.save(tmp_path / "x.npy", x.numpy())
        disk = np.load(tmp_path / "x.npy", mmap_mode="r")
        assert fit_asinh_scaling(disk).to_json() == fit_asinh_scaling(x).to_json()


def test_compression_of_float32_divides_in_float64():
    scaling = AsinhScaling(torch.zeros(1), torch.tensor([1e-10]), torch.ones(1))
    y = scaling.apply(torch.tensor([[3e30]]))  # 3e40 is no float32
    assert y.dtype == torch.float32 and float(y) == pytest.approx(math.log(6e40), rel=1e-6)
