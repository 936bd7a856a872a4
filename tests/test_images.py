"""Images: checked values, exact conversions, and batches that look the same however they are divided."""

import pytest
import torch

from levydiff import TrainConfig, Trainer
from levydiff.denoise import Denoiser
from levydiff.images import ImageBatches, ImageSet, long_tailed, pad, save_grid, to_pixels, to_unit
from levydiff.loss import OneVariableLoss
from levydiff.process import LevyProcess
from levydiff.schedule import CosineSchedule


def random_images(n: int, c: int = 1, h: int = 4, w: int = 6, classes: int = 3) -> ImageSet:
    pixels = torch.randint(0, 256, (n, c, h, w), dtype=torch.uint8)
    names = tuple("abcdefghij"[:classes])
    return ImageSet(pixels, torch.arange(n) % classes, names, "random")


# -- the value --------------------------------------------------------------------------------------------------------


def test_take():
    images = random_images(7, c=3)
    part = images.take(torch.tensor([5, 0]))
    assert len(part) == 2 and part.shape == (3, 4, 6) and part.classes == images.classes and part.source == "random"
    assert torch.equal(part.pixels, images.pixels[[5, 0]]) and part.labels.tolist() == [2, 0]
    assert ImageSet(images.pixels).take(torch.arange(3)).labels is None


def test_bad_sets():
    pixels = torch.zeros(3, 1, 2, 2, dtype=torch.uint8)
    for bad in (pixels.float(), pixels[0], pixels[:0]):
        with pytest.raises(ValueError, match=r"pixels must be uint8 of shape \(n, c, h, w\) and not empty, got torch"):
            ImageSet(bad)
    for channels in (2, 4):
        with pytest.raises(ValueError, match=rf"pixels must have 1 channel \(gray\) or 3 \(colour\), got {channels}"):
            ImageSet(pixels.expand(3, channels, 2, 2))
    with pytest.raises(ValueError, match=r"classes must be empty where there are no labels, got \('a',\)"):
        ImageSet(pixels, classes=("a",))
    for labels in (torch.zeros(3), torch.zeros(2, dtype=torch.int64), torch.zeros(3, 1, dtype=torch.int64)):
        with pytest.raises(ValueError, match=r"labels must be int64 of shape \(3,\), one for each image, got torch"):
            ImageSet(pixels, labels, ("a",))
    for wrong in (2, -1):
        with pytest.raises(ValueError, match=rf"labels must lie in \[0, 2\) for 2 classes, got {wrong} at image 1"):
            ImageSet(pixels, torch.tensor([0, wrong, 1]), ("a", "b"))


# -- conversions ------------------------------------------------------------------------------------------------------


def test_pixels_survive_the_round_trip():
    pixels = torch.arange(256).to(torch.uint8)
    x = to_unit(pixels)
    assert x.dtype == torch.float32 and float(x.min()) == -1 and float(x.max()) == 1
    torch.testing.assert_close(x.double(), torch.arange(256, dtype=torch.float64) / 127.5 - 1, atol=1e-7, rtol=0)
    assert torch.equal(to_pixels(x), pixels) and torch.equal(to_pixels(x.double()), pixels)
    assert torch.equal(pixels, torch.arange(256).to(torch.uint8))  # the pixels themselves are not written to


def test_to_pixels_clamps_and_rounds():
    x = torch.tensor([-1e30, -1.001, 1.001, float("inf"), 1 - 1.1 / 255, 1 - 0.9 / 255])
    assert to_pixels(x).tolist() == [0, 0, 255, 255, 254, 255]
    x = torch.tensor([3.0], requires_grad=True)
    assert to_pixels(x).tolist() == [255] and x.item() == 3.0


def test_conversions_refuse_the_wrong_kind():
    with pytest.raises(ValueError, match="pixels must be uint8, got torch.float32"):
        to_unit(torch.zeros(2))
    with pytest.raises(ValueError, match="x must be a float tensor, got torch.uint8"):
        to_pixels(torch.zeros(2, dtype=torch.uint8))
    with pytest.raises(ValueError, match="x must not hold NaN, got 1 among 2 values"):
        to_pixels(torch.tensor([0.0, float("nan")]))


