"""levydiff.unet: sizes, conditions, what it refuses."""

import pytest
import torch

from levydiff import Denoiser, LevyProcess, StableOracle, StablePreconditioning
from levydiff.checkpoint import from_config, to_config
from levydiff.unet import UNet

TINY = {"channels": 1, "size": 8, "widths": (8, 16), "groups": 4}


def _random(network: UNet) -> UNet:
    """The output layer starts at zero; for a test of what the network sees it must not."""
    torch.nn.init.normal_(network.network.conv_out.weight, generator=torch.Generator().manual_seed(1))
    return network.eval()


def test_the_papers_network_has_the_papers_sizes():
    with torch.device("meta"):
        network = UNet.paper(3)
    config = network.network.config
    assert config.block_out_channels == (128, 256, 256, 256) and config.layers_per_block == 2
    assert config.resnet_time_scale_shift == "scale_shift" and config.act_fn == "silu"
    # 32, 16, 8, 4: attention on the second level going down, on the last but one going up; 256 channels in 4 heads
    assert [name.startswith("Attn") for name in config.down_block_types] == [False, True, False, False]
    assert [name.startswith("Attn") for name in config.up_block_types] == [False, False, True, False]
    assert config.attention_head_dim == 64 and network.time_factor == 1.0
    assert sum(weight.numel() for weight in network.parameters()) == pytest.approx(38.3e6, rel=0.01)


def test_the_small_network_is_small():
    network = UNet.small(1, 28)
    assert sum(weight.numel() for weight in network.parameters()) == pytest.approx(0.4e6, rel=0.01)
    assert network(torch.randn(2, 1, 28, 28), torch.rand(2)).shape == (2, 1, 28, 28)


def test_training_starts_from_the_exact_denoiser_of_stable_data():
    """The output layer is zero, so that F = 0, which with stable preconditioning is exact for SαS(1) data."""
    process = LevyProcess(1.7)
    denoiser = Denoiser(UNet(**TINY), process, StablePreconditioning(scale=1.0))
    x_t, t = 10.0 * torch.randn(3, 1, 8, 8), torch.tensor([0.1, 0.5, 0.9])
    assert torch.allclose(denoiser(x_t, t), StableOracle(process)(x_t, t), rtol=1e-5)


def test_time_and_label_matter_and_none_is_the_null_class():
    network = _random(UNet(**TINY, classes=3))
    x = torch.randn(2, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        at = {t: network(x, torch.full((2,), t)) for t in (0.3, 0.31)}
        assert not torch.allclose(at[0.3], at[0.31], atol=1e-4)
        null = network(x, torch.full((2,), 0.3), label=torch.tensor([3, 3]))
        assert torch.equal(null, at[0.3])
        labelled = network(x, torch.full((2,), 0.3), label=torch.tensor([0, 2]))
        assert not torch.allclose(labelled, null, atol=1e-4)


def test_patches_keep_pixels_in_their_place():
    """With the identity in diffusers' network's place, the patches are put together as they were."""
    network = UNet(1, 8, widths=(8,), groups=4, head_width=8, patch=2)
    network.network = _Identity()
    x = torch.randn(2, 1, 8, 8)
    assert torch.equal(network(x, torch.rand(2)), x)


class _Identity(torch.nn.Module):
    device = torch.device("cpu")

    def forward(self, x, t, label):
        assert x.shape == (2, 4, 4, 4)
        return type("Output", (), {"sample": x})


def test_it_is_stored_as_its_arguments():
    network = UNet(**TINY, classes=3, attention=(4,), dropout=0.1)
    again = from_config(to_config(network))
    assert again.config == network.config and list(again.state_dict()) == list(network.state_dict())


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"size": 9}, "size must be a multiple of 2 for 2 levels on patches of 1, got 9: pad the images to 10"),
        ({"size": 28, "widths": (8, 8, 8, 8)}, "size must be a multiple of 8 .* got 28: pad the images to 32"),
        ({"attention": (16,)}, r"attention must name resolutions of levels, \[8, 4\], got \[16\]"),
        ({"head_width": 32}, "head_width must divide the widths with attention, 16, got 32"),
        ({"channels": 0}, "channels must be a whole number of at least 1, got 0"),
    ],
)
def test_bad_arguments_are_refused(change, sentence):
    with pytest.raises(ValueError, match=sentence):
        UNet(**{**TINY, **change})


def test_bad_input_is_refused():
    network = UNet(**TINY, classes=3)
    x, t = torch.randn(2, 1, 8, 8), torch.rand(2)
    with pytest.raises(ValueError, match=r"x must be images of shape \(1, 8, 8\) for this network, got \(3, 8, 8\)"):
        network(torch.randn(2, 3, 8, 8), t)
    with pytest.raises(ValueError, match=r"label must lie in 0 ... 2 \(3 is the null class\), got 1 ... 4"):
        network(x, t, label=torch.tensor([1, 4]))
    with pytest.raises(ValueError, match=r"label must be whole numbers of shape \(2,\), got torch.float32 \(2,\)"):
        network(x, t, label=torch.tensor([1.0, 2.0]))
    with pytest.raises(ValueError, match="label must be None for a network without classes"):
        UNet(**TINY)(x, t, label=torch.tensor([1, 1]))
