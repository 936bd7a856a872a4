r"""A small network that tells digits apart, to measure generated digits with.

The Fréchet distance and its relatives compare images by the features of a network that knows such images. For photos
this is Inception; for MNIST and its kin it is a classifier trained on the very data. :class:`DigitClassifier` is three
convolutions and 64 features; :func:`train_classifier` fits it in a few minutes of one core, and :func:`make` does so
from data to folder:

.. code-block:: console

    levydiff classifier --data mnist --out my-classifier

The package ships the outcome of that command with its defaults, see :func:`shipped_classifier`, so that numbers
obtained anywhere can be compared. :class:`~levydiff.features.ClassifierFeatures` computes scores with it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm.auto import tqdm

from . import __version__
from .checkpoint import CheckpointError, Folder, check_target, load_weights, write_folder
from .checks import check_count
from .images import ImageSet, to_unit

_BATCH = 128
_RATE = 0.01  # the peak of the one-cycle rate
_PADDING = 2  # what may be cut off on each side
_CHUNK = 1000  # images at once where no gradient is needed


class DigitClassifier(nn.Module):
    r"""Three convolutions, each normalised and pooled to half the size, then a layer of features and one of classes.

    Up to 2 pixels on each side more than ``size`` are taken for padding and cut off: MNIST padded to 32 x 32 has
    exactly the features of the original.

    Arguments:
        classes: How many classes.
        channels: c, the channels of an image: 1 for gray.
        size: The side of the square images, at least 8.
        width: The channels after the first convolution; the next two have twice and four times as many.
        dim: d, the number of features. 64 is few on purpose: the Fréchet distance of n samples has a bias that grows
            as d²/n, and 1000 samples should do.

    Example:
        >>> network = DigitClassifier().eval()
        >>> x = torch.zeros(5, 1, 28, 28)
        >>> network(x).shape, network.features(x).shape
        (torch.Size([5, 10]), torch.Size([5, 64]))
    """

    def __init__(self, classes: int = 10, channels: int = 1, size: int = 28, width: int = 16, dim: int = 64) -> None:
        super().__init__()
        config = {"classes": classes, "channels": channels, "size": size, "width": width, "dim": dim}
        self.config: dict[str, Any] = {name: check_count(name, value) for name, value in config.items()}
        if size < 8:
            raise ValueError(f"size must be at least 8, since it is halved three times, got {size}")
        widths = (channels, width, 2 * width, 4 * width)
        self.convolutions = nn.Sequential(*(self._convolution(before, after) for before, after in pairwise(widths)))
        # Normalised, so that the scale of the features is fixed and not an accident of training.
        self.penultimate = nn.Sequential(
            nn.Linear(4 * width * (size // 8) ** 2, dim, bias=False), nn.BatchNorm1d(dim), nn.ReLU()
        )
        self.classes = nn.Linear(dim, classes)

    @staticmethod
    def _convolution(before: int, after: int) -> nn.Module:
        # Pooling commutes with ReLU: pooled first, there is a quarter left to do.
        return nn.Sequential(
            nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.MaxPool2d(2), nn.ReLU()
        )

    def features(self, x: Tensor) -> Tensor:
        """The penultimate layer, shape (n, d), of images in [-1, 1] of shape (n, c, h, w), size ≤ h, w ≤ size + 4."""
        channels, size = self.config["channels"], self.config["size"]
        most = size + 2 * _PADDING
        if x.ndim != 4 or x.shape[1] != channels or min(x.shape[2:]) < size or max(x.shape[2:]) > most:
            raise ValueError(
                f"images must have shape (n, {channels}, h, w) with h and w in {size} ... {most}, got {tuple(x.shape)}"
            )
        top, left = ((side - size) // 2 for side in x.shape[2:])
        x = x[:, :, top : top + size, left : left + size]
        out: Tensor = self.penultimate(self.convolutions(x).flatten(1))
        return out

    def forward(self, x: Tensor) -> Tensor:
        """The logits, shape (n, classes), of images in [-1, 1] of shape (n, c, h, w)."""
        logits: Tensor = self.classes(self.features(x))
        return logits


def _labels(name: str, images: ImageSet) -> Tensor:
    if images.labels is None:
        raise ValueError(f"{name} must have labels, but {images.source} has none")
    return images.labels


def train_classifier(
    images: ImageSet, test: ImageSet, *, epochs: int = 4, seed: int = 0, progress: bool = True
) -> tuple[DigitClassifier, float]:
    r"""Train a :class:`DigitClassifier` on labelled images and count how many test images it gets right.

    Adam with a one-cycle rate; every image is moved at random by up to 1/14 of its side, 2 pixels of 28. The test
    images are looked at once, at the end: nothing is chosen by them.

    Arguments:
        images: The training images, square, with labels.
        test: Images of the same kind that it never trains on.
        epochs: How often each training image is seen.
        seed: The same seed gives the same network, up to rounding.
        progress: Show a progress bar.

    Returns:
        The classifier, ready for use, and the share of test images that it classifies correctly.

    Example:
        >>> from levydiff.sources import load_images
        >>> digits = load_images("digits"), load_images("digits", train=False)
        >>> network, right = train_classifier(*digits, epochs=3, progress=False)
        >>> right > 0.8
        True
    """
    labels, n = _labels("images", images), len(images)
    _labels("test", test)
    channels, height, width = images.shape
    if height != width:
        raise ValueError(f"images must be square, got {height} x {width}")
    if (test.shape, test.classes) != (images.shape, images.classes):
        raise ValueError(
            f"test must have the shape {images.shape} and the {len(images.classes)} classes of images, "
            f"got {test.shape} and {len(test.classes)} classes"
        )
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):  # initial weights come from torch's global generator
        torch.manual_seed(seed)
        network = DigitClassifier(len(images.classes), channels, size=height)
    optimizer = torch.optim.Adam(network.parameters(), lr=_RATE)
    batch = min(_BATCH, n)
    steps = check_count("epochs", epochs) * (n // batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=_RATE, total_steps=steps)
    with tqdm(total=steps, desc="classifier", unit="step", disable=not progress) as bar:
        for _ in range(epochs):
            order = torch.randperm(n, generator=generator)
            for rows in order[: n - n % batch].split(batch):
                loss = F.cross_entropy(
                    network(to_unit(_shifted(images.pixels[rows], height // 14, generator))), labels[rows]
                )
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
                bar.update()
    network.eval()
    return network, accuracy(network, test)


def _shifted(pixels: Tensor, most: int, generator: torch.Generator) -> Tensor:
    """Each image moved by up to ``most`` pixels in both directions; what enters is black."""
    n, _, height, width = pixels.shape
    padded = F.pad(pixels, (most,) * 4)
    start = torch.randint(2 * most + 1, (2, n, 1), generator=generator)
    rows, columns = start[0] + torch.arange(height), start[1] + torch.arange(width)
    moved = padded[torch.arange(n)[:, None, None], :, rows[:, :, None], columns[:, None, :]]  # (n, h, w, c)
    return moved.permute(0, 3, 1, 2).contiguous()


@torch.no_grad()
def accuracy(network: DigitClassifier, images: ImageSet) -> float:
    """The share of labelled images that a trained classifier gets right."""
    labels = _labels("images", images)
    right = sum(
        int((network(to_unit(pixels)).argmax(1) == label).sum())
        for pixels, label in zip(images.pixels.split(_CHUNK), labels.split(_CHUNK), strict=True)
    )
    return right / len(labels)


@dataclass(frozen=True)
class SavedClassifier:
    """A classifier out of a folder, ready for use.

    Arguments:
        network: The classifier.
        accuracy: The share of test images that it got right.
        source: What it was trained on.
        digest: The SHA-256 of its weights, which tells one classifier from another.
    """

    network: DigitClassifier
    accuracy: float
    source: str
    digest: str


def save_classifier(
    network: DigitClassifier, folder: str | Path, *, accuracy: float, source: str, command: str
) -> None:
    """Write a classifier into a folder, all or nothing: weights in safetensors, the rest in ``config.json``.

    Arguments:
        network: The classifier.
        folder: Created, or replaced if it is a levydiff folder.
        accuracy: The share of test images that it got right.
        source: What it was trained on.
        command: What makes it again.

    Example:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp() + "/classifier"
        >>> save_classifier(DigitClassifier(), folder, accuracy=0.1, source="nothing", command="none")
        >>> load_classifier(folder).accuracy
        0.1
    """
    record = {
        "version": __version__,
        "network": network.config,
        "accuracy": accuracy,
        "source": source,
        "command": command,
    }
    write_folder(Path(folder), {"model": network.state_dict()}, {"config": {"classifier": record}})


def load_classifier(folder: str | Path) -> SavedClassifier:
    """Load a classifier from a folder, every byte of which is checked; nothing in it is executed.

    Arguments:
        folder: A folder that :func:`save_classifier` or :func:`make` wrote.
    """
    opened = Folder(folder)
    try:
        record = opened.record("config")["classifier"]
        network = DigitClassifier(**record["network"])
        told = float(record["accuracy"]), str(record["source"])
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{opened.path} does not hold a classifier") from error
    load_weights(network, opened.tensors("model"), opened.path)
    digest = hashlib.sha256((opened.path / "model.safetensors").read_bytes()).hexdigest()
    return SavedClassifier(network.eval(), *told, digest)


def shipped_classifier() -> SavedClassifier:
    """The MNIST classifier that comes with levydiff, made by :func:`make` with its defaults.

    Example:
        >>> shipped_classifier().accuracy > 0.99
        True
    """
    return load_classifier(Path(__file__).parent / "weights" / "mnist")


def make(
    data: str,
    out: str | Path,
    *,
    folder: str | Path | None = None,
    epochs: int = 4,
    seed: int = 0,
    progress: bool = True,
) -> float:
    """Load images, train a classifier, and save it with its accuracy on the test images.

    Arguments:
        data: The name of a set of labelled images, as in :func:`~levydiff.sources.load_images`.
        out: The folder to write.
        folder: Where the images are.
        epochs, seed, progress: As in :func:`train_classifier`.

    Returns:
        The accuracy.
    """
    from .sources import load_images

    check_target(Path(out))
    images, test = (load_images(data, folder, train=train) for train in (True, False))
    network, right = train_classifier(images, test, epochs=epochs, seed=seed, progress=progress)
    command = f"levydiff classifier --data {data} --epochs {epochs} --seed {seed} --out FOLDER"
    save_classifier(network, out, accuracy=right, source=images.source, command=command)
    return right
