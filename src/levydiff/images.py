r"""Images: a set of them as a value, in batches for training, and in a grid to look at.

Pixels are kept as they come, uint8 in 0 … 255, at a quarter of the memory of floats. A network sees them as float32
in [-1, 1], pixel p as p/127.5 - 1 (:func:`to_unit`); :class:`ImageBatches` converts the rows of a batch when they are
asked for. A model's samples are not confined to [-1, 1], and with heavy-tailed noise some lie far outside: they are
clamped only where somebody looks at them or a metric of images wants pixels (:func:`to_pixels`), never before.

Where images come from is the business of :mod:`levydiff.sources`. The sizes that a U-Net halves again and again want
a multiple of a power of 2: ``pad(images, 32)`` makes 28 x 28 digits 32 x 32.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .batches import Batches, Part
from .checks import check_count
from .files import atomic_file
from .rng import SampleStreams


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Images of one size, with or without labels.

    Arguments:
        pixels: uint8 of shape (n, c, h, w), n ≥ 1, with c = 1 (gray) or 3 (red, green, blue).
        labels: The class of each image, int64 of shape (n,), or None.
        classes: The names of the classes, in the order of the labels; empty without labels.
        source: What the images are and whence, in one line, to be printed beside every number.

    Example:
        >>> images = ImageSet(torch.zeros(4, 1, 28, 28, dtype=torch.uint8), torch.tensor([0, 1, 1, 0]), ("cat", "dog"))
        >>> len(images), images.shape
        (4, (1, 28, 28))
        >>> images.take(images.labels == 1).labels
        tensor([1, 1])
    """

    pixels: Tensor
    labels: Tensor | None = None
    classes: tuple[str, ...] = ()
    source: str = ""

    def __post_init__(self) -> None:
        shape = tuple(self.pixels.shape)
        if self.pixels.dtype != torch.uint8 or len(shape) != 4 or self.pixels.numel() == 0:
            raise ValueError(
                f"pixels must be uint8 of shape (n, c, h, w) and not empty, got {self.pixels.dtype} of shape {shape}"
            )
        if shape[1] not in (1, 3):
            raise ValueError(f"pixels must have 1 channel (gray) or 3 (colour), got {shape[1]} in shape {shape}")
        if self.labels is None:
            if self.classes:
                raise ValueError(f"classes must be empty where there are no labels, got {self.classes}")
            return
        if self.labels.dtype != torch.int64 or tuple(self.labels.shape) != (shape[0],):
            own = f"{self.labels.dtype} of shape {tuple(self.labels.shape)}"
            raise ValueError(f"labels must be int64 of shape ({shape[0]},), one for each image, got {own}")
        outside = (self.labels < 0) | (self.labels >= len(self.classes))
        if bool(outside.any()):
            i = int(outside.nonzero()[0])
            count = len(self.classes)
            raise ValueError(f"labels must lie in [0, {count}) for {count} classes, got {self.labels[i]} at image {i}")

    def __len__(self) -> int:
        return len(self.pixels)

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape (c, h, w) of an image."""
        _, c, h, w = self.pixels.shape
        return c, h, w

    def take(self, index: Tensor) -> ImageSet:
        """Some of the images.

        Arguments:
            index: Their positions, int64 of shape (m,), or a mask, bool of shape (n,).
        """
        return replace(self, pixels=self.pixels[index], labels=None if self.labels is None else self.labels[index])


def to_unit(pixels: Tensor) -> Tensor:
    """Pixels as a network sees them: uint8 in [0, 255] to float32 in [-1, 1].

    Arguments:
        pixels: uint8 of any shape.

    Example:
        >>> to_unit(torch.tensor([0, 255], dtype=torch.uint8))
        tensor([-1.,  1.])
    """
    if pixels.dtype != torch.uint8:
        raise ValueError(f"pixels must be uint8, got {pixels.dtype}")
    return pixels.to(torch.float32).div_(127.5).sub_(1.0)


def to_pixels(x: Tensor) -> Tensor:
    """The nearest pixels, uint8 in [0, 255]: what lies outside [-1, 1] is clamped.

    For looking at and for metrics of images only. Clamping cuts off the tails, so a sample that is worked with further
    (a state of a sampler, data to train on) must not pass through here.

    Arguments:
        x: float of any shape, without NaN.

    Example:
        >>> to_pixels(torch.tensor([-1.0, 0.0, 1.0, 40.0]))
        tensor([  0, 128, 255, 255], dtype=torch.uint8)
    """
    if not x.is_floating_point():
        raise ValueError(f"x must be a float tensor, got {x.dtype}")
    if bool(x.isnan().any()):
        raise ValueError(f"x must not hold NaN, got {int(x.isnan().sum())} among {x.numel()} values")
    return x.detach().to(torch.float32).clamp(-1.0, 1.0).add(1.0).mul_(127.5).round_().to(torch.uint8)


def pad(images: ImageSet, multiple: int) -> ImageSet:
    """Black pixels all around, up to the next multiple in height and width; an odd one goes to the right or below.

    Arguments:
        images: Images of shape (n, c, h, w).
        multiple: What height and width become multiples of.

    Example:
        >>> pad(ImageSet(torch.zeros(2, 1, 28, 28, dtype=torch.uint8)), 16).shape
        (1, 32, 32)
    """
    check_count("multiple", multiple)
    _, h, w = images.shape
    rows, columns = -h % multiple, -w % multiple
    if rows == columns == 0:
        return images
    margins = (columns // 2, columns - columns // 2, rows // 2, rows - rows // 2)
    padded = torch.nn.functional.pad(images.pixels, margins)
    return replace(images, pixels=padded, source=_told(images.source, f"padded to {h + rows} x {w + columns}"))


def long_tailed(
    images: ImageSet,
    *,
    counts: Sequence[int] | None = None,
    imbalance: float | None = None,
    seed: int | None = None,
) -> ImageSet:
    r"""An imbalanced part of a set, with many images of the first classes and few of the last.

    Class k of K keeps ``counts[k]`` images, or :math:`⌊n_0 r^{-k/(K-1)}⌋` (at least 1) for the imbalance factor r,
    n_0 the number of images of class 0 (Cao et al., *Learning imbalanced datasets with label-distribution-aware margin
    loss*, 2019). CIFAR-10 with r = 100 is CIFAR10-LT. The images stay in their order.

    Arguments:
        images: Images with labels.
        counts: How many to keep of each class, at least 1 and at most what there is.
        imbalance: The factor r ≥ 1. Give either this or ``counts``.
        seed: None for the first images of each class, else a random choice.

    Example:
        >>> even = ImageSet(torch.zeros(300, 1, 2, 2, dtype=torch.uint8), torch.arange(300) % 3, ("a", "b", "c"))
        >>> long_tailed(even, imbalance=100).labels.bincount()
        tensor([100,  10,   1])
    """
    if images.labels is None:
        raise ValueError("images must have labels to be made long-tailed, got none")
    if (counts is None) == (imbalance is None):
        raise ValueError(f"either counts or imbalance must be given, got counts = {counts}, imbalance = {imbalance}")
    present = images.labels.bincount(minlength=len(images.classes)).tolist()
    if imbalance is not None:
        if not 1.0 <= imbalance < math.inf:
            raise ValueError(f"imbalance must be finite and at least 1, got {imbalance}")
        steps = max(len(present) - 1, 1)
        # The last count is often whole, as 4900/49 is; a rounding error must not make it one less.
        counts = [max(1, int(present[0] * imbalance ** (-k / steps) + 1e-6)) for k in range(len(present))]
    assert counts is not None
    if len(counts) != len(present):
        raise ValueError(f"counts must have one number for each of {len(present)} classes, got {len(counts)}")
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    chosen = []
    for k, count in enumerate(counts):
        check_count(f"counts[{k}]", count)
        if count > present[k]:
            raise ValueError(
                f"counts[{k}] must be at most {present[k]}, all images of {images.classes[k]}, got {count}"
            )
        own = (images.labels == k).nonzero()[:, 0]
        chosen.append((own if generator is None else own[torch.randperm(len(own), generator=generator)])[:count])
    part = images.take(torch.cat(chosen).sort().values)
    return replace(part, source=_told(images.source, f"long-tailed, {' '.join(str(int(c)) for c in counts)} a class"))


class ImageBatches(Batches):
    """Random batches of images, float32 in [-1, 1], of which half may be mirrored.

    Which ones are mirrored is a function of (seed, step, position in the batch) alone, as everything random in a step
    is: a run that is resumed, or spread over processes, sees the same images the same way round.

    Arguments:
        images: n images of shape (c, h, w); ``data`` holds their pixels, uint8 of shape (n, c, h, w).
        batch_size: The number of images in a batch.
        seed: A whole number in [0, 2⁶³).
        flips: Mirror each image, left to right, with probability 1/2.
        labels: Hand over the labels as the condition ``label``.

    Example:
        >>> images = ImageSet(torch.arange(12).to(torch.uint8).reshape(3, 1, 2, 2))
        >>> batches = ImageBatches(images, batch_size=4, seed=0, flips=True)
        >>> batches.rows(7).shape, batches.rows(7).dtype
        (torch.Size([4, 1, 2, 2]), torch.float32)
        >>> torch.equal(torch.cat([batches.rows(7, (rank, 2)) for rank in range(2)]), batches.rows(7))
        True
    """

    def __init__(
        self, images: ImageSet, batch_size: int, seed: int, *, flips: bool = False, labels: bool = False
    ) -> None:
        if labels and images.labels is None:
            raise ValueError("labels must be False for images without labels, got True")
        cond = {"label": images.labels} if labels and images.labels is not None else None
        super().__init__(images.pixels, batch_size, seed, cond)
        self.flips = flips

    def take(self, index: Tensor) -> Tensor:
        """The images at ``index``, int64 of shape (m,), never mirrored: float32 of shape (m, c, h, w)."""
        return to_unit(super().take(index))

    def outline(self) -> dict[str, Any]:
        """Also whether they are mirrored; see :meth:`Batches.outline`."""
        return super().outline() | {"flips": self.flips}

    def check_outline(self, before: Mapping[str, Any]) -> None:
        """Refuse to go on with a run that mirrored its images otherwise; see :meth:`Batches.check_outline`."""
        super().check_outline(before)
        if before.get("flips", self.flips) != self.flips:
            raise ValueError(f"flips must be {before['flips']} as the run began, got {self.flips}")

    def rows(self, step: int, part: Part = None) -> Tensor:
        """The images of batch ``step``, float32 in [-1, 1] of shape (b, c, h, w); see :meth:`Batches.rows`."""
        x = super().rows(step, part)
        if not self.flips:
            return x
        mirrored = self._mirrored(step)[self._positions(part)].to(x.device)
        return torch.where(mirrored[:, None, None, None], x.flip(-1), x)

    def _mirrored(self, step: int) -> Tensor:
        """Which images of a whole batch are mirrored: bool of shape (b,)."""
        # The second word of the seed's stream: the first one makes the orders of the epochs and the trainer's noise.
        key = SampleStreams(torch.tensor([self.seed]), counter=1).words(1)[:, 0]
        start = SampleStreams(key, counter=step).words(1)[:, 0]
        return SampleStreams(start).words(self.batch_size)[0] < 0


def save_grid(
    path: str | os.PathLike[str],
    images: Tensor,
    columns: int | None = None,
    titles: Sequence[str] | None = None,
    scale: int = 2,
) -> Path:
    """Write images side by side into a PNG file, row by row, with a thin gap between them. Needs the extra ``images``.

    Arguments:
        path: The file, ending in .png; it appears whole or not at all. Its folder must exist.
        images: (n, c, h, w) with c = 1 or 3, uint8 or float (clamped to [-1, 1], see :func:`to_pixels`).
        columns: Images in a row; by default such that the grid is square, or nearly.
        titles: A title above each image, n of them, empty for none: to title columns, title the first row.
        scale: Each pixel becomes ``scale`` x ``scale`` pixels of the file.
    """
    try:
        from PIL import Image, ImageDraw
    except ImportError as error:
        raise ModuleNotFoundError('pillow is needed for images: pip install "levydiff[images]"') from error
    path = Path(path)
    if path.suffix.lower() != ".png":
        raise ValueError(f"path must end in .png, got {path.name!r}")
    pixels = ImageSet(images if images.dtype == torch.uint8 else to_pixels(images)).pixels.cpu()
    n = len(pixels)
    if titles is not None and len(titles) != n:
        raise ValueError(f"titles must be as many as images, {n}, got {len(titles)}")
    scale = check_count("scale", scale)
    columns = min(n, math.isqrt(n - 1) + 1 if columns is None else check_count("columns", columns))
    tiles = pixels.repeat_interleave(scale, 2).repeat_interleave(scale, 3).expand(-1, 3, -1, -1)
    height, width, gap, band = tiles.shape[2], tiles.shape[3], 2, 12
    lines = [(titles or [""] * n)[start : start + columns] for start in range(0, n, columns)]
    bands = [band if any(line) else 0 for line in lines]  # no room is taken above a row without titles
    size = (columns * (width + gap) + gap, len(lines) * (height + gap) + gap + sum(bands))
    sheet = Image.new("RGB", size, "white")
    pen = ImageDraw.Draw(sheet)
    top = gap
    for row, line in enumerate(lines):
        top += bands[row]
        for column, title in enumerate(line):
            left = gap + column * (width + gap)
            pen.text((left, top - band), title, fill="black")
            tile = tiles[row * columns + column].permute(1, 2, 0).contiguous().numpy()
            sheet.paste(Image.fromarray(tile), (left, top))
        top += height + gap
    with atomic_file(path) as temporary:
        sheet.save(temporary, format="PNG")
    return path


def _told(source: str, more: str) -> str:
    """A source with what was done to it."""
    return f"{source}, {more}" if source else more
