"""Where images come from: MNIST, CIFAR-10, CIFAR10-LT, scikit-learn's digits, a folder of one's own, Hugging Face.

    images = load_images("mnist")                      # 60000 digits
    images = load_images("photos", size=64)            # a folder; subfolders are classes

Named sets are looked for in ``folder``, else where the environment variable ``LEVYDIFF_DATA`` points, then in the
cache (``~/.cache/levydiff/data``, or under ``XDG_CACHE_HOME``). What is found nowhere is fetched from the usual public
place into the cache, checked against its SHA-256, once.

Nothing that a file holds is executed: CIFAR-10 is read from its binary version and not from the pickled one, and
archives are read in place, without unpacking.
"""

from __future__ import annotations

import gzip
import importlib
import io
import math
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm.auto import tqdm

from .checks import check_count
from .fetch import fetch, find, places
from .images import ImageSet, long_tailed

_BAR_FROM = 3000  # images; below that a progress bar is only noise
_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
#: Pillow goes by the contents, not by the name: without this list it would hand PostScript to an interpreter.
_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")

_MNIST_MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
_CIFAR_MIRRORS = ("https://www.cs.toronto.edu/~kriz/",)
_CIFAR_ARCHIVE = "cifar-10-binary.tar.gz"
_CIFAR_FOLDER = "cifar-10-batches-bin"
_CIFAR_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_CIFAR_LT_COUNTS = (5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50)
_CIFAR_RECORD = 1 + 3 * 32 * 32
_DIGITS = tuple("0123456789")
_SHA256 = {
    "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    _CIFAR_ARCHIVE: "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
}


def load_images(
    name: str, folder: str | Path | None = None, *, train: bool = True, size: int | None = None
) -> ImageSet:
    """Load a set of images.

    Arguments:
        name: ``"mnist"``, ``"cifar10"``, ``"cifar10_lt"``; ``"digits"``, the 8 x 8 digits that scikit-learn brings
            along (the last 297 are the test set); ``"hf:owner/name"`` on the Hugging Face hub (needs ``datasets``); or
            the path of a folder of images or of a .zip of one. Its subfolders are the classes, in alphabetical order;
            subfolders ``train`` and ``test``, where it has no others, are the two splits. Images are in colour if any
            one is; transparency is dropped.
        folder: Where to look for a named set first; else ``LEVYDIFF_DATA``.
        train: The training set, or the test set.
        size: Make images ``size`` x ``size``: the shorter side is scaled (bicubic) and the middle cut out.

    Example:
        >>> images = load_images("digits")
        >>> len(images), images.shape
        (1500, (1, 8, 8))
        >>> images.source
        "scikit-learn's digits, 1500 training images"
    """
    if size is not None:
        size = check_count("size", size)
    if name in _LOADERS:
        images = _LOADERS[name](places(folder), train)
        if size is None or images.shape[1:] == (size, size):
            return images
        image = _pillow("Image")
        arrays = images.pixels.permute(0, 2, 3, 1).squeeze(-1).numpy()
        pixels = _stack((("", image.fromarray(array)) for array in arrays), len(images), size)
        return ImageSet(pixels, images.labels, images.classes, f"{images.source}, at {size} x {size}")
    if name.startswith("hf:"):
        return _hugging_face(name.removeprefix("hf:"), train, size)
    path = Path(name)
    if path.is_dir() or (path.suffix.lower() == ".zip" and path.is_file()):
        return _image_folder(path, train, size)
    known = f"{', '.join(SOURCES)}, hf:owner/name, or the path of a folder of images or a .zip of one that exists"
    raise ValueError(f"name must be {known}, got {name!r}")


# -- named sets -------------------------------------------------------------------------------------------------------