def test_pad():
    images = random_images(2, h=5, w=8)
    padded = pad(images, 8)
    assert padded.shape == (1, 8, 8) and padded.source == "random, padded to 8 x 8"
    assert torch.equal(padded.pixels[:, :, 1:6], images.pixels)
    assert int(padded.pixels.sum()) == int(images.pixels.sum())  # everything else is black
    assert torch.equal(padded.labels, images.labels)
    assert pad(padded, 4) is padded
    assert pad(ImageSet(torch.zeros(1, 1, 28, 28, dtype=torch.uint8)), 32).shape == (1, 32, 32)
    with pytest.raises(ValueError, match="multiple must be a whole number of at least 1, got 0"):
        pad(images, 0)


# -- long tails -------------------------------------------------------------------------------------------------------


def test_the_papers_counts():
    # CIFAR10-LT is CIFAR-10, 5000 of each class, at imbalance 100
    labels = torch.arange(50_000) % 10
    even = ImageSet(torch.zeros(50_000, 1, 1, 1, dtype=torch.uint8), labels, tuple("abcdefghij"))
    part = long_tailed(even, imbalance=100)
    assert part.labels.bincount().tolist() == [5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50]


def test_a_whole_count_is_not_rounded_down():
    assert 4900 * 49.0**-1 < 100  # in floating point
    even = ImageSet(torch.zeros(9800, 1, 1, 1, dtype=torch.uint8), torch.arange(9800) % 2, ("a", "b"))
    assert long_tailed(even, imbalance=49).labels.bincount().tolist() == [4900, 100]
    assert long_tailed(even, imbalance=1e9).labels.bincount().tolist() == [4900, 1]  # no class is lost


def test_long_tailed_takes_the_first_of_each_class_in_order():
    images = random_images(12)  # labels 0 1 2 0 1 2 ...
    part = long_tailed(images, counts=[3, 2, 1])
    index = [0, 1, 2, 3, 4, 6]
    assert torch.equal(part.pixels, images.pixels[index]) and torch.equal(part.labels, images.labels[index])
    assert part.source == "random, long-tailed, 3 2 1 a class"


def test_long_tailed_by_chance():
    images = ImageSet(torch.arange(200).to(torch.uint8).reshape(200, 1, 1, 1), torch.arange(200) % 2, ("a", "b"))
    chosen = [long_tailed(images, counts=[50, 5], seed=seed) for seed in (0, 0, 1)]
    assert torch.equal(chosen[0].pixels, chosen[1].pixels) and not torch.equal(chosen[0].pixels, chosen[2].pixels)
    for part in chosen:
        assert part.labels.bincount().tolist() == [50, 5]
        assert torch.equal(part.pixels.flatten() % 2, part.labels) and len(part.pixels.unique()) == 55
    assert int(chosen[0].pixels.max()) > 110  # not the first ones, which end at 98


def test_long_tailed_errors():
    images = random_images(12)
    with pytest.raises(ValueError, match="images must have labels to be made long-tailed, got none"):
        long_tailed(ImageSet(images.pixels), imbalance=2)
    for both in ({}, {"counts": [1, 1, 1], "imbalance": 2.0}):
        with pytest.raises(ValueError, match="either counts or imbalance must be given, got counts = "):
            long_tailed(images, **both)
    with pytest.raises(ValueError, match=r"counts\[1\] must be at most 4, all images of b, got 5"):
        long_tailed(images, counts=[4, 5, 1])
    with pytest.raises(ValueError, match="counts must have one number for each of 3 classes, got 2"):
        long_tailed(images, counts=[1, 1])
    with pytest.raises(ValueError, match=r"counts\[2\] must be a whole number of at least 1, got 0"):
        long_tailed(images, counts=[1, 1, 0])
    for r in (0.5, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="imbalance must be finite and at least 1, got"):
            long_tailed(images, imbalance=r)


