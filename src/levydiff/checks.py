"""Refuse bad input before any work is done.

Every check raises ``ValueError`` (or ``FloatingPointError`` for a computation that went wrong) with a
sentence that names the argument, its value and what is allowed.
"""

from __future__ import annotations

import math
from numbers import Integral

import torch
from torch import Tensor


def check_alpha(alpha: float) -> float:
    """Return α as a float in (0, 2]."""
    value = float(alpha)
    if not 0.0 < value <= 2.0:  # also catches NaN
        raise ValueError(f"alpha must lie in (0, 2], got {alpha}")
    return value


def check_count(name: str, value: int) -> int:
    """Return a whole number of at least 1; a float that is whole, and numpy's integers, will do."""
    if isinstance(value, bool) or not isinstance(value, (Integral, float)) or not value >= 1 or value % 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {value}")
    return int(value)


def check_positive(name: str, value: float) -> float:
    """Return a finite number above 0."""
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be finite and above 0, got {value}")
    return float(value)


def check_data(name: str, x: Tensor) -> Tensor:
    """Return a batch of float32 or float64 samples, shape (B, …), without NaN or infinity."""
    if not isinstance(x, Tensor) or x.dtype not in (torch.float32, torch.float64) or x.ndim < 2 or x.numel() == 0:
        what = f"shape {tuple(x.shape)}, dtype {x.dtype}" if isinstance(x, Tensor) else type(x).__name__
        raise ValueError(f"{name} must be a non-empty float32 or float64 tensor of shape (B, ...), got {what}")
    # One reduction in place of an elementwise mask: a NaN or infinity survives the sum. The mask is
    # consulted only when the sum is not finite, since large finite values can overflow it.
    if not math.isfinite(x.detach().sum().item()) and not bool(torch.isfinite(x).all()):
        row = int((~torch.isfinite(x)).flatten(1).any(1).nonzero()[0])
        raise ValueError(f"{name} must be finite, but row {row} holds NaN or infinity")
    return x


def check_shape(name: str, x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return ``x`` if it has exactly the given shape."""
    if tuple(x.shape) != tuple(shape):
        raise ValueError(f"{name} must have shape {tuple(shape)}, got {tuple(x.shape)}")
    return x


def cast_finite(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Return x in another precision, unless that makes infinity of it."""
    if x.dtype == dtype:
        return x
    out = x.to(dtype)
    if not bool(torch.isfinite(out).all()):
        raise FloatingPointError(
            f"values as large as {float(x.abs().max()):.3g} do not fit {dtype}: ask for a wider dtype"
        )
    return out


def check_grid(grid: Tensor) -> Tensor:
    """Return a time grid ``0 = t_0 < t_1 < … < t_T ≤ 1`` as float64 on the CPU."""
    grid = torch.as_tensor(grid, dtype=torch.float64, device="cpu")
    if grid.ndim != 1 or len(grid) < 2:
        raise ValueError(f"grid must be one-dimensional with at least 2 times, got shape {tuple(grid.shape)}")
    if grid[0] != 0 or not 0 < grid[-1] <= 1:
        raise ValueError(f"grid must start at 0 and end in (0, 1], got {grid[0]:g} ... {grid[-1]:g}")
    falls = (grid.diff() <= 0) | grid.diff().isnan()
    if bool(falls.any()):
        i = int(falls.nonzero()[0])
        raise ValueError(f"grid must increase, got {grid[i]:g} then {grid[i + 1]:g} at position {i + 1}")
    return grid
