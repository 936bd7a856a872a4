r"""Random numbers: one generator for a batch, or one stream for every sample of it.

Everything random in levydiff takes a ``generator``. It is one of

* ``None``: torch's global generator;
* a ``torch.Generator``: the usual choice in training;
* :class:`SampleStreams`: one independent stream of random numbers per row of the batch. The samplers and the
  trainer use it, because then a sample depends on its own stream alone: *the same seed gives the same samples
  however the batch is split*, over calls, processes or devices.

A stream is SplitMix64 (Steele, Lea & Flood, *Fast splittable pseudorandom number generators*, 2014) with a random
64-bit key: the n-th word of the stream with key k is ``mix(k + n·φ)``, φ the golden ratio in 64 bits. Since a word
is a function of (k, n) there is no state but a counter, and a whole batch of words is a dozen integer operations.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import torch
from torch import Tensor


def _signed(word: int) -> int:
    """The 64-bit word as the two's complement integer that torch.int64 can hold."""
    return word - (1 << 64) if word >> 63 else word


_GOLDEN = _signed(0x9E3779B97F4A7C15)
_MIX_1 = _signed(0xBF58476D1CE4E5B9)
_MIX_2 = _signed(0x94D049BB133111EB)
_ODD_HALVES = (1 << 32) | 1


_AHEAD = 8
_CHUNK = 1 << 16


class SampleStreams:
    """Independent random streams, one for each of ``B`` samples.

    Arguments:
        keys: The streams' keys, int64 of shape (B,).
        counter: How many words of each stream have been used.

    Example:
        >>> streams = SampleStreams.seeded(4, torch.Generator().manual_seed(0))
        >>> whole = normal((4, 3), streams)
        >>> first, second = SampleStreams.seeded(4, torch.Generator().manual_seed(0)).split(2)
        >>> torch.equal(whole, torch.cat([normal((2, 3), first), normal((2, 3), second)]))
        True
    """

    def __init__(self, keys: Tensor, counter: int = 0) -> None:
        if keys.ndim != 1 or keys.dtype != torch.int64:
            raise ValueError(f"keys must be int64 of shape (B,), got {keys.dtype} of shape {tuple(keys.shape)}")
        self.keys = keys
        self.counter = counter
        self._ahead: Tensor | None = None
        self._ahead_from = 0

    @classmethod
    def seeded(
        cls, count: int, generator: torch.Generator | None = None, device: torch.device | str | None = None
    ) -> SampleStreams:
        """Draw ``count`` keys from a generator: the only randomness a sampler takes from it."""
        if generator is not None and not isinstance(generator, torch.Generator):
            raise TypeError(f"generator must be a torch.Generator or None, got {type(generator).__name__}")
        source = generator.device if generator is not None else torch.device("cpu")
        keys = torch.empty(count, dtype=torch.int64, device=source).random_(generator=generator)
        return cls(keys.to(device))

    @classmethod
    def of_step(cls, seed: int, step: int, count: int, device: torch.device | str | None = None) -> SampleStreams:
        """The streams of a step of training, one for each of ``count`` samples: a function of (seed, step)."""
        # The keys are words of a stream of the seed's own, so that streams of different steps do not overlap.
        key = cls(torch.tensor([seed])).words(1)[:, 0]
        start = cls(key, counter=step + 2).words(1)[:, 0]
        return cls(cls(start).words(count)[0].to(device))

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, rows: slice) -> SampleStreams:
        """The streams of some of the samples."""
        return SampleStreams(self.keys[rows], self.counter)

    @property
    def device(self) -> torch.device:
        """Where the streams' numbers are made."""
        return self.keys.device

    def check_shape(self, shape: Sequence[int]) -> None:
        """Refuse a shape whose rows cannot be dealt out evenly: K consecutive rows come from one stream."""
        if not shape or shape[0] % len(self):
            raise ValueError(
                f"shape must start with a multiple of the number of streams, {len(self)}, got {tuple(shape)}"
            )

    def split(self, size: int) -> Iterator[SampleStreams]:
        """The same streams in groups of at most ``size``."""
        return (SampleStreams(keys, self.counter) for keys in self.keys.split(size))

    def words(self, count: int) -> Tensor:
        """The next ``count`` 64-bit words of every stream, int64 of shape (B, count)."""
        start, self.counter = self.counter, self.counter + count
        if count > _AHEAD:
            return self._words(start, count)
        # Small requests are served from a few words made at once: for a small batch eight cost hardly more than one.
        if self._ahead is None or start + count > self._ahead_from + _AHEAD:
            self._ahead, self._ahead_from = self._words(start, _AHEAD), start
        return self._ahead[:, start - self._ahead_from : self.counter - self._ahead_from]

    def _words(self, start: int, count: int) -> Tensor:
        n = torch.arange(start + 1, start + count + 1, device=self.device)
        z = self.keys[:, None] + n.mul_(_GOLDEN)
        # torch's >> keeps the sign; the mask makes it the logical shift of the algorithm.
        z = z.bitwise_xor_((z >> 30).bitwise_and_((1 << 34) - 1)).mul_(_MIX_1)
        z = z.bitwise_xor_((z >> 27).bitwise_and_((1 << 37) - 1)).mul_(_MIX_2)
        return z.bitwise_xor_((z >> 31).bitwise_and_((1 << 33) - 1))


