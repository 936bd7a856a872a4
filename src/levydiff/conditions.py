"""Conditions: what is handed to a network beside x and t, such as labels.

Conditions are a dictionary by name. A tensor with one row for each sample of the batch belongs to the samples, and is
picked, repeated and moved with them; anything else is shared by all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


def per_sample(value: Any, size: int) -> bool:
    """Whether a condition has one row for each of ``size`` samples."""
    return isinstance(value, Tensor) and value.ndim > 0 and len(value) == size


def pick_rows(cond: Mapping[str, Any], rows: Tensor | slice, size: int) -> dict[str, Any]:
    """The conditions of the given rows of ``size``.

    Example:
        >>> pick_rows({"label": torch.tensor([3, 1, 4]), "mode": "fast"}, slice(1, 3), size=3)
        {'label': tensor([1, 4]), 'mode': 'fast'}
    """
    return {name: value[rows] if per_sample(value, size) else value for name, value in cond.items()}


def to_device(cond: Mapping[str, Any], device: torch.device) -> dict[str, Any]:
    """The conditions with all tensors on a device."""
    return {name: value.to(device) if isinstance(value, Tensor) else value for name, value in cond.items()}
