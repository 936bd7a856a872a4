"""The paper's network: its sizes, and the boundedness that preconditioning repairs."""

import torch

from levydiff import Denoiser, LevyProcess, StableOracle, StablePreconditioning
from levydiff.nn import PaperMLP


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


def test_time_matters():
    torch.manual_seed(0)
    net, x = PaperMLP(2), torch.randn(4, 2)
    assert not torch.allclose(net(x, torch.zeros(4)), net(x, torch.ones(4)))
