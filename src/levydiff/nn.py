r"""Networks for points in R^d: the paper's, and ours.

Both are functions ``f(x, t, label=None, vector=None)`` of points x of shape (B, d) and times t in [0, 1] of shape
(B,). ``label`` (class numbers, shape (B,)) and ``vector`` (shape (B, c)) are optional conditions, embedded and
added to the features of the time.

==================  ===================================================================================================
:class:`PaperMLP`   four normalised residual blocks, 64 wide; bounded features
:class:`TailMLP`    four residual blocks, 64 wide, modulated by the time; starts at F = 0, our default for points and
                    tables, made for :class:`~levydiff.denoise.StablePreconditioning`
==================  ===================================================================================================
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from .checks import check_count


def distinct_times(t: Tensor) -> tuple[Tensor, Tensor | None]:
    """The distinct values of t, shape (m,), and which of them each row has, shape (B,); None if all have the first.

    Samplers give all rows one time, and the paper trains on a hundred: the layers that see nothing but the time need
    not run for every row. Where (almost) all times differ, t itself is returned, with None.

    Example:
        >>> distinct_times(torch.tensor([0.5, 0.2, 0.5, 0.2]))
        (tensor([0.2000, 0.5000]), tensor([1, 0, 1, 0]))
        >>> distinct_times(torch.tensor(0.3).expand(100))
        (tensor([0.3000]), None)
    """
    if t.stride(0) == 0 or len(t) == 1:
        return t[:1], None
    if t.device.type != "cpu":  # to count the distinct times would halt the device's queue
        return t, None
    times, rows = torch.unique(t, return_inverse=True)
    return (times, rows) if 2 * len(times) <= len(t) else (t, None)


def spread(features: Tensor, rows: Tensor | None) -> Tensor:
    """Features of distinct times dealt out to the rows; as they are, to be broadcast, if there are no ``rows``."""
    return features if rows is None else features.index_select(0, rows)


class Condition(nn.Module):
    """Class numbers and vectors, embedded into one vector of the given width.

    Arguments:
        width: The width of the embedding.
        classes: How many classes; 0 for none.
        vector_dim: The dimension of a condition vector; 0 for none.
    """

    def __init__(self, width: int, classes: int = 0, vector_dim: int = 0) -> None:
        super().__init__()
        self.classes, self.vector_dim = classes, vector_dim
        self.label = nn.Embedding(classes, width) if classes else None
        self.vector = nn.Linear(vector_dim, width) if vector_dim else None

    def forward(
        self, tau: Tensor, rows: Tensor | None, size: int, label: Tensor | None, vector: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """The time's features plus those of the conditions, which make them every row's own."""
        if (label is None) != (self.label is None):
            raise ValueError(f"label must be given exactly if the network has classes, got {self.classes} classes")
        if (vector is None) != (self.vector is None):
            raise ValueError(f"vector must be given exactly if the network has vector_dim, got {self.vector_dim}")
        for name, value in (("label", label), ("vector", vector)):
            if value is not None and (not isinstance(value, Tensor) or value.shape[:1] != (size,)):
                shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
                raise ValueError(f"{name} must be a tensor with {size} rows, one for each sample, got {shape}")
        if label is not None or vector is not None:
            tau, rows = spread(tau, rows), None
        if self.label is not None and label is not None:
            if bool(((label < 0) | (label >= self.classes)).any()):
                raise ValueError(
                    f"label must lie in 0 ... {self.classes - 1}, got {int(label.min())} ... {int(label.max())}"
                )
            tau = tau + self.label(label)
        if self.vector is not None and vector is not None:
            tau = tau + self.vector(vector.to(tau.dtype))
        return tau, rows


class _PaperBlock(nn.Module):
    """h ↦ SiLU(h + W₂(SiLU(W₁h) + SiLU(Vτ))), with both layers normalised."""

    def __init__(self, width: int, time_width: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width), nn.SiLU())
        self.time = nn.Sequential(nn.Linear(time_width, width), nn.SiLU())
        self.second = nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width))
        self.activation = nn.SiLU()

    def forward(self, h: Tensor, tau: Tensor, rows: Tensor | None) -> Tensor:
        out: Tensor = self.activation(h + self.second(self.first(h) + spread(self.time(tau), rows)))
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
        classes, vector_dim: Optional conditions, see :class:`Condition`.

    Example:
        >>> PaperMLP(2)(torch.randn(5, 2), torch.rand(5)).shape
        torch.Size([5, 2])
    """

    def __init__(
        self,
        dim: int,
        out_dim: int | None = None,
        width: int = 64,
        blocks: int = 4,
        time_width: int = 32,
        classes: int = 0,
        vector_dim: int = 0,
    ) -> None:
        super().__init__()
        self.config: dict[str, Any] = {
            "dim": check_count("dim", dim),
            "out_dim": None if out_dim is None else check_count("out_dim", out_dim),
            "width": check_count("width", width),
            "blocks": check_count("blocks", blocks),
            "time_width": check_count("time_width", time_width),
            "classes": check_count("classes", classes) if classes else 0,
            "vector_dim": check_count("vector_dim", vector_dim) if vector_dim else 0,
        }
        self.time = nn.Sequential(nn.Linear(1, time_width), nn.SiLU(), nn.Linear(time_width, time_width), nn.SiLU())
        self.condition = Condition(time_width, classes, vector_dim)
        self.entry = nn.Sequential(nn.Linear(dim, width), nn.LayerNorm(width), nn.SiLU())
        self.blocks = nn.ModuleList(_PaperBlock(width, time_width) for _ in range(blocks))
        self.exit = nn.Linear(width, out_dim or dim)

    def forward(self, x: Tensor, t: Tensor, label: Tensor | None = None, vector: Tensor | None = None) -> Tensor:
        times, rows = distinct_times(t)
        times = times.to(self.exit.weight.dtype)
        tau, rows = self.condition(self.time(times.unsqueeze(-1)), rows, len(x), label, vector)
        h = self.entry(x)
        for block in self.blocks:
            h = block(h, tau, rows)
        out: Tensor = self.exit(h)
        return out