# -- batches ----------------------------------------------------------------------------------------------------------


def test_rows_are_the_images_in_unit_range():
    images = random_images(10, c=3)
    batches = ImageBatches(images, 4, seed=1, labels=True)
    for step in (0, 2, 5):
        index = batches.indices(step)
        assert torch.equal(batches.rows(step), to_unit(images.pixels[index]))
        assert torch.equal(batches.conditions(step)["label"], images.labels[index])
    assert batches.data.dtype == torch.uint8 and tuple(batches.data.shape[1:]) == (3, 4, 6)
    assert ImageBatches(images, 4, seed=1).conditions(0) == {}


def test_each_row_is_its_image_or_the_mirror_image():
    images = random_images(10, c=3)
    plain, batches = ImageBatches(images, 64, 1), ImageBatches(images, 64, 1, flips=True)
    mirrored = []
    for step in range(64):
        x, row = plain.rows(step), batches.rows(step)
        same, flipped = (x == row).flatten(1).all(1), (x.flip(-1) == row).flatten(1).all(1)
        assert bool((same ^ flipped).all())
        mirrored.append(flipped)
    share = torch.stack(mirrored).double()
    # 4096 coins: their mean is within 5 · 0.5/√4096 = 0.039 of 1/2; each step's and each position's (64) within 0.32.
    assert abs(float(share.mean()) - 0.5) < 0.039
    assert float((share.mean(0) - 0.5).abs().max()) < 0.32 and float((share.mean(1) - 0.5).abs().max()) < 0.32
    # neighbours in step and in position agree half of the time: |mean| of ±1 within 5/√4032 = 0.079
    sign = 2 * share - 1
    assert abs(float((sign[1:] * sign[:-1]).mean())) < 0.079
    assert abs(float((sign[:, 1:] * sign[:, :-1]).mean())) < 0.079


@pytest.mark.parametrize("world", [1, 2, 3, 5])
def test_processes_share_the_flips(world):
    batches = ImageBatches(random_images(9), 12, seed=3, flips=True)
    for step in (0, 7):
        shares = [batches.rows(step, (rank, world)) for rank in range(world)]
        assert torch.equal(torch.cat(shares), batches.rows(step))
        assert torch.equal(batches.rows(step, slice(2, 9, 3)), batches.rows(step)[2:9:3])


def test_flips_are_a_function_of_seed_step_and_position():
    images = random_images(9)
    first = ImageBatches(images, 12, seed=3, flips=True)
    expected = [first.rows(step) for step in range(8)]
    resumed = ImageBatches(images, 12, seed=3, flips=True)
    for step in (7, 2, 2, 0):  # in any order, whatever the state of torch's generator
        torch.manual_seed(step)
        assert torch.equal(resumed.rows(step), expected[step])
    # not of the images, nor of how many there are
    assert torch.equal(ImageBatches(random_images(20), 12, 3, flips=True)._mirrored(5), first._mirrored(5))
    assert not torch.equal(ImageBatches(images, 12, 4, flips=True)._mirrored(5), first._mirrored(5))


def test_take_never_mirrors():
    images = random_images(30)
    batches = ImageBatches(images, 8, seed=0, flips=True)
    assert torch.equal(batches.take(torch.arange(30)), to_unit(images.pixels))


def test_the_trainer_validates_images():
    images = random_images(11)
    process = LevyProcess(1.8, CosineSchedule())
    config = TrainConfig(steps=1, batch_size=4, validate_every=1)

    def validation_loss(data):
        denoiser = Denoiser(Scaled(), process)
        batches = ImageBatches(images, 4, seed=0, flips=True)
        return Trainer(denoiser, OneVariableLoss(), batches, config, validation=data).validation_loss()

    by_hand = validation_loss(to_unit(images.pixels))
    assert validation_loss(ImageBatches(images, 4, seed=0, flips=True)) == by_hand


class Scaled(torch.nn.Module):
    """The smallest network of images."""

    def __init__(self):
        super().__init__()
        self.factor = torch.nn.Parameter(torch.tensor(0.3))

    def forward(self, x, t):
        return self.factor * x


