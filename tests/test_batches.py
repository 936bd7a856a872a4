"""Random batches: each row once per epoch, whoever asks and wherever one starts."""

import numpy as np
import pytest
import torch

from levydiff.batches import Batches


def stream(batches: Batches, count: int) -> torch.Tensor:
    return torch.cat([batches.indices(k) for k in range(-(-count // batches.batch_size))])[:count]


@pytest.mark.parametrize(("n", "size"), [(10, 5), (10, 4), (7, 3), (7, 7), (7, 16), (1, 3), (3, 10), (50, 49)])
def test_every_row_once_per_epoch(n, size):
    rows = stream(Batches(torch.zeros(n, 1), size, seed=3), 6 * n).reshape(6, n)
    assert rows.dtype == torch.int64
    assert torch.equal(rows.sort(1).values, torch.arange(n).expand(6, n))


def test_every_batch_has_the_same_size():
    batches = Batches(torch.zeros(7, 1), 16, seed=0)
    assert [batches.indices(k).shape for k in (0, 1, 5)] == [(16,)] * 3


def test_pure_function_of_seed_and_step():
    forward = Batches(torch.zeros(11, 2), 4, seed=5)
    expected = [forward.indices(k) for k in range(20)]
    # in any order, on a fresh object or a used one, whatever the state of torch's own generator
    used = Batches(torch.zeros(11, 2), 4, seed=5)
    for k in (19, 0, 7, 7, 18, 2):
        torch.manual_seed(k)
        assert torch.equal(used.indices(k), expected[k])
        assert torch.equal(Batches(torch.ones(11, 3), 4, seed=5).indices(k), expected[k])
    # what is handed out is not the kept order
    used.indices(1).zero_()
    assert torch.equal(used.indices(1), expected[1])
    state = torch.random.get_rng_state()
    used.indices(100)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_seeds_and_epochs_differ():
    # 20 x 20 orders of 30 rows: all different, and positions uniform. Each entry of an order has mean 14.5 and
    # standard deviation 8.7; over 400 independent orders the mean is within 5 σ/√400 = 2.2.
    orders = torch.stack(
        [Batches(torch.zeros(30, 1), 30, seed).indices(k) for seed in range(20) for k in range(20)]
    ).double()
    assert len(torch.unique(orders, dim=0)) == 400
    assert float((orders.mean(0) - 14.5).abs().max()) < 2.2


def test_orders_are_kept():
    batches = Batches(torch.zeros(10, 1), 4, seed=0)
    batches.indices(2)  # runs over from epoch 0 into 1
    assert set(batches._orders) == {0, 1}
    kept = batches._order(1)
    assert batches._order(1) is kept
    batches.indices(100)
    assert len(batches._orders) <= 2


@pytest.mark.parametrize("world", [1, 2, 3, 4, 13])
def test_ranks_partition_the_batch(world):
    data = torch.arange(20.0)[:, None]
    batches = Batches(data, 12, seed=1, cond={"label": torch.arange(20)})
    shares = [batches.rows(4, part=(rank, world)) for rank in range(world)]
    assert torch.equal(torch.cat(shares), batches.rows(4))
    assert torch.equal(batches.rows(4), data[batches.indices(4)])
    sizes = {len(share) for share in shares}
    assert max(sizes) - min(sizes) <= 1
    labels = [batches.conditions(4, part=(rank, world))["label"] for rank in range(world)]
    assert torch.equal(torch.cat(labels), batches.indices(4))


def test_slices():
    batches = Batches(torch.arange(20.0)[:, None], 12, seed=1)
    whole = batches.rows(2)
    assert torch.equal(batches.rows(2, slice(3, 9)), whole[3:9])
    assert torch.equal(batches.rows(2, slice(None, None, 2)), whole[::2])


@pytest.mark.parametrize("dtype", ["<f4", ">f8", "u1"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_memmap_equals_memory(tmp_path, dtype, order):
    values = np.random.default_rng(0).integers(0, 200, (37, 2, 3)).astype(dtype, order=order)
    np.save(tmp_path / "x.npy", values)
    disk = Batches(np.load(tmp_path / "x.npy", mmap_mode="r"), 16, seed=2)
    memory = Batches(torch.from_numpy(values.astype(values.dtype.newbyteorder("="))), 16, seed=2)
    for step in range(8):
        assert disk.rows(step).dtype == memory.rows(step).dtype
        assert torch.equal(disk.rows(step), memory.rows(step))
        assert torch.equal(disk.rows(step, (1, 3)), memory.rows(step, (1, 3)))
    # more rows than there are: rows repeat in a batch
    assert torch.equal(Batches(disk.data, 100, 2).rows(1), Batches(memory.data, 100, 2).rows(1))
    disk.rows(0).zero_()  # a copy that may be written to, the file stays
    assert np.array_equal(np.load(tmp_path / "x.npy"), values)


def test_rows_are_read_forwards():
    asked = []

    class Spy(np.ndarray):
        def __getitem__(self, index):
            asked.append(np.asarray(index))
            return np.asarray(super().__getitem__(index))

    data = np.arange(50.0)[:, None].view(Spy)
    batches = Batches(data, 20, seed=0)
    rows = batches.rows(1, part=(1, 2))
    assert len(asked) == 1 and len(asked[0]) == 10 and bool((np.diff(asked[0]) >= 0).all())
    assert torch.equal(rows[:, 0], batches.indices(1)[10:].double())


def test_bad_input():
    data = torch.zeros(4, 2)
    with pytest.raises(ValueError, match=r"data must have shape \(n, ...\) with at least 1 row, got \(0, 2\)"):
        Batches(torch.zeros(0, 2), 2, 0)
    with pytest.raises(ValueError, match="batch_size must be a whole number of at least 1, got 0"):
        Batches(data, 0, 0)
    for seed in (-1, 1 << 63, 0.5, True):
        with pytest.raises(ValueError, match=r"seed must be a whole number in \[0, 2\*\*63\), got"):
            Batches(data, 2, seed)
    with pytest.raises(ValueError, match=r"cond\['y'\] must have 4 rows as data has, got \(3,\)"):
        Batches(data, 2, 0, cond={"y": torch.zeros(3)})
    batches = Batches(data, 2, (1 << 63) - 1)
    for step in (-1, 0.5):
        with pytest.raises(ValueError, match="step must be a whole number of at least 0, got"):
            batches.indices(step)
    for part in ((2, 2), (-1, 2), (0, 0)):
        with pytest.raises(ValueError, match="0 <= rank < world, got"):
            batches.rows(0, part)


def test_numpys_integers_are_whole_numbers():
    assert Batches(torch.zeros(5, 1), np.int64(3), 0).batch_size == 3
    with pytest.raises(ValueError, match="batch_size must be a whole number of at least 1, got 2.5"):
        Batches(torch.zeros(5, 1), np.float64(2.5), 0)
