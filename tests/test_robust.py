"""The median of means: its values re-derived, and its gradient against that of the plain graph."""

import math

import pytest
import torch

from levydiff import Denoiser, LevyProcess, MedianOfMeans, OneVariableLoss, SelfWeightedLoss, median_of_means
from levydiff.guidance import LabelDropout
from levydiff.nn import PaperMLP
from levydiff.stable import positive_stable

B, D = 16, 3
X0 = torch.randn(B, D, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def network(x, t):
    return torch.tanh(x) * t.unsqueeze(-1) + 0.1 * x


def generator():
    return torch.Generator().manual_seed(7)


def test_median_of_means_function():
    values = torch.tensor([[1.0, 9.0], [3.0, 9.0], [10.0, 1.0], [20.0, 1.0], [5.0, 2.0], [5.0, 4.0]])
    assert median_of_means(values, 3).tolist() == [5.0, 3.0]
    assert median_of_means(values, 1).tolist() == values.mean(0).tolist()
    assert median_of_means(torch.tensor([1.0, 2.0, 3.0, 10.0]), 4).item() == 2.5
    with pytest.raises(ValueError, match="groups must divide the number of values, 6, got 4"):
        median_of_means(values, 4)


def test_median_of_means_is_robust():
    # Over 200 batches of 900 Cauchy values, the median of 30 means of 30 errs like a Cauchy median (spread
    # π/(2√30) = 0.29); the plain mean is itself Cauchy, with a typical error of 1.
    source = torch.Generator().manual_seed(0)
    values = torch.tan(math.pi * (torch.rand(900, 200, generator=source, dtype=torch.float64) - 0.5))
    assert float(median_of_means(values, 30).abs().median()) < 0.3
    assert float(values.mean(0).abs().median()) > 0.7


def test_median_of_means_loss():
    d, m = Denoiser(network, LevyProcess(1.7), dtype=torch.float64), 3
    source = generator()
    schedule = d.process.schedule
    t = schedule.t_min + (schedule.t_max - schedule.t_min) * torch.rand(B, generator=source, dtype=torch.float64)
    t = t.repeat_interleave(m * m)
    a = positive_stable(1.7, (B * m * m, 1), source, torch.float64)
    eps = a.sqrt() * torch.randn(B * m * m, D, generator=source, dtype=torch.float64)
    x_t = schedule.gamma_bar(t)[:, None] * X0.repeat_interleave(m * m, 0) + schedule.sigma_bar(t)[:, None] * eps
    norms = (network(x_t, t) - eps).norm(dim=1).reshape(B, m, m)
    expected = norms.mean(2).median(1).values
    torch.testing.assert_close(MedianOfMeans(OneVariableLoss(), m)(d, X0, generator()), expected)


def test_median_of_means_picks_the_conditions():
    seen = {}

    def conditional(x, t, label):
        seen["label"] = label
        return x

    MedianOfMeans(OneVariableLoss(), 2)(Denoiser(conditional, LevyProcess(1.7)), X0.float(), label=torch.arange(B))
    assert seen["label"].tolist() == [j for j in range(B) for _ in range(4)]
    with pytest.raises(ValueError, match="loss must have inner = 1 inside MedianOfMeans, got 2"):
        MedianOfMeans(OneVariableLoss(inner=2), 2)


@pytest.mark.parametrize("groups", [2, 3, 5])
@pytest.mark.parametrize("inner", [OneVariableLoss(), SelfWeightedLoss()], ids=["one-variable", "self-weighted"])
def test_the_gradient_is_that_of_the_whole_graph(inner, groups):
    torch.manual_seed(0)
    d = Denoiser(PaperMLP(D, classes=4).double(), LevyProcess(1.7))
    label = torch.arange(B) % 4
    loss = MedianOfMeans(inner, groups)
    rows = torch.arange(B).repeat_interleave(groups**2)
    source = generator()
    t = loss.draw_times(d.process, X0, source)
    values = inner.evaluate(d, X0[rows], t[rows], source, label=label[rows])
    plain = median_of_means(values.reshape(B, groups**2).T, groups)
    ours = loss(d, X0, generator(), label=label)
    torch.testing.assert_close(ours, plain)
    weights = torch.linspace(0.5, 1.5, B, dtype=torch.float64)
    expected = torch.autograd.grad((weights * plain).sum(), list(d.parameters()))
    gradient = torch.autograd.grad((weights * ours).sum(), list(d.parameters()))
    torch.testing.assert_close(gradient, expected)


@pytest.mark.parametrize(("groups", "chosen"), [(3, 1), (4, 2), (5, 1)])
def test_only_the_chosen_groups_are_run_again(groups, chosen):
    calls = []

    class Counting(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(()))

        def forward(self, x, t):
            calls.append((len(x), torch.is_grad_enabled()))
            return self.weight * x

    MedianOfMeans(OneVariableLoss(), groups)(Denoiser(Counting(), LevyProcess(1.7)), X0.float()).mean().backward()
    assert calls == [(B * groups**2, False), (B * groups * chosen, True)]


def test_conditions_get_their_gradient():
    encoder = torch.nn.Linear(3, D, dtype=torch.float64)
    seen = torch.randn(B, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    denoiser = Denoiser(lambda x, t, vector: torch.tanh(x) + vector, LevyProcess(1.7), dtype=torch.float64)
    loss = MedianOfMeans(OneVariableLoss(), 2)
    loss(denoiser, X0, generator(), vector=encoder(seen)).mean().backward()
    assert encoder.weight.grad is not None and float(encoder.weight.grad.abs().max()) > 0


def test_a_gradient_of_zero_is_zero():
    torch.manual_seed(0)
    denoiser = Denoiser(PaperMLP(D, width=8, blocks=1).double(), LevyProcess(1.7))
    (0.0 * MedianOfMeans(SelfWeightedLoss(), 2)(denoiser, X0, generator()).mean()).backward()
    assert all(float(weight.grad.abs().max()) == 0 for weight in denoiser.parameters())


def test_inner_draws_are_refused_through_a_wrapper():
    with pytest.raises(ValueError, match="loss must have inner = 1 inside MedianOfMeans, got 4"):
        MedianOfMeans(LabelDropout(OneVariableLoss(inner=4), 3), 2)
