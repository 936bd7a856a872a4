"""The classifier of digits: it learns, its folder says what it is, and the shipped one is as good as it claims."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from levydiff import classifier
from levydiff.checkpoint import CheckpointError, write_folder
from levydiff.classifier import (
    DigitClassifier,
    accuracy,
    load_classifier,
    make,
    save_classifier,
    shipped_classifier,
    train_classifier,
)
from levydiff.images import ImageSet, pad, to_unit
from levydiff.sources import load_images

DATA = Path(os.environ.get("LEVYDIFF_DATA", Path(__file__).parents[2] / "shared" / "data"))


@pytest.fixture(scope="module")
def digits():
    return load_images("digits"), load_images("digits", train=False)


@pytest.fixture(scope="module")
def trained(digits):
    return train_classifier(*digits, epochs=6, progress=False)


def test_learns_digits(trained, digits):
    network, right = trained
    assert not network.training and network.config["size"] == 8
    assert right > 0.9  # by chance 0.1
    assert accuracy(network, digits[1]) == right
    # The accuracy is a count over the test images, re-derived one by one.
    with torch.no_grad():
        guesses = [int(network(to_unit(x[None])).argmax()) for x in digits[1].pixels]
    assert right == sum(g == y for g, y in zip(guesses, digits[1].labels.tolist(), strict=True)) / len(guesses)


def test_seed_decides(digits):
    weights = []
    for i, seed in enumerate((0, 0, 1)):
        torch.manual_seed(i)  # torch's own generator has no say, and is left alone
        state = torch.get_rng_state()
        weights.append(train_classifier(*digits, epochs=1, seed=seed, progress=False)[0].classes.weight)
        assert torch.equal(torch.get_rng_state(), state)
    torch.testing.assert_close(weights[0], weights[1])
    assert not torch.allclose(weights[0], weights[2])


def test_shifts_move_every_image_by_itself():
    pixels = torch.zeros(500, 1, 9, 9, dtype=torch.uint8)
    pixels[:, :, 4, 4] = 255
    moved = classifier._shifted(pixels, 2, torch.Generator().manual_seed(0))
    assert moved.shape == pixels.shape and bool((moved.flatten(1).sum(1) == 255).all())
    places = {tuple(place) for place in (moved[:, 0] == 255).nonzero()[:, 1:].tolist()}
    assert places == {(i, j) for i in range(2, 7) for j in range(2, 7)}


def test_padding_does_not_change_features():
    network = DigitClassifier(channels=3).eval()
    images = ImageSet(torch.randint(256, (4, 3, 28, 28), dtype=torch.uint8))
    padded = pad(images, 32)
    assert padded.shape == (3, 32, 32)
    assert torch.equal(network.features(to_unit(padded.pixels)), network.features(to_unit(images.pixels)))


def test_logits_are_linear_in_features():
    network = DigitClassifier(classes=7, dim=12).eval()
    x = torch.randn(3, 1, 28, 28)
    features = network.features(x)
    assert features.shape == (3, 12) and bool((features >= 0).all())
    torch.testing.assert_close(network(x), features @ network.classes.weight.T + network.classes.bias)


@pytest.mark.parametrize("shape", [(2, 3, 28, 28), (2, 1, 27, 28), (2, 1, 28, 33), (1, 28, 28)])
def test_refuses_other_images(shape):
    with pytest.raises(ValueError, match=r"images must have shape \(n, 1, h, w\) with h and w in 28 ... 32, got"):
        DigitClassifier().eval()(torch.zeros(shape))


def test_refuses_what_it_cannot_train_on(digits):
    images, test = digits
    with pytest.raises(ValueError, match="size must be at least 8"):
        DigitClassifier(size=7)
    with pytest.raises(ValueError, match="epochs must be a whole number of at least 1, got 0"):
        train_classifier(images, test, epochs=0)
    unlabelled = replace(images, labels=None, classes=())
    with pytest.raises(ValueError, match="images must have labels, but scikit-learn's digits.* has none"):
        train_classifier(unlabelled, test)
    with pytest.raises(ValueError, match="test must have labels"):
        train_classifier(images, unlabelled)
    with pytest.raises(ValueError, match="images must be square, got 8 x 7"):
        train_classifier(replace(images, pixels=images.pixels[..., :7]), test)
    with pytest.raises(ValueError, match=r"test must have the shape \(1, 8, 8\) and the 10 classes of images, got"):
        train_classifier(images, pad(test, 16))


def test_folder_round_trip(trained, digits, tmp_path):
    network, right = trained
    save_classifier(network, tmp_path / "c", accuracy=right, source="digits", command="none")
    saved = load_classifier(tmp_path / "c")
    x = to_unit(digits[1].pixels)
    assert torch.equal(saved.network(x), network(x)) and not saved.network.training
    assert (saved.accuracy, saved.source) == (right, "digits") and len(saved.digest) == 64
    # Other weights, another digest: the name of the features depends on it.
    with torch.no_grad():
        saved.network.classes.bias[0] += 1.0
    save_classifier(saved.network, tmp_path / "d", accuracy=right, source="digits", command="none")
    assert load_classifier(tmp_path / "d").digest != saved.digest


def test_refuses_damaged_and_foreign_folders(tmp_path):
    save_classifier(DigitClassifier(size=8), tmp_path / "c", accuracy=0.1, source="none", command="none")
    file = tmp_path / "c" / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(CheckpointError, match="model.safetensors is not what was saved"):
        load_classifier(tmp_path / "c")
    with pytest.raises(CheckpointError, match="is not a levydiff folder"):
        load_classifier(tmp_path / "nowhere")
    for record in ({}, {"classifier": {"network": {"colour": 1}, "accuracy": 0.1, "source": ""}}):
        write_folder(tmp_path / "other", {"model": {}}, {"config": record})
        with pytest.raises(CheckpointError, match="other does not hold a classifier"):
            load_classifier(tmp_path / "other")


def test_make(tmp_path, capsys):
    right = make("digits", tmp_path / "c", epochs=2, seed=3, progress=False)
    assert 0.5 < right <= 1.0 and capsys.readouterr().out == ""
    record = json.loads((tmp_path / "c" / "config.json").read_text())["classifier"]
    assert record["accuracy"] == right and "digits" in record["source"]
    assert record["command"] == "levydiff classifier --data digits --epochs 2 --seed 3 --out FOLDER"
    assert accuracy(load_classifier(tmp_path / "c").network, load_images("digits", train=False)) == right


def test_shipped_classifier_is_small_and_good():
    folder = Path(classifier.__file__).parent / "weights" / "mnist"
    assert sum(file.stat().st_size for file in folder.iterdir()) < 1_000_000
    saved = shipped_classifier()
    assert saved.accuracy > 0.99 and saved.network.config["dim"] == 64
    record = json.loads((folder / "config.json").read_text())["classifier"]
    assert record["command"] == "levydiff classifier --data mnist --epochs 4 --seed 0 --out FOLDER"


@pytest.mark.skipif(not (DATA / "mnist").is_dir(), reason="MNIST is not at hand")
def test_shipped_classifier_reaches_what_it_says():
    saved = shipped_classifier()
    right = accuracy(saved.network, load_images("mnist", DATA, train=False))
    assert right > 0.99
    assert right == pytest.approx(saved.accuracy, abs=2e-4)  # two images may turn on rounding
