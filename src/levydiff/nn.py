r"""Networks: the paper's time-conditioned multilayer perceptron for points in R^d."""

from __future__ import annotations

from torch import Tensor, nn

from .checks import check_count


class _Block(nn.Module):
    """h ↦ SiLU(h + W₂(SiLU(W₁h) + SiLU(Vτ))), with both layers normalised."""

    def __init__(self, width: int, time_width: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width), nn.SiLU())
        self.time = nn.Sequential(nn.Linear(time_width, width), nn.SiLU())
        self.second = nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width))
        self.activation = nn.SiLU()

    def forward(self, h: Tensor, tau: Tensor) -> Tensor:
        out: Tensor = self.activation(h + self.second(self.first(h) + self.time(tau)))
        return out


class PaperMLP(nn.Module):
    r"""The paper's network for two-dimensional data: residual blocks that see the time.

    x passes a normalised layer, then ``blocks`` residual blocks of two ``width``-wide layers; t passes two
    ``time_width``-wide layers and is added inside each block through a layer of its own. Since the first layer is
    normalised, the features are bounded and the output cannot grow with x: use it with
    :class:`~levydiff.denoise.StablePreconditioning` to follow a tail.

    Arguments:
        dim: d, the dimension of the data.
        out_dim: The dimension of the output; d by default (2d for a learned variance).
        width: The width of the layers.
        blocks: How many blocks.
        time_width: The width of the time's layers.

    Example:
        >>> import torch
        >>> PaperMLP(2)(torch.randn(5, 2), torch.rand(5)).shape
        torch.Size([5, 2])
    """

    def __init__(
        self, dim: int, out_dim: int | None = None, width: int = 64, blocks: int = 4, time_width: int = 32
    ) -> None:
        super().__init__()
        check_count("dim", dim)
        self.time = nn.Sequential(nn.Linear(1, time_width), nn.SiLU(), nn.Linear(time_width, time_width), nn.SiLU())
        self.entry = nn.Sequential(nn.Linear(dim, width), nn.LayerNorm(width), nn.SiLU())
        self.blocks = nn.ModuleList(_Block(width, time_width) for _ in range(check_count("blocks", blocks)))
        self.exit = nn.Linear(width, out_dim or dim)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        tau = self.time(t.unsqueeze(-1))
        h = self.entry(x)
        for block in self.blocks:
            h = block(h, tau)
        out: Tensor = self.exit(h)
        return out
