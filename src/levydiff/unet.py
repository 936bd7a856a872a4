r"""A U-Net for images: diffusers' ``UNet2DModel`` with the time in [0, 1] and our names. Needs the extra ``images``.

The network is a function ``f(x, t, label=None)`` of images x of shape (B, c, h, w), times t of shape (B,) and,
if it has classes, class numbers of shape (B,); a :class:`~levydiff.denoise.Denoiser` takes it as its backbone.

=====================  ===============================================================================================
:meth:`UNet.paper`     widths 128, 256, 256, 256, two residual blocks a level, four heads of attention at 16x16:
                       38 million weights, for GPUs
:meth:`UNet.small`     widths 24, 48 on patches of 2x2 pixels, one residual block: 0.4 million weights, for CPUs
=====================  ===============================================================================================

The output layer starts at zero. With :class:`~levydiff.denoise.StablePreconditioning` training then starts from the
exact denoiser of α-stable data, and with the paper's plain one from ε̂ = 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pixel_shuffle, pixel_unshuffle

from .checks import check_count, check_positive


class UNet(nn.Module):
    """diffusers' U-Net, with scale-shift conditioning on the time and optional classes.

    Arguments:
        channels: c of the images: 1 for gray, 3 for colour.
        size: h = w of the images, a multiple of ``patch`` · 2^(levels - 1).
        widths: The channels of each level; every level but the first halves the resolution.
        layers: Residual blocks on each level.
        attention: Resolutions (in patches) of the levels with attention. The middle block always has it.
        head_width: Channels of one attention head.
        groups: Groups of the group normalisation; they divide every width.
        patch: Work on patches of so many pixels squared; each patch becomes channels.
        classes: How many classes; 0 for none. Class number ``classes`` is the null class, which ``label=None`` means
            too: see :mod:`levydiff.guidance`.
        time_factor: The sinusoids of the time see t times this. The paper's networks see t itself.
        dropout: In the residual blocks.

    Example:
        >>> network = UNet(channels=1, size=8, widths=(8, 16), groups=4, classes=10)
        >>> network(torch.randn(5, 1, 8, 8), torch.rand(5), label=torch.arange(5)).shape
        torch.Size([5, 1, 8, 8])
    """

    def __init__(
        self,
        channels: int,
        size: int,
        widths: Sequence[int] = (32, 64),
        layers: int = 1,
        attention: Sequence[int] = (),
        head_width: int = 16,
        groups: int = 8,
        patch: int = 1,
        classes: int = 0,
        time_factor: float = 1000.0,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.config: dict[str, Any] = {
            "channels": check_count("channels", channels),
            "size": check_count("size", size),
            "widths": [check_count("widths", width) for width in widths],
            "layers": check_count("layers", layers),
            "attention": list(attention),
            "head_width": check_count("head_width", head_width),
            "groups": check_count("groups", groups),
            "patch": check_count("patch", patch),
            "classes": check_count("classes", classes) if classes else 0,
            "time_factor": check_positive("time_factor", time_factor),
            "dropout": dropout,
        }
        self.channels, self.size, self.patch, self.classes = channels, size, patch, classes
        self.time_factor = time_factor
        if not widths:
            raise ValueError("widths must have a number for each level, got none")
        resolutions = _resolutions(size, patch, len(widths))
        missing = set(attention) - set(resolutions)
        if missing:
            raise ValueError(f"attention must name resolutions of levels, {resolutions}, got {sorted(missing)}")
        attended = [resolution in attention for resolution in resolutions]
        for width in (widths[-1], *(width for width, here in zip(widths, attended, strict=True) if here)):
            if width % head_width:  # diffusers would round the number of heads down, to none if need be
                raise ValueError(f"head_width must divide the widths with attention, {width}, got {head_width}")
        self.network = _diffusers_unet()(
            sample_size=size // patch,
            in_channels=channels * patch**2,
            out_channels=channels * patch**2,
            block_out_channels=tuple(widths),
            layers_per_block=layers,
            down_block_types=tuple("AttnDownBlock2D" if here else "DownBlock2D" for here in attended),
            up_block_types=tuple("AttnUpBlock2D" if here else "UpBlock2D" for here in reversed(attended)),
            attention_head_dim=head_width,
            norm_num_groups=groups,
            resnet_time_scale_shift="scale_shift",
            num_class_embeds=classes + 1 if classes else None,
            dropout=dropout,
        )
        nn.init.zeros_(self.network.conv_out.weight)
        nn.init.zeros_(self.network.conv_out.bias)

    @classmethod
    def paper(cls, channels: int, size: int = 32, classes: int = 0) -> UNet:
        """The paper's network for MNIST (padded to 32x32) and CIFAR10-LT; sizes 32, 64, 128 have a level of 16x16."""
        if size not in (32, 64, 128):
            raise ValueError(f"size must be 32, 64 or 128 for the paper's network, got {size}: pad or scale the images")
        return cls(
            channels,
            size,
            widths=(128, 256, 256, 256),
            layers=2,
            attention=(16,),
            head_width=64,
            groups=32,
            classes=classes,
            time_factor=1.0,
        )

    @classmethod
    def small(cls, channels: int, size: int, classes: int = 0) -> UNet:
        """A network that a CPU can train; size is a multiple of 4."""
        return cls(channels, size, widths=(24, 48), patch=2, classes=classes)

    def forward(self, x: Tensor, t: Tensor, label: Tensor | None = None) -> Tensor:
        """f(x, t) of the shape of x."""
        if x.shape[1:] != (self.channels, self.size, self.size):
            expected = (self.channels, self.size, self.size)
            raise ValueError(f"x must be images of shape {expected} for this network, got {tuple(x.shape[1:])}")
        out = self.network(pixel_unshuffle(x, self.patch), t * self.time_factor, self._labels(label, len(x))).sample
        return pixel_shuffle(out, self.patch)

    def _labels(self, label: Tensor | None, size: int) -> Tensor | None:
        if not self.classes:
            if label is not None:
                raise ValueError("label must be None for a network without classes")
            return None
        if label is None:
            return torch.full((size,), self.classes, device=self.network.device)
        if label.shape != (size,) or label.is_floating_point():
            raise ValueError(f"label must be whole numbers of shape ({size},), got {label.dtype} {tuple(label.shape)}")
        if bool(((label < 0) | (label > self.classes)).any()):
            raise ValueError(
                f"label must lie in 0 ... {self.classes - 1} ({self.classes} is the null class), "
                f"got {int(label.min())} ... {int(label.max())}"
            )
        return label


def _resolutions(size: int, patch: int, levels: int) -> list[int]:
    """The resolution of each level, in patches."""
    multiple = patch * 2 ** (levels - 1)
    if size % multiple:
        raise ValueError(
            f"size must be a multiple of {multiple} for {levels} levels on patches of {patch}, got {size}: "
            f"pad the images to {-(-size // multiple) * multiple} (levydiff.images.pad)"
        )
    return [size // patch // 2**level for level in range(levels)]


def _diffusers_unet() -> Any:
    try:
        from diffusers import UNet2DModel
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError('a U-Net needs diffusers: pip install "levydiff[images]"') from error
    return UNet2DModel