def _digits(places: Sequence[Path], train: bool) -> ImageSet:
    from sklearn.datasets import load_digits

    found = load_digits()
    part = slice(0, -297) if train else slice(-297, None)
    pixels = torch.from_numpy(found.images[part]).mul(255 / 16).round().to(torch.uint8)[:, None]
    labels = torch.from_numpy(found.target[part]).to(torch.int64)
    return ImageSet(pixels, labels, _DIGITS, _counted("scikit-learn's digits", len(pixels), train))


def _mnist(places: Sequence[Path], train: bool) -> ImageSet:
    files = [f"{'train' if train else 't10k'}-{kind}-ubyte" for kind in ("images-idx3", "labels-idx1")]
    found = [find(places, "mnist", f"{file}.gz", file) for file in files]
    missing = [f"{file}.gz" for file, path in zip(files, found, strict=True) if path is None]
    fetched = iter(fetch(places[-1] / "mnist", missing, _MNIST_MIRRORS, _SHA256))
    images, labels = (path or next(fetched) for path in found)
    pixels, targets = _read_idx(images, 3), _read_idx(labels, 1)
    with _damage(labels):
        source = _counted("MNIST", len(pixels), train)
        return ImageSet(torch.from_numpy(pixels)[:, None], torch.from_numpy(targets).to(torch.int64), _DIGITS, source)


def _cifar10(places: Sequence[Path], train: bool) -> ImageSet:
    path = _find_cifar10(places) or fetch(places[-1] / "cifar10", [_CIFAR_ARCHIVE], _CIFAR_MIRRORS, _SHA256)[0]
    names = [f"data_batch_{i}.bin" for i in range(1, 6)] if train else ["test_batch.bin"]
    with _damage(path):
        if path.is_dir():
            parts = {name: (path / name).read_bytes() for name in names}
        else:
            with tarfile.open(path, "r:gz") as archive:  # in the archive's order: it cannot be read backwards
                wanted = ((PurePosixPath(member.name).name, archive.extractfile(member)) for member in archive)
                parts = {name: handle.read() for name, handle in wanted if handle is not None and name in names}
        for name in names:
            length = len(parts.get(name, b""))
            if length == 0 or length % _CIFAR_RECORD:
                raise ValueError(f"{name} must hold records of {_CIFAR_RECORD} bytes, got {length} bytes")
        records = np.frombuffer(b"".join(parts[name] for name in names), np.uint8).reshape(-1, _CIFAR_RECORD)
        labels = torch.from_numpy(records[:, 0].astype(np.int64))  # a record is a label, then red, green, blue
        pixels = torch.from_numpy(records[:, 1:].reshape(-1, 3, 32, 32).copy())
        return ImageSet(pixels, labels, _CIFAR_CLASSES, _counted("CIFAR-10", len(pixels), train))


def _find_cifar10(places: Sequence[Path]) -> Path | None:
    return find(places, "cifar10", _CIFAR_FOLDER, _CIFAR_ARCHIVE)


def _cifar10_lt(places: Sequence[Path], train: bool) -> ImageSet:
    """Its own archive where there is one, else made from CIFAR-10."""
    path = find(places, "cifar10_lt", "cifar10_lt.zip", "cifar10_lt")
    if path is None or (not train and _find_cifar10(places) is not None):
        images = _cifar10(places, train)
        return long_tailed(images, counts=_CIFAR_LT_COUNTS) if train else images
    if not train:
        raise ValueError(
            f"cifar10_lt has no test set in {path}: its test set is CIFAR-10's, put {_CIFAR_ARCHIVE} beside it"
        )
    images = _image_folder(path, True, None, "CIFAR10-LT", "re-encoded as JPEG, so not bit-identical to CIFAR-10")
    if images.classes != _CIFAR_CLASSES:
        raise ValueError(f"{path} must have the classes {', '.join(_CIFAR_CLASSES)}, got {', '.join(images.classes)}")
    return images


_LOADERS: dict[str, Callable[[Sequence[Path], bool], ImageSet]] = {
    "mnist": _mnist,
    "cifar10": _cifar10,
    "cifar10_lt": _cifar10_lt,
    "digits": _digits,
}
SOURCES = tuple(_LOADERS)


