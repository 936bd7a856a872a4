r"""The scaling of a table before it is learnt, and what a table must be.

Noise of scale 1 wants data of scale about 1. A heavy-tailed column may have no variance, and often no mean: its sample
standard deviation is then the size of its largest value, grows with the number of rows and differs from half to half.
So a column is centred by its median and divided by the mean of its absolute deviations, the largest fifth left out,

.. math::  y = (x - c)/s, \qquad c = \mathrm{median}(x), \quad
    s = 1.15 · \mathrm{mean}\{|x_i - c| : |x_i - c| \text{ among the smallest four fifths}\},

which exist for every law, and are left alone by whatever the largest values do. For a stable law s is its scale,
within a tenth for α from 1 to 2, so that :class:`~levydiff.denoise.StablePreconditioning` starts out nearly exact.
(The *median* absolute deviation has these virtues too; but where half of the data sit in one narrow mode it is the
width of that mode, or 0, and says nothing about the other half.) Where more than half of a column are its median (days
without rain), the mean is over the others, the largest fifth of them left out.

The alternative to heavy-tailed noise is to take the tails away first: :class:`AsinhScaling` bends each column by a
logarithm, so that power laws become exponential ones and Gaussian noise (α = 2) can learn them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_ROWS_AT_ONCE = 1 << 16


def check_table(values: Tensor | NDArray[Any], columns: Sequence[str] | None = None) -> None:
    """Refuse a table that nothing can be learnt from: not (n, d), fewer than 2 rows, no column, NaN or infinity.

    Arguments:
        values: The table, of shape (n, d); an array on disk is read in pieces.
        columns: The columns' names, for the message.

    Example:
        >>> check_table(torch.tensor([[1.0, 2.0], [3.0, float("nan")]]), ["loss", "rain"])
        Traceback (most recent call last):
        ValueError: values must be finite, but row 1, column 1 ('rain') is nan
    """
    if values.ndim != 2 or len(values) < 2 or values.shape[1] < 1:
        raise ValueError(f"values must have shape (n, d) with n >= 2 rows and d >= 1, got {tuple(values.shape)}")
    if columns is not None and len(columns) != values.shape[1]:
        raise ValueError(f"columns must name the {values.shape[1]} columns of values, got {len(columns)} names")
    check_finite(values, columns)


def check_finite(values: Tensor | NDArray[Any], columns: Sequence[str] | None = None, first_row: int = 0) -> None:
    """Refuse NaN and infinity in a table of shape (n, d) whose first row has the number ``first_row``."""
    for start in range(0, len(values), _ROWS_AT_ONCE):
        piece = values[start : start + _ROWS_AT_ONCE]
        finite = torch.isfinite(piece).cpu().numpy() if isinstance(piece, Tensor) else np.isfinite(piece)
        if not finite.all():
            row, j = np.argwhere(~finite)[0]
            raise ValueError(
                f"values must be finite, but row {first_row + start + row}, {column_name(j, columns)} is "
                f"{float(piece[row, j])}"
            )


def column_name(j: int, columns: Sequence[str] | None) -> str:
    """How messages call the j-th column."""
    return f"column {j}" if columns is None else f"column {j} ({columns[j]!r})"


@dataclass(frozen=True, eq=False)
class Scaling:
    """An affine map of each coordinate: y = (x - center)/scale, and back.

    Arguments:
        center: Of shape (d,), or () for all coordinates alike (images).
        scale: Above 0, of the shape of ``center``.

    Example:
        >>> scaling = Scaling(torch.tensor([1.0, 0.0]), torch.tensor([2.0, 5.0]))
        >>> scaling.apply(torch.tensor([[3.0, 5.0]]))
        tensor([[1., 1.]])
        >>> scaling.to_json()
        {'center': [1.0, 0.0], 'scale': [2.0, 5.0]}
    """

    center: Tensor
    scale: Tensor

    def __post_init__(self) -> None:
        if self.center.ndim > 1 or self.center.shape != self.scale.shape:
            shapes = f"{tuple(self.center.shape)} and {tuple(self.scale.shape)}"
            raise ValueError(f"center and scale must both have shape (d,) or both (), got {shapes}")
        if not bool(torch.isfinite(self.center).all()):
            raise ValueError(f"center must be finite, got {self.center.tolist()}")
        if not bool((torch.isfinite(self.scale) & (self.scale > 0)).all()):
            raise ValueError(f"scale must be finite and above 0, got {self.scale.tolist()}")

    def apply(self, x: Tensor) -> Tensor:
        """(x - center)/scale, for x of shape (…, d); the dtype is that of x."""
        center, scale = self._like(x)
        return (x - center) / scale

    def invert(self, y: Tensor) -> Tensor:
        """center + scale·y, for y of shape (…, d), computed in the precision that it needs.

        The dtype is that of y, but float64 where float32 would not resolve the data (a centre far from 0 beside the
        scale) or cannot hold them; then the result is on the CPU if y is on a device that has no float64.
        """
        self._like(y)  # refuses what it cannot be
        x = self._restore((y.cpu() if y.device.type == "mps" else y).to(torch.float64))
        if not bool(torch.isfinite(x).all()):
            raise FloatingPointError(f"samples as large as {float(y.abs().max()):.3g}, scaled, do not fit {x.dtype}")
        narrow = x.to(y)
        return narrow if self.resolved_by(y.dtype) and bool(torch.isfinite(narrow).all()) else x

    def _restore(self, y: Tensor) -> Tensor:
        center, scale = self._like(y)
        return center + scale * y

    @property
    def affine(self) -> Scaling:
        """The scaling without what bends it: for comparisons in which the tails count."""
        return self

    def resolved_by(self, dtype: torch.dtype) -> bool:
        """Whether numbers of this precision tell values apart that differ by a thousandth of the scale."""
        return bool((torch.finfo(dtype).eps * self.center.abs() < 1e-3 * self.scale).all())

    def _like(self, x: Tensor) -> tuple[Tensor, Tensor]:
        if not x.is_floating_point() or (self.center.ndim == 1 and x.shape[-1:] != self.center.shape):
            shape = "(...)" if self.center.ndim == 0 else f"(..., {len(self.center)})"
            raise ValueError(f"x must be floating-point of shape {shape}, got {tuple(x.shape)}, {x.dtype}")
        return self.center.to(x), self.scale.to(x)

    def to_json(self) -> dict[str, Any]:
        """Plain numbers: ``{"center": […], "scale": […]}``, exact when read back."""
        return {"center": self.center.tolist(), "scale": self.scale.tolist()}

    @staticmethod
    def from_json(numbers: Mapping[str, Any]) -> Scaling:
        """The scaling that ``to_json`` wrote, of either kind, in float64."""
        if set(numbers) - {"width"} != {"center", "scale"}:
            raise ValueError(f"numbers must have the keys center and scale, and may have width, got {sorted(numbers)}")
        tensors = {key: torch.tensor(value, dtype=torch.float64) for key, value in numbers.items()}
        return AsinhScaling(**tensors) if "width" in numbers else Scaling(**tensors)


@dataclass(frozen=True, eq=False)
class AsinhScaling(Scaling):
    r"""A logarithmic map of each coordinate: :math:`y = \mathrm{asinh}((x - \mathrm{center})/\mathrm{scale})/
    \mathrm{width}`, and back.

    Linear in the bulk, logarithmic in both tails: where :math:`P(|x| > r) \sim r^{-ν}`, y has an exponential tail with
    all moments. It is for Gaussian noise alone: sinh of a stable variable has no moments at all.

    Arguments:
        center, scale: As in :class:`Scaling`.
        width: Above 0, of their shape.

    Example:
        >>> scaling = AsinhScaling(torch.zeros(1), torch.ones(1), torch.tensor([2.0]))
        >>> scaling.apply(torch.tensor([[0.2], [-2e6]]))  # asinh(0.2)/2, -log(4e6)/2
        tensor([[ 0.0993],
                [-7.6009]])
    """

    width: Tensor

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width.shape != self.scale.shape:
            raise ValueError(f"width must have shape {tuple(self.scale.shape)}, got {tuple(self.width.shape)}")
        if not bool((torch.isfinite(self.width) & (self.width > 0)).all()):
            raise ValueError(f"width must be finite and above 0, got {self.width.tolist()}")

    def apply(self, x: Tensor) -> Tensor:
        """asinh((x - center)/scale)/width, for x of shape (…, d); the dtype is that of x."""
        exact = x if x.device.type == "mps" else x.to(torch.float64)  # what is finite stays so when it is divided
        return (torch.asinh(super().apply(exact)) / self.width.to(exact)).to(x.dtype)

    def _restore(self, y: Tensor) -> Tensor:
        return super()._restore(torch.sinh(self.width.to(y) * y))

    @property
    def affine(self) -> Scaling:
        return Scaling(self.center, self.scale)

    def to_json(self) -> dict[str, Any]:
        """Plain numbers: ``{"center": […], "scale": […], "width": […]}``, exact when read back."""
        return super().to_json() | {"width": self.width.tolist()}


def fit_scaling(x: Tensor | NDArray[Any], per_column: bool = True, columns: Sequence[str] | None = None) -> Scaling:
    r"""The robust scaling: :math:`c_j` the median of column j, :math:`s_j` 1.15 times the mean of the smallest four
    fifths of :math:`|x_{ij} - c_j|`.

    Where more than half of a column are one value (days without rain), the mean is over the smallest four fifths of the
    other deviations. A constant column has no scale and is an error.

    Arguments:
        x: The table, of shape (n, d); an array on disk is read column by column.
        per_column: Each column its own scale (True), or one for all columns together (False), which
            keeps the geometry: an isotropic law stays isotropic.
        columns: The columns' names, for messages.

    Example:
        >>> fit_scaling(torch.tensor([[0.0], [1.0], [2.0], [3.0], [1e9]])).to_json()  # deviations 2 1 0 1, and one more
        {'center': [2.0], 'scale': [1.15]}
    """
    check_table(x, columns)
    table = x.detach().cpu().numpy() if isinstance(x, Tensor) else x
    return Scaling(*_centers_and_scales(table, per_column, columns))


def fit_asinh_scaling(
    x: Tensor | NDArray[Any], per_column: bool = True, columns: Sequence[str] | None = None
) -> AsinhScaling:
    """The robust scaling, bent, and scaled once more by the same rule, so that y is of scale 1 too.

    Arguments:
        x, per_column, columns: As for :func:`fit_scaling`.

    Example:
        >>> x = torch.tan(torch.linspace(-1.57, 1.57, 1001)).reshape(-1, 1)  # a Cauchy law, up to 1255
        >>> round(float(fit_asinh_scaling(x).apply(x).max()), 1)
        9.5
    """
    affine = fit_scaling(x, per_column, columns)
    table = x.detach().cpu().numpy() if isinstance(x, Tensor) else x
    center, scale = affine.center.numpy(), affine.scale.numpy()
    width = _centers_and_scales(table, per_column, columns, lambda z, j: np.arcsinh((z - center[j]) / scale[j]))[1]
    return AsinhScaling(affine.center, affine.scale, width)


def _centers_and_scales(
    table: NDArray[Any],
    per_column: bool,
    columns: Sequence[str] | None,
    bend: Callable[[NDArray[Any], int], NDArray[Any]] = lambda column, _: column,
) -> tuple[Tensor, Tensor]:
    """Median and typical deviation of each column, read one by one and bent."""
    n, d = table.shape
    center, scale = np.empty(d), np.empty(d)
    # All deviations are kept only for the common scale.
    pooled = None if per_column else np.empty((d, n), np.float32 if table.dtype == np.float32 else np.float64)
    for j in range(d):
        column = bend(table[:, j].astype(np.float64), j)
        center[j] = np.median(column)
        deviation = np.abs(column - center[j])
        if pooled is None:
            scale[j] = _typical(deviation, column_name(j, columns) + " is")
        else:
            pooled[j] = deviation
    if pooled is not None:
        scale[:] = _typical(pooled.reshape(-1), "all columns are")
    return torch.from_numpy(center), torch.from_numpy(scale)


def scaling_for(
    x: Tensor | NDArray[Any],
    alpha: float,
    compress: bool = False,
    per_column: bool = True,
    columns: Sequence[str] | None = None,
) -> Scaling:
    """The scaling for noise of index α: :func:`fit_asinh_scaling` if the tails are to be compressed, which is for
    α = 2 alone, else :func:`fit_scaling`."""
    check_gaussian(compress, alpha)
    return (fit_asinh_scaling if compress else fit_scaling)(x, per_column, columns)


def check_gaussian(compressed: bool, alpha: float) -> None:
    """Refuse compressed columns under heavy-tailed noise: sinh of a stable variable soon fits no number."""
    if compressed and alpha != 2:
        raise ValueError(f"alpha must be 2 for compressed columns, got {alpha}")


def _typical(deviation: NDArray[Any], what: str) -> float:
    """1.15 times the mean of the smallest four fifths of deviations (which it reorders); of those above 0 alone, where
    they are fewer than half: else the scale would be that of the few of them among the four fifths, if any."""
    above = deviation[deviation > 0]
    if len(above) == 0:
        raise ValueError(f"{what} constant and cannot be scaled: leave it out")
    chosen = above if 2 * len(above) < len(deviation) else deviation
    kept = max(1, 4 * len(chosen) // 5)
    chosen.partition(kept - 1)
    return 1.15 * float(chosen[:kept].mean(dtype=np.float64))