Generator: TypeAlias = torch.Generator | SampleStreams | None


def device_for(generator: Generator, device: torch.device | str | None = None) -> torch.device:
    """The device asked for, else the generator's, else torch's default."""
    if device is not None:
        return torch.device(device)
    return generator.device if generator is not None else torch.get_default_device()


def uniform_pair(
    shape: Sequence[int],
    generator: Generator = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> tuple[Tensor, Tensor]:
    """Two independent uniform variables in (0, 1), never 0 nor 1, finely resolved near 0.

    In float32 they lie on a grid of 2⁻³⁰, not of 2⁻²⁴ as ``torch.rand``'s: a heavy tail is read off the smallest
    values, and a coarse grid there is a visible set of atoms among its extremes.
    """
    dtype = dtype or torch.get_default_dtype()
    if len(shape) < 2:  # one row; or one for each stream, so that halves of words do not mix streams
        rows = (*shape, 1) if isinstance(generator, SampleStreams) else (1, *(shape or (1,)))
        u, v = uniform_pair(rows, generator, dtype, device)
        return u.reshape(tuple(shape)), v.reshape(tuple(shape))
    if dtype == torch.float64:
        u, v = (_uniform53(shape, generator, device) for _ in range(2))
        return u, v
    words = _words(shape, generator, device)
    # Both 32-bit halves of each word as odd k in (-2³¹, 2³¹), so never 0; the factor keeps |k|·2⁻³¹ from rounding to 1.
    halves = words.bitwise_or_(_ODD_HALVES).view(torch.int32).to(torch.float32).abs_().mul_(2.0**-31 * (1 - 2.0**-23))
    u, v = halves.chunk(2, dim=-1)
    return u.to(dtype), v.to(dtype)


def uniform(
    shape: Sequence[int],
    generator: Generator = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Tensor:
    """Uniform variables in [0, 1) of the given shape.

    Example:
        >>> bool((uniform((3,), SampleStreams.seeded(3)) < 1).all())
        True
    """
    if isinstance(generator, SampleStreams):
        dtype = dtype or torch.get_default_dtype()
        # Not 53 bits cast down: those round to 1 now and then, and need a float64 that not every device has.
        return (
            _uniform53(shape, generator, None) if dtype == torch.float64 else uniform_pair(shape, generator, dtype)[0]
        )
    return torch.rand(tuple(shape), generator=generator, dtype=dtype, device=device_for(generator, device))


def normal(
    shape: Sequence[int],
    generator: Generator = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Tensor:
    """Standard normal variables of the given shape.

    Example:
        >>> normal((2, 3), torch.Generator().manual_seed(0), dtype=torch.float64).shape
        torch.Size([2, 3])
    """
    if not isinstance(generator, SampleStreams):
        return torch.randn(tuple(shape), generator=generator, dtype=dtype, device=device_for(generator, device))
    generator.check_shape(shape)
    size = math.prod(shape[1:])
    at_once = max(1, _CHUNK // size)
    if len(generator) > at_once and size > 2 * _AHEAD and len(generator) == shape[0]:
        # Large draws are made a few rows at a time: what Box-Muller needs on the way stays in the processor's cache.
        out = torch.empty(tuple(shape), dtype=dtype, device=generator.device)
        for rows, streams in zip(out.split(at_once), generator.split(at_once), strict=True):
            rows.copy_(normal(rows.shape, streams, dtype))
        generator.counter = streams.counter
        return out
    # Box-Muller: a pair of uniforms gives a pair of normals.
    made = torch.float64 if dtype == torch.float64 else torch.float32  # half precision rounds uniforms to 0 and 1
    u, v = uniform_pair((shape[0], (size + 1) // 2), generator, made)
    radius, angle = u.log_().mul_(-2.0).sqrt_(), v.mul_(2.0 * math.pi)
    pairs = torch.stack((torch.cos(angle), torch.sin(angle)), dim=-1).mul_(radius.unsqueeze(-1))
    return pairs.flatten(1)[:, :size].reshape(tuple(shape)).to(dtype or torch.get_default_dtype())


def _words(shape: Sequence[int], generator: Generator, device: torch.device | str | None) -> Tensor:
    """Random 64-bit words, int64 of the given shape."""
    if not isinstance(generator, SampleStreams):
        words = torch.empty(tuple(shape), dtype=torch.int64, device=device_for(generator, device))
        return words.random_(-(1 << 63), None, generator=generator)
    generator.check_shape(shape)
    return generator.words(math.prod(shape) // len(generator)).reshape(tuple(shape))


def _uniform53(shape: Sequence[int], generator: Generator, device: torch.device | str | None) -> Tensor:
    """Uniform in (0, 1) with 53 random bits, float64."""
    bits = (_words(shape, generator, device) >> 11).bitwise_and_((1 << 53) - 1).to(torch.float64)
    return bits.mul_(2.0**-53 * (1 - 2.0**-52)).add_(2.0**-54)