def _read_idx(path: Path, dims: int) -> NDArray[np.uint8]:
    """The bytes of an idx file in its own shape; the third byte of its magic number is the type, the fourth dims."""
    with _damage(path):
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        start, magic = 4 + 4 * dims, 0x800 + dims
        own = int.from_bytes(data[:4], "big")
        if own != magic:
            raise ValueError(f"an idx file of bytes in {dims} dimensions has the magic number {magic}, got {own}")
        if len(data) < start:
            raise ValueError(f"the header of an idx file has {start} bytes, got {len(data)} bytes in all")
        shape = struct.unpack(f">{dims}I", data[4:start])
        if len(data) - start != math.prod(shape):
            raise ValueError(f"shape {shape} needs {math.prod(shape)} bytes, got {len(data) - start}")
        # a copy, since torch wants memory that may be written to
        array: NDArray[np.uint8] = np.frombuffer(data, np.uint8, offset=start).copy()
        return array.reshape(tuple(map(int, shape)))


# -- folders of images ------------------------------------------------------------------------------------------------


def _image_folder(path: Path, train: bool, size: int | None, title: str | None = None, jpeg: str = "JPEG") -> ImageSet:
    """The images of a folder, or of a .zip of one; ``jpeg`` is what to say of JPEG files in the source."""
    with _damage(path), _open_folder(path) as (every, read):
        visible = {name: PurePosixPath(name).parts for name in every if name.lower().endswith(_SUFFIXES)}
        names = {n: p for n, p in visible.items() if not any(x.startswith((".", "__MACOSX")) for x in p)}
        tops = {parts[0] for parts in names.values()}
        if path.is_file() and len(tops) == 1 and all(len(parts) > 1 for parts in names.values()):
            names = {name: parts[1:] for name, parts in names.items()}  # the folder itself, which was packed whole
            tops = {parts[0] for parts in names.values()}
        split = bool(tops) and tops <= {"train", "test"}
        if split:
            wanted = "train" if train else "test"
            names = {name: parts[1:] for name, parts in names.items() if parts[0] == wanted}
        elif not train:
            raise ValueError("there is no test set, which must be in a subfolder test beside one called train")
        if not names:
            raise ValueError(f"there must be images ({', '.join(_SUFFIXES)}), got none")
        order = sorted(names, key=lambda name: names[name])
        inside = {name: names[name][0] for name in order if len(names[name]) > 1}
        if inside and len(inside) < len(order):
            stray = next(name for name in order if name not in inside)
            raise ValueError(f"images must all be in subfolders, which are the classes, or none, got {stray} outside")
        classes = tuple(sorted(set(inside.values())))
        labels = torch.tensor([classes.index(inside[name]) for name in order]) if inside else None
        pixels = _stack(((name, _decode(name, read(name))) for name in order), len(order), size)
    source = _counted(title or path.name, len(order), train if split or title else None)
    if any(name.lower().endswith((".jpg", ".jpeg")) for name in order):
        source += f", {jpeg}"
    return ImageSet(pixels, labels, classes, source if size is None else f"{source}, at {size} x {size}")


@contextmanager
def _open_folder(path: Path) -> Iterator[tuple[list[str], Callable[[str], bytes]]]:
    """The names of all files of a folder or .zip, with / between folders, and how to read one."""
    if path.is_dir():
        names = [file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file()]
        yield names, lambda name: (path / name).read_bytes()
    else:
        with zipfile.ZipFile(path) as archive:
            yield [info.filename for info in archive.infolist() if not info.is_dir()], archive.read


