"""What 5000 points tell at best: maximum likelihood within the law that made them."""

import math

import numpy as np
import pytest
import torch

from levydiff.data import Funnel, StudentT
from levydiff.experiments.likelihood import FittedFunnel, FittedStudentT, fit_funnel, fit_student_t, fitted_law
from levydiff.metrics import tail_error


def _generator(seed):
    return torch.Generator().manual_seed(seed)


def _slopes(log_density, constants):
    """The slope of the log likelihood in each constant: 0 at the maximum, about 1 a standard error away from it."""
    constants = torch.tensor(constants, dtype=torch.float64)
    shifts = 1e-5 * torch.eye(len(constants), dtype=torch.float64)
    slopes = torch.stack([log_density(constants + h) - log_density(constants - h) for h in shifts]) / 2e-5
    return slopes.sum(1) / slopes.square().sum(1).sqrt()


@pytest.mark.parametrize("df", [1.0, 1.8, 3.0])
def test_the_likelihood_of_a_student_t_is_flat_at_its_fit(df):
    mix = torch.tensor([[2.0, 0.0], [-1.0, 0.5]], dtype=torch.float64)
    x = StudentT(df).draw(3000, _generator(1)) @ mix.T + torch.tensor([5.0, -3.0])
    law = fit_student_t(x)

    def log_density(constants):
        center, (r_00, r_10, r_11), nu = constants[:2], constants[2:5], constants[5]
        first = (x[:, 0] - center[0]) / r_00  # of R⁻¹(x - μ)
        second = (x[:, 1] - center[1] - r_10 * first) / r_11
        normalisation = torch.lgamma((nu + 2) / 2) - torch.lgamma(nu / 2) - nu.log() - (r_00 * r_11).log()
        return normalisation - (nu + 2) / 2 * torch.log1p((first.square() + second.square()) / nu)

    root = [law.root[0, 0], law.root[1, 0], law.root[1, 1]]
    assert _slopes(log_density, [*law.center, *root, law.df]).abs().max() < 1e-4  # 1e-6 is where the iteration stops
    assert _slopes(log_density, [*law.center, *root, 1.02 * law.df]).abs().max() > 0.1
    # It is the law that made the points. Over many samples ν̂/ν has a standard deviation of 1.3/√n (ν = 1) to 2.3/√n
    # (ν = 3), the entries of R of 1.4/√n or less, the centre of 2.8/√n or less: within four of them.
    unit = 4 / math.sqrt(3000)
    assert law.df == pytest.approx(df, rel=2.3 * unit) and root == pytest.approx([2.0, -1.0, 0.5], rel=1.4 * unit)
    assert law.center.tolist() == pytest.approx([5.0, -3.0], abs=2.8 * unit)


def test_the_likelihood_of_a_funnel_is_flat_at_its_fit():
    v, x = FittedFunnel(1.0, 2.0, -0.5, 1.3).draw(3000, _generator(2)).unbind(1)
    law = fit_funnel(torch.stack((v, x), dim=1))

    def log_density(constants):
        m, s, a, b = constants
        log_variance = a + b * v
        return -s.log() - ((v - m) / s).square() / 2 - log_variance / 2 - x.square() / log_variance.exp() / 2

    constants = [law.m, law.s, law.a, law.b]
    assert _slopes(log_density, constants).abs().max() < 1e-4
    assert _slopes(log_density, [law.m, law.s, law.a, 1.01 * law.b]).abs().max() > 0.1
    assert constants == pytest.approx([1.0, 2.0, -0.5, 1.3], abs=0.15)  # four standard errors or more


def test_what_5000_points_of_the_funnel_tell():
    # What `tails` says: told the formula, a model has the mean tail error 0.079 (1000 draws of the points, standard
    # deviation 0.043), and the points themselves 0.105 (0.050). Of 100 draws the means are off by 0.005 (one standard
    # error): tolerances of three, less than what separates the two.
    generator, funnel = _generator(0), Funnel()
    errors = []
    for _ in range(100):
        points, real = funnel(5000, generator), funnel(25_000, generator)
        errors.append([tail_error(real, fit_funnel(points)(25_000, generator)), tail_error(real, points)])
    fitted, remembered = np.mean(errors, axis=0)
    assert fitted == pytest.approx(0.079, abs=0.013) and remembered == pytest.approx(0.105, abs=0.015)
    assert fitted < remembered - 0.01


def test_what_5000_points_of_a_student_t_tell():
    # What `tails` says of ν = 1: the mean tail error of the fitted law is 0.083 (400 draws of the points, standard
    # deviation 0.044), of other data 0.060 (0.027). Of 60 draws the means are off by 0.006 and 0.0035 (one standard
    # error): tolerances of three.
    generator, law = _generator(1), StudentT(1.0)
    errors = []
    for _ in range(60):
        points, real = law(5000, generator), law(25_000, generator)
        fitted = fit_student_t(points, rounds=30)(25_000, generator)
        errors.append([tail_error(real, fitted), tail_error(real, law(25_000, generator))])
    fitted, perfect = np.mean(errors, axis=0)
    assert fitted == pytest.approx(0.083, abs=0.018) and perfect == pytest.approx(0.060, abs=0.011)


def test_a_fitted_law_with_the_true_constants_is_the_law():
    draws = [law.draw(100, _generator(3)) for law in (Funnel(), FittedFunnel(0.0, 3.0, 0.0, 1.0))]
    assert torch.equal(*draws)
    t = StudentT(1.5).draw(100, _generator(3))
    center, root = torch.tensor([1.0, 2.0], dtype=torch.float64), torch.tensor([[2.0, 0.0], [1.0, 3.0]]).double()
    made = FittedStudentT(center, root, 1.5).draw(100, _generator(3))
    assert torch.allclose(made[:, 0], 1 + 2 * t[:, 0]) and torch.allclose(made[:, 1], 2 + t[:, 0] + 3 * t[:, 1])


def test_other_data_have_no_law_to_fit():
    assert isinstance(fitted_law("student-t:df=3", StudentT(3.0)(50, _generator(4))), FittedStudentT)
    assert isinstance(fitted_law("funnel", Funnel()(50, _generator(4))), FittedFunnel)
    with pytest.raises(ValueError, match="data must be one of student-t, funnel, got 'grid'"):
        fitted_law("grid", torch.zeros(5, 2))
    with pytest.raises(ValueError, match="points must have 2 columns, v and x, got 3"):
        fitted_law("funnel:dim=3", Funnel(dim=3)(50, _generator(4)))
