"""Random streams: SplitMix64's published values, uniformity, and independence from the split of a batch."""

import math

import pytest
import torch
from scipy import stats

from levydiff.rng import SampleStreams, normal, uniform, uniform_pair


def splitmix64(seed: int, count: int) -> list[int]:
    """The published algorithm on Python's unbounded integers."""
    mask, state, words = (1 << 64) - 1, seed, []
    for _ in range(count):
        state = (state + 0x9E3779B97F4A7C15) & mask
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        words.append(z ^ (z >> 31))
    return words


def test_words_are_splitmix64():
    # The reference implementation's first output for seed 1234567, and the algorithm in plain integers.
    assert splitmix64(1234567, 1) == [6457827717110365317]
    seeds = [0, 1234567, 2**62 + 17]
    words = SampleStreams(torch.tensor(seeds)).words(5)
    assert [[w % 2**64 for w in row] for row in words.tolist()] == [splitmix64(s, 5) for s in seeds]


def test_streams_continue_where_they_stopped():
    once, twice = SampleStreams(torch.tensor([5, 6])), SampleStreams(torch.tensor([5, 6]))
    assert torch.equal(once.words(7), torch.cat([twice.words(3), twice.words(4)], dim=1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("streams", [False, True])
def test_uniform_and_normal_laws(dtype, streams):
    generator = torch.Generator().manual_seed(1)
    source = SampleStreams.seeded(1000, generator) if streams else generator
    u, v = uniform_pair((1000, 200), source, dtype)
    g = normal((1000, 200), source, dtype)
    assert u.dtype == v.dtype == g.dtype == dtype
    for sample, law in ((u, stats.uniform), (v, stats.uniform), (g, stats.norm)):
        assert stats.kstest(sample.flatten().numpy(), law.cdf).pvalue > 1e-3  # seeded: no chance of a flake
    assert u.min() > 0 and u.max() < 1 and v.min() > 0 and v.max() < 1
    # u and v, the two halves of Box-Muller, and neighbouring rows are uncorrelated: |r| < 4/√n
    n = u.numel()
    for a, b in ((u, v), (g[:, ::2], g[:, 1::2]), (g[1:], g[:-1])):
        r = torch.corrcoef(torch.stack([a.flatten(), b.flatten()]))[0, 1]
        assert abs(r) < 4 / math.sqrt(a.numel() if a.numel() < n else n)


def test_float32_uniforms_resolve_the_neighbourhood_of_zero():
    # torch.rand's grid of 2^-24 would give at most 16 values below 2^-20; ours has 2^11 there.
    u, _ = uniform_pair((20_000_000,), torch.Generator().manual_seed(0))
    small = u[u < 2**-17]
    assert len(small) > 100
    assert len(small.unique()) == len(small)
    assert (small * 2**24 != (small * 2**24).round()).any()


@pytest.mark.parametrize(("word", "dtype"), [(2**31 - 1, torch.float32), (-1, torch.float64)])
def test_uniform_never_reaches_one(word, dtype):
    # The words that give the largest value of each precision; cast down from 53 bits it would be 1 in float32.
    class Largest(SampleStreams):
        def words(self, count):
            return torch.full((len(self), count), word)

    u = uniform((2,), Largest(torch.tensor([0, 1])), dtype)
    assert 1 - 1e-6 < float(u.max()) < 1.0


def test_normal_of_an_odd_number_of_values():
    assert normal((4, 3), SampleStreams.seeded(4)).shape == (4, 3)
    assert normal((4, 1, 1), SampleStreams.seeded(4)).shape == (4, 1, 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_large_draw_is_made_in_pieces_that_do_not_show(dtype):
    # 5 rows of 2¹⁵ values are more than the 2¹⁶ that are made at once; one row alone is not.
    shape, keys = (5, 1 << 15), torch.arange(5)
    whole = SampleStreams(keys)
    alone = [SampleStreams(key[None]) for key in keys]
    for _ in range(2):  # the second draw shows whether the streams went on as far as they were used
        assert torch.equal(normal(shape, whole, dtype), torch.cat([normal((1, shape[1]), one, dtype) for one in alone]))
        assert whole.counter == alone[0].counter
    assert torch.equal(whole.words(3), torch.cat([one.words(3) for one in alone]))


def test_shape_must_match_the_streams():
    with pytest.raises(ValueError, match=r"shape must start with a multiple of the number of streams, 4, got \(5, 2\)"):
        normal((5, 2), SampleStreams.seeded(4))


def test_consecutive_rows_share_a_stream():
    streams = SampleStreams(torch.tensor([11, 12, 13]))
    whole = normal((6, 4), streams)
    parts = [normal((2, 4), SampleStreams(torch.tensor([key]))) for key in (11, 12, 13)]
    assert torch.equal(whole, torch.cat(parts))
