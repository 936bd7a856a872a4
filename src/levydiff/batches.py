"""Random batches that can be resumed exactly.

Every epoch e passes once through all n rows, in an order of its own: a random permutation that depends on (seed, e)
and nothing else. Written one after the other, these permutations are one endless list of rows, and batch k is its
entries ``[k·b, (k + 1)·b)``. So a batch may run over into the next epoch, no row is ever dropped or seen twice in an
epoch, and the k-th batch is a function of (seed, k) without hidden state: a run that stops at step k and starts again
there sees what it would have seen, on however many processes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .checks import check_count
from .rng import SampleStreams

Part = slice | tuple[int, int] | None


class Batches:
    """Random batches of the rows of a tensor, or of an array on disk that need not fit in memory.

    Memory: 16 bytes per row, for the orders of two epochs. From an array (``np.memmap``, see
    :func:`levydiff.table.open_array`) only the rows asked for are read.

    Arguments:
        data: The rows, a tensor or array of shape (n, …).
        batch_size: The number b of rows in a batch; it may exceed n.
        seed: A whole number in [0, 2⁶³).
        cond: Conditions that belong to the rows, tensors of shape (n, …) by name.

    Example:
        >>> batches = Batches(torch.arange(10.0)[:, None], batch_size=4, seed=0)
        >>> len(set(torch.cat([batches.indices(k) for k in range(5)]).tolist()))  # two epochs in five batches
        10
        >>> halves = [batches.rows(3, part=(rank, 2)) for rank in range(2)]
        >>> torch.equal(torch.cat(halves), batches.rows(3))
        True
    """

    def __init__(
        self, data: Tensor | NDArray[Any], batch_size: int, seed: int, cond: Mapping[str, Tensor] | None = None
    ) -> None:
        if data.ndim < 1 or len(data) == 0:
            raise ValueError(f"data must have shape (n, ...) with at least 1 row, got {tuple(data.shape)}")
        if isinstance(seed, bool) or int(seed) != seed or not 0 <= seed < 1 << 63:
            raise ValueError(f"seed must be a whole number in [0, 2**63), got {seed}")
        for name, values in (cond or {}).items():
            if values.ndim < 1 or len(values) != len(data):
                raise ValueError(f"cond[{name!r}] must have {len(data)} rows as data has, got {tuple(values.shape)}")
        self.data = data
        self.batch_size = check_count("batch_size", batch_size)
        self.seed = int(seed)
        self.cond = dict(cond or {})
        self._orders: dict[int, Tensor] = {}

    def indices(self, step: int) -> Tensor:
        """The rows of batch ``step`` = 0, 1, …: int64 of shape (b,), a pure function of (seed, step)."""
        if isinstance(step, bool) or int(step) != step or step < 0:
            raise ValueError(f"step must be a whole number of at least 0, got {step}")
        epoch, offset = divmod(int(step) * self.batch_size, len(self.data))
        pieces: list[Tensor] = []
        missing = self.batch_size
        while missing > 0:
            pieces.append(self._order(epoch)[offset : offset + missing])
            missing -= len(pieces[-1])
            epoch, offset = epoch + 1, 0
        return torch.cat(pieces)  # a copy: nobody writes into the kept orders

    def take(self, index: Tensor) -> Tensor:
        """The data at some positions, int64 of shape (m,), as they are trained on: shape (m, …)."""
        return _gather(self.data, index)

    def rows(self, step: int, part: Part = None) -> Tensor:
        """The data of batch ``step``, of shape (b, …).

        Arguments:
            step: The number of the batch.
            part: The share of the batch to gather: a slice of it, or (rank, world) for the rank-th of ``world``
                consecutive shares, whose sizes differ by at most 1. Everything by default.
        """
        return self.take(self._share(step, part))

    def conditions(self, step: int, part: Part = None) -> dict[str, Tensor]:
        """The conditions that belong to ``rows(step, part)``."""
        index = self._share(step, part)
        return {name: _gather(values, index) for name, values in self.cond.items()}

    def outline(self) -> dict[str, Any]:
        """A few numbers, as JSON, by which the data are known again: how many rows, and two numbers of some of them.

        One is the size of a row, the other a mean that tells the order of its columns and their signs.
        """
        index = torch.linspace(0, len(self.data) - 1, min(len(self.data), 16), dtype=torch.float64).long()
        some = self.take(index).cpu().double().reshape(len(index), -1)
        cond = {name: _weighted_mean(_gather(values, index)) for name, values in self.cond.items()}
        sizes = some.abs().mean(1).tolist()
        return {"rows": len(self.data), "sizes": sizes, "means": _weighted_mean(some), "conditions": cond}

    def check_outline(self, before: Mapping[str, Any]) -> None:
        """Refuse to go on with a run that began with other data.

        Arguments:
            before: The outline of the data that it began with. The sizes may differ by rounding: a scaling that was
                fitted anew on another machine is the same scaling.
        """
        now = self.outline()
        if now["rows"] != before["rows"]:
            raise ValueError(f"data must be those the run began with, {before['rows']} rows, got {now['rows']}")
        before = now | dict(before)  # the first outlines had rows and sizes alone
        apart = np.subtract([now["sizes"], now["means"]], [before["sizes"], before["means"]])
        if not bool((np.abs(apart) <= 1e-3 * np.array(before["sizes"])).all()):
            raise ValueError(
                "data must be those the run began with, got as many rows of other values, or another order of rows or "
                "columns"
            )
        if now["conditions"] != before["conditions"]:
            raise ValueError("conditions must be those the run began with, got others")

    def _order(self, epoch: int) -> Tensor:
        """The permutation of an epoch; the last two are kept."""
        order = self._orders.get(epoch)
        if order is None:
            # Two rounds of SplitMix64: neighbouring seeds and neighbouring epochs have unrelated generators.
            key = SampleStreams(torch.tensor([self.seed])).words(1)[:, 0]
            word = SampleStreams(key, counter=epoch).words(1)
            generator = torch.Generator().manual_seed(int(word))
            order = torch.randperm(len(self.data), generator=generator, device="cpu")
            self._orders = dict([*self._orders.items(), (epoch, order)][-2:])
        return order

    def _share(self, step: int, part: Part) -> Tensor:
        """The indices of a part of a batch."""
        return self.indices(step)[self._positions(part)]

    def _positions(self, part: Part) -> slice:
        """The positions in the batch that a part has."""
        if isinstance(part, tuple):
            rank, world = part
            if not 0 <= rank < world:
                raise ValueError(f"part must be (rank, world) with 0 <= rank < world, got {part}")
            return slice(rank * self.batch_size // world, (rank + 1) * self.batch_size // world)
        return slice(None) if part is None else part


def _weighted_mean(rows: Tensor) -> list[float]:
    """A mean of each row whose weights grow from 1 to 2, so that it changes with the order of the columns."""
    rows = rows.cpu().double().reshape(len(rows), -1)
    weights = torch.linspace(1.0, 2.0, rows.shape[1], dtype=torch.float64)
    means: list[float] = (rows @ weights / rows.shape[1]).tolist()
    return means


def _gather(data: Tensor | NDArray[Any], index: Tensor) -> Tensor:
    """The rows of a tensor or array at ``index``, as a tensor of their own."""
    if isinstance(data, Tensor):
        return data[index.to(data.device)]
    # In the order of the file: the disk is read forwards, and rows on the same page are read once.
    ascending, order = index.sort()
    read = np.asarray(data[ascending.numpy()])
    rows = torch.from_numpy(read.astype(read.dtype.newbyteorder("="), copy=False))
    out = torch.empty_like(rows)
    out[order] = rows
    return out