def _hugging_face(name: str, train: bool, size: int | None) -> ImageSet:
    """A set of the Hugging Face hub: its one column of images, and its column of classes if it has one."""
    try:
        datasets = importlib.import_module("datasets")
    except ImportError as error:
        raise ModuleNotFoundError(f"datasets is needed for hf:{name}: pip install datasets pillow") from error
    if int(datasets.__version__.split(".")[0]) < 4:  # earlier ones run a script that a set may bring along
        raise ValueError(f"datasets must be of version 4 or later to load hf:{name}, got {datasets.__version__}")
    split = "train" if train else "test"
    found = datasets.load_dataset(name, split=split)
    pictures = [column for column, kind in found.features.items() if isinstance(kind, datasets.Image)]
    targets = [column for column, kind in found.features.items() if isinstance(kind, datasets.ClassLabel)]
    if len(pictures) != 1:
        raise ValueError(f"hf:{name} must have exactly 1 column of images, got {pictures or list(found.features)}")
    rows = found.select_columns(pictures)
    pixels = _stack(((f"image {i}", row[pictures[0]]) for i, row in enumerate(rows)), len(rows), size)
    source = _counted(f"hf:{name}", len(pixels), train) + (f", at {size} x {size}" if size else "")
    if len(targets) != 1:  # none, or several, of which none is the label
        return ImageSet(pixels, source=source)
    labels = torch.tensor(list(found[targets[0]]), dtype=torch.int64)
    return ImageSet(pixels, labels, tuple(found.features[targets[0]].names), source)


def _decode(name: str, data: bytes) -> Any:
    """The Pillow image in the bytes of a file, upright."""
    image = _pillow("Image")
    try:
        picture = image.open(io.BytesIO(data), formats=_FORMATS)
        picture.load()
        return _pillow("ImageOps").exif_transpose(picture)
    except image.UnidentifiedImageError as error:
        raise ValueError(f"{name} is no image that can be read: its format is unknown") from error
    except (OSError, SyntaxError, ValueError, EOFError, struct.error, image.DecompressionBombError) as error:
        raise ValueError(f"{name} is no image that can be read: {error}") from error


def _stack(pictures: Iterable[tuple[str, Any]], count: int, size: int | None) -> Tensor:
    """Named Pillow images as uint8 of shape (n, c, h, w): c = 3 if any has colour, else 1."""
    image, ops = _pillow("Image"), _pillow("ImageOps")
    arrays: list[NDArray[np.uint8]] = []
    for name, picture in tqdm(pictures, total=count, desc="images", unit="image", disable=count < _BAR_FROM or None):
        if picture.mode[0] in "IF":
            raise ValueError(f"{name} must have 8 bits a channel, got an image of mode {picture.mode}")
        plain = picture.convert("L" if picture.mode in ("1", "L", "LA", "La") else "RGB")
        if size is not None:
            plain = ops.fit(plain, (size, size), image.Resampling.BICUBIC)
        array = np.asarray(plain)
        if arrays and array.shape[:2] != arrays[0].shape[:2]:
            first, own = ("{1} x {0}".format(*a.shape) for a in (arrays[0], array))
            raise ValueError(f"size must be given where images differ in size, got {name} with {own} after {first}")
        arrays.append(array)
    if any(array.ndim == 3 for array in arrays):
        arrays = [array if array.ndim == 3 else np.repeat(array[:, :, None], 3, axis=2) for array in arrays]
    stacked = torch.from_numpy(np.stack(arrays))
    return stacked[:, None] if stacked.ndim == 3 else stacked.permute(0, 3, 1, 2).contiguous()


# -- small things -----------------------------------------------------------------------------------------------------


def _pillow(module: str) -> Any:
    """A module of Pillow, of the extra ``images``, imported only where it is used."""
    try:
        return importlib.import_module(f"PIL.{module}")
    except ImportError as error:
        raise ModuleNotFoundError('pillow is needed for images: pip install "levydiff[images]"') from error


@contextmanager
def _damage(path: Path) -> Iterator[None]:
    """Name the file in whatever is found wrong with what it holds."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile, tarfile.TarError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _counted(title: str, count: int, train: bool | None) -> str:
    kind = "" if train is None else "training " if train else "test "
    return f"{title}, {count} {kind}images"