class _ModulatedBlock(nn.Module):
    """h ↦ h + W₂ SiLU((1 + a(τ)) ∘ W₁h + b(τ)); a and b start at 0."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Linear(width, width)
        self.modulation = nn.Linear(width, 2 * width)
        self.second = nn.Linear(width, width)
        nn.init.zeros_(self.modulation.weight)
        nn.init.zeros_(self.modulation.bias)

    def forward(self, h: Tensor, tau: Tensor, rows: Tensor | None) -> Tensor:
        scale, shift = spread(self.modulation(tau), rows).chunk(2, dim=-1)
        out: Tensor = h + self.second(nn.functional.silu(torch.addcmul(shift, self.first(h), 1.0 + scale)))
        return out


class TailMLP(nn.Module):
    r"""Our network for points and tables: residual blocks whose hidden layer is scaled and shifted by the time.

    The time enters as sines and cosines of :math:`2^k π t`, k = 0 … 7. The last layer starts at zero, so that with
    :class:`~levydiff.denoise.StablePreconditioning` training starts from the exact denoiser of α-stable data.

    Arguments:
        dim: d, the dimension of the data.
        out_dim: The dimension of the output; d by default (2d for a learned variance).
        width: The width of the layers.
        blocks: How many blocks.
        classes, vector_dim: Optional conditions, see :class:`Condition`.

    Example:
        >>> TailMLP(3, classes=10)(torch.randn(5, 3), torch.rand(5), label=torch.arange(5)).shape
        torch.Size([5, 3])
    """

    frequencies: Tensor

    def __init__(
        self,
        dim: int,
        out_dim: int | None = None,
        width: int = 64,
        blocks: int = 4,
        classes: int = 0,
        vector_dim: int = 0,
    ) -> None:
        super().__init__()
        self.config: dict[str, Any] = {
            "dim": check_count("dim", dim),
            "out_dim": None if out_dim is None else check_count("out_dim", out_dim),
            "width": check_count("width", width),
            "blocks": check_count("blocks", blocks),
            "classes": check_count("classes", classes) if classes else 0,
            "vector_dim": check_count("vector_dim", vector_dim) if vector_dim else 0,
        }
        self.register_buffer("frequencies", 2.0 ** torch.arange(8), persistent=False)  # exact in half precision
        self.time = nn.Sequential(nn.Linear(17, width), nn.SiLU())
        self.condition = Condition(width, classes, vector_dim)
        self.entry = nn.Linear(dim, width)
        self.blocks = nn.ModuleList(_ModulatedBlock(width) for _ in range(blocks))
        self.exit = nn.Linear(width, out_dim or dim)
        nn.init.zeros_(self.exit.weight)
        nn.init.zeros_(self.exit.bias)

    def forward(self, x: Tensor, t: Tensor, label: Tensor | None = None, vector: Tensor | None = None) -> Tensor:
        times, rows = distinct_times(t)
        angle = times.unsqueeze(-1) * self.frequencies * math.pi
        features = torch.cat([times.unsqueeze(-1), torch.sin(angle), torch.cos(angle)], dim=-1)
        tau, rows = self.condition(self.time(features.to(self.exit.weight.dtype)), rows, len(x), label, vector)
        h = self.entry(x)
        for block in self.blocks:
            h = block(h, tau, rows)
        out: Tensor = self.exit(nn.functional.silu(h))
        return out
