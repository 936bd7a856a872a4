r"""Toy sets: laws that are known exactly, to train on and to compare samples with.

Each is a value that says what it draws, and is called with a number of rows::

    x = StableData(alpha=1.7)(32_000, torch.Generator().manual_seed(0))

Two are the paper's: :class:`StableData` and :class:`GaussianGrid`. :class:`StableMixture`, :class:`StudentT` and
:class:`Funnel` have heavy tails and closed forms; :class:`SwissRoll`, :class:`Checkerboard` and :class:`TwoMoons` are
the usual shapes, about within [-2, 2]².

Data of one's own goes through :mod:`levydiff.table` (reading), :mod:`levydiff.scaling` (units) and
:mod:`levydiff.batches` (training in random order), whose names can be had from here too.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from .batches import Batches as Batches
from .checks import check_alpha, check_count, check_positive
from .rng import Generator, device_for, normal, uniform_pair
from .scaling import AsinhScaling as AsinhScaling
from .scaling import Scaling as Scaling
from .scaling import check_table as check_table
from .scaling import fit_asinh_scaling as fit_asinh_scaling
from .scaling import fit_scaling as fit_scaling
from .stable import IsotropicStable


class Dataset(ABC):
    """A law on R^d to draw from: ``dataset(n, generator)`` is a float32 tensor of shape (n, d).

    A subclass gives ``dim`` and ``draw``. All randomness comes from the generator; with
    :class:`levydiff.rng.SampleStreams` of n streams, each row depends on its own stream alone.
    """

    @property
    @abstractmethod
    def dim(self) -> int:
        """The dimension d."""

    @abstractmethod
    def draw(self, n: int, generator: Generator) -> Tensor:
        """n rows in float64, of shape (n, d)."""

    def __call__(self, n: int, generator: Generator = None) -> Tensor:
        """n independent rows, float32 of shape (n, d)."""
        x = self.draw(check_count("n", n), generator).to(torch.float32)
        if not bool(torch.isfinite(x).all()):
            raise FloatingPointError(f"a draw of {self} exceeds the range of float32")
        return x


class _PlanarSet(Dataset):
    """A set in the plane."""

    @property
    def dim(self) -> int:
        return 2


@dataclass(frozen=True)
class StableData(Dataset):
    r"""Isotropic SαS, the paper's first set: :math:`E e^{iu·X} = \exp(-(\mathrm{scale}\,‖u‖)^α)`.

    Arguments:
        alpha: The index in (0, 2]; at 2 each coordinate is N(0, 2·scale²).
        scale: The scale > 0.
        dim: The dimension.

    Example:
        >>> StableData()(5, torch.Generator().manual_seed(0)).shape
        torch.Size([5, 2])
    """

    alpha: float = 1.7
    scale: float = 0.05
    dim: int = 2

    def __post_init__(self) -> None:
        check_alpha(self.alpha)
        check_positive("scale", self.scale)
        object.__setattr__(self, "dim", check_count("dim", self.dim))

    def draw(self, n: int, generator: Generator) -> Tensor:
        center = torch.zeros(self.dim, dtype=torch.float64, device=device_for(generator))
        return IsotropicStable(self.alpha, center, self.scale).sample((n,), generator)


@dataclass(frozen=True)
class GaussianGrid(_PlanarSet):
    r"""The paper's second set: nine Gaussians on {-1, 0, 1}², :math:`\sum_i w_i N(m_i, \mathrm{std}^2 I)`.

    :math:`m_i = (i \bmod 3 - 1, ⌊i/3⌋ - 1)` with very uneven weights: the rarest mode holds 1 % of the data.

    Arguments:
        std: The standard deviation of each Gaussian.

    Example:
        >>> GaussianGrid.means[:4]
        ((-1.0, -1.0), (0.0, -1.0), (1.0, -1.0), (-1.0, 0.0))
    """

    std: float = 0.05
    weights: ClassVar[tuple[float, ...]] = (0.01, 0.1, 0.3, 0.2, 0.02, 0.15, 0.02, 0.15, 0.05)
    means: ClassVar[tuple[tuple[float, float], ...]] = tuple((i % 3 - 1.0, i // 3 - 1.0) for i in range(9))

    def __post_init__(self) -> None:
        check_positive("std", self.std)

    def draw(self, n: int, generator: Generator) -> Tensor:
        mode = _choose(self.weights, n, generator)
        return _constant(self.means, mode)[mode] + self.std * _normal(n, 2, generator)


@dataclass(frozen=True)
class StableMixture(Dataset):
    r"""A mixture of isotropic SαS laws: :math:`E e^{iu·X} = \sum_k w_k e^{iu·m_k} \exp(-(s_k‖u‖)^α)`.

    Arguments:
        alpha: The index in (0, 2], common to all.
        means: The centres m_k, K rows of d numbers.
        scales: The scales s_k > 0, K numbers.
        weights: The weights w_k ≥ 0, K numbers of sum 1.

    Example:
        >>> StableMixture(1.5, means=((-1.0,), (1.0,)), scales=(0.1, 0.2), weights=(0.9, 0.1)).dim
        1
    """

    alpha: float
    means: tuple[tuple[float, ...], ...]
    scales: tuple[float, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        check_alpha(self.alpha)
        count = len(self.means)
        if count == 0 or len({len(mean) for mean in self.means}) > 1 or len(self.means[0]) == 0:
            raise ValueError(f"means must hold at least one row, all of the same length >= 1, got {self.means}")
        if not all(math.isfinite(number) for mean in self.means for number in mean):
            raise ValueError(f"means must be finite, got {self.means}")
        if len(self.scales) != count or len(self.weights) != count:
            raise ValueError(
                f"means, scales and weights must have the same length, got {count}, {len(self.scales)} and "
                f"{len(self.weights)}"
            )
        for k, scale in enumerate(self.scales):
            check_positive(f"scales[{k}]", scale)
        if not all(weight >= 0 for weight in self.weights) or not abs(sum(self.weights) - 1.0) < 1e-6:
            raise ValueError(f"weights must be at least 0 and sum to 1, got {self.weights}")

    @property
    def dim(self) -> int:
        return len(self.means[0])

    def draw(self, n: int, generator: Generator) -> Tensor:
        k = _choose(self.weights, n, generator)
        return IsotropicStable(self.alpha, _constant(self.means, k)[k], _constant(self.scales, k)[k]).sample(
            (), generator
        )


@dataclass(frozen=True)
class StudentT(Dataset):
    r"""Isotropic multivariate t: :math:`X = G/\sqrt{χ^2_ν/ν}`, so that :math:`‖X‖^2/d \sim F(d, ν)`.

    P(‖X‖ > r) decays as :math:`r^{-ν}`; no variance for ν ≤ 2, no mean for ν ≤ 1.

    Arguments:
        df: The degrees of freedom ν > 0.
        dim: The dimension.

    Example:
        >>> StudentT(df=3.0, dim=4)(5).shape
        torch.Size([5, 4])
    """

    df: float = 1.5
    dim: int = 2

    def __post_init__(self) -> None:
        check_positive("df", self.df)
        object.__setattr__(self, "dim", check_count("dim", self.dim))

    def draw(self, n: int, generator: Generator) -> Tensor:
        from scipy.special import gammaincinv

        # χ² by inverting its distribution function: the tail sits at small u, where u has its finest resolution.
        u, _ = _uniforms(n, generator)
        chi2 = 2.0 * torch.from_numpy(gammaincinv(self.df / 2.0, u.cpu().numpy())).to(u.device)
        return _normal(n, self.dim, generator) / (chi2 / self.df).sqrt()[:, None]


@dataclass(frozen=True)
class Funnel(Dataset):
    r"""Neal's funnel: :math:`v \sim N(0, \mathrm{scale}^2)`, and :math:`x_i | v \sim N(0, e^v)`; rows (v, x_1, …).

    All moments exist, but x_i has the kurtosis :math:`3 e^{\mathrm{scale}^2}`: 24 309 at scale 3.

    Arguments:
        dim: The dimension, at least 2: v and dim - 1 coordinates x_i.
        scale: The standard deviation of v.

    Example:
        >>> Funnel(dim=3)(5).shape
        torch.Size([5, 3])
    """

    dim: int = 2
    scale: float = 3.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "dim", check_count("dim", self.dim))
        if self.dim < 2:
            raise ValueError(f"dim must be at least 2, got {self.dim}")
        check_positive("scale", self.scale)

    def draw(self, n: int, generator: Generator) -> Tensor:
        g = _normal(n, self.dim, generator)
        v = self.scale * g[:, :1]
        return torch.cat((v, (v / 2.0).exp() * g[:, 1:]), dim=1)


@dataclass(frozen=True)
class SwissRoll(_PlanarSet):
    r"""A spiral of one turn and a half: :math:`\frac{t}{4.5π}(\cos t, \sin t) + \mathrm{noise}·G`, t uniform on
    [1.5π, 4.5π].

    Arguments:
        noise: The standard deviation of the Gaussian around the spiral, at least 0.

    Example:
        >>> float(SwissRoll(noise=0.0)(1000).norm(dim=1).max()) <= 1.0
        True
    """

    noise: float = 0.02

    def __post_init__(self) -> None:
        _check_noise(self.noise)

    def draw(self, n: int, generator: Generator) -> Tensor:
        t = (1.5 + 3.0 * _uniforms(n, generator)[0]) * math.pi
        spiral = torch.stack((t.cos(), t.sin()), dim=1) * (t / (4.5 * math.pi))[:, None]
        return spiral + self.noise * _normal(n, 2, generator)


@dataclass(frozen=True)
class Checkerboard(_PlanarSet):
    r"""Uniform on the eight dark fields of a 4x4 board over [-1, 1]²: those with :math:`⌊2x⌋ + ⌊2y⌋` even.

    Example:
        >>> x = Checkerboard()(1000, torch.Generator().manual_seed(0))
        >>> bool(((2 * x).floor().sum(1) % 2 == 0).all())
        True
    """

    def draw(self, n: int, generator: Generator) -> Tensor:
        u, v = _uniforms(n, generator)
        x, y = 4.0 * u, 2.0 * v  # x in fields; y in dark fields, of which each column has two
        y = y + y.floor() + x.floor() % 2.0
        return torch.stack((x, y), dim=1) / 2.0 - 1.0


@dataclass(frozen=True)
class TwoMoons(_PlanarSet):
    r"""Two interleaved half circles: (cos θ, sin θ) and (1 - cos θ, ½ - sin θ), θ uniform on [0, π], plus noise·G.

    Arguments:
        noise: The standard deviation of the Gaussian around the arcs, at least 0.

    Example:
        >>> TwoMoons(noise=0.1)(5).shape
        torch.Size([5, 2])
    """

    noise: float = 0.05

    def __post_init__(self) -> None:
        _check_noise(self.noise)

    def draw(self, n: int, generator: Generator) -> Tensor:
        u, v = _uniforms(n, generator)
        theta = math.pi * u
        upper = torch.stack((theta.cos(), theta.sin()), dim=1)
        lower = torch.stack((1.0 - theta.cos(), 0.5 - theta.sin()), dim=1)
        return torch.where(v[:, None] < 0.5, upper, lower) + self.noise * _normal(n, 2, generator)


def _check_noise(noise: float) -> None:
    if not (math.isfinite(noise) and noise >= 0):
        raise ValueError(f"noise must be finite and at least 0, got {noise}")


def _uniforms(n: int, generator: Generator) -> tuple[Tensor, Tensor]:
    """Two independent uniform variables in (0, 1), float64 of shape (n,)."""
    return uniform_pair((n,), generator, torch.float64)


def _normal(n: int, dim: int, generator: Generator) -> Tensor:
    return normal((n, dim), generator, torch.float64)


def _constant(numbers: Sequence[Any], like: Tensor) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64, device=like.device)


def _choose(weights: Sequence[float], n: int, generator: Generator) -> Tensor:
    """n independent indices, i with probability w_i."""
    u, _ = _uniforms(n, generator)
    edges = _constant(weights, u).cumsum(0)
    return torch.searchsorted(edges[:-1], u, right=True)  # past the last edge but one: the last index