def test_labels_must_be_there():
    with pytest.raises(ValueError, match="labels must be False for images without labels, got True"):
        ImageBatches(ImageSet(random_images(3).pixels), 2, 0, labels=True)
    with pytest.raises(ValueError, match="0 <= rank < world, got"):
        ImageBatches(random_images(3), 2, 0, flips=True).rows(0, (2, 2))


# -- grids ------------------------------------------------------------------------------------------------------------


def read_png(path):
    np, image = pytest.importorskip("numpy"), pytest.importorskip("PIL.Image")
    return torch.from_numpy(np.array(image.open(path))).permute(2, 0, 1)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("scale", [1, 3])
def test_grid_holds_every_pixel(tmp_path, channels, scale):
    images = random_images(5, channels)
    path = save_grid(tmp_path / "grid.png", images.pixels, columns=3, scale=scale)
    sheet, (h, w) = read_png(path), (4 * scale, 6 * scale)
    assert tuple(sheet.shape) == (3, 2 * (h + 2) + 2, 3 * (w + 2) + 2)
    for i in range(5):
        top, left = 2 + (i // 3) * (h + 2), 2 + (i % 3) * (w + 2)
        tile = sheet[:, top : top + h, left : left + w]
        assert torch.equal(tile[:, ::scale, ::scale], images.pixels[i].expand(3, -1, -1))
        assert torch.equal(tile[:, scale - 1 :: scale, scale - 1 :: scale], images.pixels[i].expand(3, -1, -1))
    assert bool((sheet[:, :2] == 255).all()) and bool((sheet[:, 2 + h : 4 + h] == 255).all())  # the gaps are white


def test_grid_of_floats_titles_and_default_columns(tmp_path):
    images = random_images(5)
    save_grid(tmp_path / "pixels.png", images.pixels)
    save_grid(tmp_path / "floats.png", to_unit(images.pixels))
    plain = read_png(tmp_path / "pixels.png")
    assert torch.equal(read_png(tmp_path / "floats.png"), plain) and tuple(plain.shape[1:]) == (2 * 10 + 2, 3 * 14 + 2)
    save_grid(tmp_path / "titles.png", images.pixels, titles=["x", "", "", "", ""])
    titled = read_png(tmp_path / "titles.png")
    assert torch.equal(titled[:, 14:], plain[:, 2:])  # one band, above the first row only
    assert int(titled[:, :14].min()) < 128 and int(titled[:, :14, 16:].min()) == 255  # something dark, over the first
    save_grid(tmp_path / "one.png", images.pixels[:1])
    assert tuple(read_png(tmp_path / "one.png").shape[1:]) == (12, 16)


def test_grid_errors_leave_no_file(tmp_path):
    images = random_images(4)
    with pytest.raises(ValueError, match=r"path must end in .png, got 'grid.jpg'"):
        save_grid(tmp_path / "grid.jpg", images.pixels)
    with pytest.raises(ValueError, match="titles must be as many as images, 4, got 1"):
        save_grid(tmp_path / "grid.png", images.pixels, titles=["x"])
    with pytest.raises(ValueError, match="columns must be a whole number of at least 1, got 0"):
        save_grid(tmp_path / "grid.png", images.pixels, columns=0)
    with pytest.raises(ValueError, match="x must not hold NaN"):
        save_grid(tmp_path / "grid.png", torch.full((1, 1, 2, 2), float("nan")))
    with pytest.raises(OSError, match="cannot write grid.png in folder"):
        save_grid(tmp_path / "missing" / "grid.png", images.pixels)
    assert list(tmp_path.iterdir()) == []


def test_a_run_goes_on_with_the_same_flips_only():
    images = random_images(9)
    mirrored, plain = (ImageBatches(images, 4, seed=0, flips=flips) for flips in (True, False))
    mirrored.check_outline(mirrored.outline())
    with pytest.raises(ValueError, match="flips must be True as the run began, got False"):
        plain.check_outline(mirrored.outline())
