"""The paper's network: its sizes, and the boundedness that preconditioning repairs."""

import pytest
import torch

from levydiff import Denoiser, LevyProcess, StableOracle, StablePreconditioning
from levydiff.nn import PaperMLP, TailMLP


def test_sizes():
    # entry 2·64 + 64 (+ norm 128), time 1·32 + 32 and 32·32 + 32, four blocks of two 64×64 layers and one 32×64,
    # exit 64·2 + 2
    block = 2 * (64 * 64 + 64 + 2 * 64) + 32 * 64 + 64
    expected = (2 * 64 + 64 + 128) + (32 + 32 + 32 * 32 + 32) + 4 * block + (64 * 2 + 2)
    assert sum(p.numel() for p in PaperMLP(2).parameters()) == expected
    assert PaperMLP(5, out_dim=10)(torch.zeros(3, 5), torch.zeros(3)).shape == (3, 10)


def test_output_is_bounded_unless_preconditioned():
    torch.manual_seed(0)
    process, net = LevyProcess(1.7), PaperMLP(2)
    far = 1e6 * torch.randn(50, 2)
    t = torch.full((50,), 0.5)
    assert float(net(far, t).detach().abs().max()) < 100
    eps = Denoiser(net, process, StablePreconditioning())(far, t).detach()
    torch.testing.assert_close(eps, StableOracle(process)(far, t), rtol=1e-3, atol=100)


@pytest.mark.parametrize("kind", [PaperMLP, TailMLP])
def test_conditions(kind):
    torch.manual_seed(0)
    net = kind(3, classes=4, vector_dim=2)
    torch.nn.init.normal_(net.exit.weight)
    for module in net.modules():  # let the time's features through from the start
        if isinstance(module, torch.nn.Linear) and not module.weight.any():
            torch.nn.init.normal_(module.weight, std=0.1)
    x, t, label, vector = torch.randn(5, 3), torch.rand(5), torch.arange(5) % 4, torch.randn(5, 2)
    out = net(x, t, label=label, vector=vector)
    assert not torch.allclose(out, net(x, t, label=(label + 1) % 4, vector=vector))
    assert not torch.allclose(out, net(x, t, label=label, vector=vector + 1))
    with pytest.raises(ValueError, match="label must be given exactly if the network has classes, got 4 classes"):
        net(x, t, vector=vector)
    with pytest.raises(ValueError, match="label must lie in 0 ... 3, got 0 ... 4"):
        net(x, t, label=torch.arange(5), vector=vector)
    with pytest.raises(ValueError, match="vector must be given exactly if the network has vector_dim, got 0"):
        kind(3)(x, t, vector=vector)


def test_tail_network_starts_at_zero():
    process = LevyProcess(1.7)
    x, t = torch.randn(5, 2), torch.rand(5)
    denoiser = Denoiser(TailMLP(2), process, StablePreconditioning(0.4))
    torch.testing.assert_close(denoiser(x, t), StableOracle(process, 0.4)(x, t))


def test_time_matters():
    torch.manual_seed(0)
    net, x = PaperMLP(2), torch.randn(4, 2)
    assert not torch.allclose(net(x, torch.zeros(4)), net(x, torch.ones(4)))


@pytest.mark.parametrize("make", [PaperMLP, TailMLP])
def test_rows_that_share_a_time_are_computed_as_if_they_did_not(make):
    torch.manual_seed(0)
    net = make(2, width=16).double()
    for weight in net.parameters():  # also those that start at zero
        torch.nn.init.normal_(weight, std=0.3)
    x, t = torch.randn(40, 2).double(), (torch.arange(40) % 5 / 5.0).double()
    alone = torch.cat([net(x[i : i + 1], t[i : i + 1]) for i in range(40)])
    torch.testing.assert_close(net(x, t), alone)
    gradients = [torch.autograd.grad(out.square().sum(), list(net.parameters())) for out in (net(x, t), alone)]
    torch.testing.assert_close(*gradients)
    same = torch.tensor(0.4).double().expand(40)
    torch.testing.assert_close(net(x, same), net(x, same.clone()))


@pytest.mark.parametrize("make", [PaperMLP, TailMLP])
def test_half_precision(make):
    """bfloat16 rounds by 2⁻⁸; the features of the time are not rounded before the sine, where 2⁷π·2⁻⁸ is a radian."""
    torch.manual_seed(0)
    net = make(2, width=32)
    torch.nn.init.normal_(net.exit.weight, std=0.3)
    x, t = torch.randn(50, 2), torch.linspace(0.01, 0.99, 50)
    expected = net(x, t)
    torch.testing.assert_close(net.bfloat16()(x.bfloat16(), t).float(), expected, rtol=0.1, atol=0.1)
