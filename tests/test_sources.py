"""Where images come from: every reader on files written here, every fault in one sentence; nothing uses a network."""

import gzip
import hashlib
import io
import os
import struct
import sys
import tarfile
import types
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from levydiff import fetch, sources
from levydiff.sources import SOURCES, _decode, load_images

Image = pytest.importorskip("PIL.Image")

SHARED = Path(os.environ.get("LEVYDIFF_DATA") or Path(__file__).parents[2] / "shared" / "data")
CIFAR = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _no_network(tmp_path_factory, monkeypatch):
    """An empty cache, and mirrors that are empty folders."""
    empty = tmp_path_factory.mktemp("mirror")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.delenv("LEVYDIFF_DATA", raising=False)
    for mirrors in ("_MNIST_MIRRORS", "_CIFAR_MIRRORS"):
        monkeypatch.setattr(sources, mirrors, (f"{empty.as_uri()}/",))


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">{1 + array.ndim}I", 0x800 + array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


def write_mnist(folder: Path, n: int = 6, packed: bool = True, split: str = "train") -> tuple[np.ndarray, np.ndarray]:
    folder.mkdir(parents=True, exist_ok=True)
    images, labels = RNG.integers(0, 256, (n, 28, 28)), np.arange(n) % 10
    for name, array in (("images-idx3", images), ("labels-idx1", labels)):
        data = gzip.compress(idx(array)) if packed else idx(array)
        (folder / f"{split}-{name}-ubyte{'.gz' if packed else ''}").write_bytes(data)
    return images, labels


def cifar_files(each: int = 4) -> tuple[dict[str, bytes], np.ndarray]:
    """Files of ``each`` records, and all records: a label, then 3 x 32 x 32 pixels."""
    names = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]
    records = RNG.integers(0, 256, (6 * each, 3073), dtype=np.uint8)
    records[:, 0] = np.arange(6 * each) % 10
    return {name: records[i * each : (i + 1) * each].tobytes() for i, name in enumerate(names)}, records


def write_tar(path: Path, files: dict[str, bytes]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for name, data in reversed(files.items()):  # the real archive is in no order either
            info = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


def picture(shape: tuple[int, ...] = (4, 4, 3), kind: str = "PNG", mode: str | None = None) -> tuple[bytes, np.ndarray]:
    array = RNG.integers(0, 256, shape, dtype=np.uint8)
    handle = io.BytesIO()
    image = Image.fromarray(array)
    (image.convert(mode) if mode else image).save(handle, format=kind)
    return handle.getvalue(), array


def write_folder(folder: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def write_zip(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


# -- MNIST and digits -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("own", ["mnist", "."])
def test_mnist(tmp_path, packed, own):
    images, labels = write_mnist(tmp_path / own, packed=packed)
    found = load_images("mnist", tmp_path)
    assert np.array_equal(found.pixels[:, 0].numpy(), images) and found.labels.tolist() == labels.tolist()
    assert found.classes == tuple("0123456789") and found.source == "MNIST, 6 training images"


def test_the_test_set_is_another_file(tmp_path):
    write_mnist(tmp_path)
    images, _ = write_mnist(tmp_path, 3, split="t10k")
    found = load_images("mnist", tmp_path, train=False)
    assert np.array_equal(found.pixels[:, 0].numpy(), images) and found.source == "MNIST, 3 test images"


def test_where_files_are_looked_for(tmp_path, monkeypatch):
    write_mnist(Path(os.environ["XDG_CACHE_HOME"]) / "levydiff" / "data" / "mnist", 2)
    write_mnist(tmp_path / "environment", 3)
    write_mnist(tmp_path / "argument", 4)
    (tmp_path / "empty").mkdir()
    assert len(load_images("mnist")) == 2
    monkeypatch.setenv("LEVYDIFF_DATA", str(tmp_path / "environment"))
    assert len(load_images("mnist")) == 3
    assert len(load_images("mnist", tmp_path / "argument")) == 4
    assert len(load_images("mnist", tmp_path / "empty")) == 2  # the cache comes last


def test_missing_folder(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match="folder must be a folder that exists, got .*nowhere"):
        load_images("mnist", tmp_path / "nowhere")
    monkeypatch.setenv("LEVYDIFF_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(FileNotFoundError, match="LEVYDIFF_DATA must be a folder that exists, got .*nowhere"):
        load_images("mnist")


@pytest.mark.parametrize(
    ("file", "spoil", "sentence"),
    [
        ("images-idx3", lambda d: gzip.compress(d[:-1]), r"images.*: shape \(6, 28, 28\) needs 4704 bytes, got 4703"),
        ("images-idx3", lambda d: gzip.compress(d + b"x"), r"needs 4704 bytes, got 4705"),
        ("images-idx3", lambda d: gzip.compress(d[:7]), r"the header of an idx file has 16 bytes, got 7 bytes in all"),
        ("images-idx3", lambda d: gzip.compress(d)[:-9], r"train-images-idx3-ubyte.gz is damaged: "),
        ("images-idx3", lambda d: d, r"train-images-idx3-ubyte.gz is damaged: Not a gzipped file"),
        ("labels-idx1", lambda d: gzip.compress(b"\0\0\x0d" + d[3:]), r"magic number 2049, got 3329"),
        ("labels-idx1", lambda d: gzip.compress(idx(np.arange(5))), r"labels must be int64 of shape \(6,\)"),
        ("labels-idx1", lambda d: gzip.compress(d[:-1] + b"\x0a"), r"labels must lie in \[0, 10\) .* 10 at image 5"),
    ],
)
def test_spoiled_idx(tmp_path, file, spoil, sentence):
    write_mnist(tmp_path)
    path = tmp_path / f"train-{file}-ubyte.gz"
    path.write_bytes(spoil(gzip.decompress(path.read_bytes())))
    with pytest.raises(ValueError, match=sentence) as caught:
        load_images("mnist", tmp_path)
    assert path.name in str(caught.value)


def test_digits():
    train, test = load_images("digits"), load_images("digits", train=False)
    assert (len(train), len(test)) == (1500, 297) and train.shape == (1, 8, 8) and len(train.classes) == 10
    assert int(train.pixels.max()) == 255 and train.labels[:4].tolist() == [0, 1, 2, 3]
    from sklearn.datasets import load_digits

    values = torch.cat([train.pixels, test.pixels])[:, 0].numpy() / 255 * 16
    assert np.abs(values - load_digits().images).max() < 0.04  # 16 grays, to the nearest of 255


def test_size_of_a_named_set(tmp_path):
    write_mnist(tmp_path)
    found = load_images("mnist", tmp_path, size=14)
    assert found.shape == (1, 14, 14) and found.labels.tolist() == [0, 1, 2, 3, 4, 5]
    assert found.source == "MNIST, 6 training images, at 14 x 14"
    assert load_images("mnist", tmp_path, size=28).source == "MNIST, 6 training images"
    with pytest.raises(ValueError, match="size must be a whole number of at least 1, got 0"):
        load_images("mnist", tmp_path, size=0)


# -- CIFAR-10 and its long-tailed part --------------------------------------------------------------------------------


@pytest.mark.parametrize("own", ["cifar10", "."])
@pytest.mark.parametrize("packed", [True, False])
def test_cifar10(tmp_path, packed, own):
    files, records = cifar_files()
    if packed:
        write_tar(tmp_path / own / "cifar-10-binary.tar.gz", files)
    else:
        write_folder(tmp_path / own / "cifar-10-batches-bin", files)
    train, test = load_images("cifar10", tmp_path), load_images("cifar10", tmp_path, train=False)
    assert np.array_equal(train.pixels.numpy(), records[:20, 1:].reshape(20, 3, 32, 32))
    assert np.array_equal(test.pixels.numpy(), records[20:, 1:].reshape(4, 3, 32, 32))
    assert train.labels.tolist() == records[:20, 0].tolist() and train.classes == CIFAR
    assert (train.source, test.source) == ("CIFAR-10, 20 training images", "CIFAR-10, 4 test images")


def test_spoiled_cifar10(tmp_path):
    files, _ = cifar_files()
    path = tmp_path / "cifar-10-binary.tar.gz"
    write_tar(path, files | {"data_batch_3.bin": files["data_batch_3.bin"][:-1]})
    with pytest.raises(ValueError, match=r"cifar-10-binary.tar.gz: data_batch_3.bin must hold records of 3073 bytes"):
        load_images("cifar10", tmp_path)
    write_tar(path, {k: v for k, v in files.items() if k != "test_batch.bin"})
    with pytest.raises(ValueError, match="test_batch.bin must hold records of 3073 bytes, got 0 bytes"):
        load_images("cifar10", tmp_path, train=False)
    write_tar(path, files | {"data_batch_1.bin": b"\x0b" + files["data_batch_1.bin"][1:]})
    with pytest.raises(ValueError, match=r"labels must lie in \[0, 10\) for 10 classes, got 11 at image 0"):
        load_images("cifar10", tmp_path)
    write_tar(path, files)
    path.write_bytes(path.read_bytes()[:-3000])
    with pytest.raises(ValueError, match="cifar-10-binary.tar.gz is damaged: "):
        load_images("cifar10", tmp_path)


def test_cifar10_lt_from_cifar10(tmp_path, monkeypatch):
    files, records = cifar_files(20)  # 10 of each class
    write_tar(tmp_path / "cifar-10-binary.tar.gz", files)
    monkeypatch.setattr(sources, "_CIFAR_LT_COUNTS", (10, 9, 8, 7, 6, 5, 4, 3, 2, 1))
    found = load_images("cifar10_lt", tmp_path)
    assert found.labels.bincount().tolist() == [10, 9, 8, 7, 6, 5, 4, 3, 2, 1]
    truck = records[records[:, 0] == 9][0, 1:].reshape(3, 32, 32)
    assert np.array_equal(found.pixels[found.labels == 9][0].numpy(), truck)
    assert "CIFAR-10, 100 training images, long-tailed, 10 9 8" in found.source
    assert len(load_images("cifar10_lt", tmp_path, train=False)) == 20


def test_cifar10_lt_from_its_archive(tmp_path):
    data, pixels = picture((32, 32, 3), "JPEG"), {}
    for k, name in enumerate(CIFAR):
        for i in range(k + 1):
            pixels[f"cifar10_lt/{name}/{i:04d}.jpg"] = data[0]
    write_zip(tmp_path / "cifar10_lt.zip", pixels)
    found = load_images("cifar10_lt", tmp_path)
    assert found.labels.bincount().tolist() == list(range(1, 11)) and found.classes == CIFAR
    assert found.source == "CIFAR10-LT, 55 training images, re-encoded as JPEG, so not bit-identical to CIFAR-10"
    with pytest.raises(ValueError, match="cifar10_lt has no test set in .*cifar10_lt.zip: its test set is CIFAR-10's"):
        load_images("cifar10_lt", tmp_path, train=False)
    write_tar(tmp_path / "cifar-10-binary.tar.gz", cifar_files()[0])
    assert len(load_images("cifar10_lt", tmp_path, train=False)) == 4
    (tmp_path / "cifar10_lt.zip").unlink()
    write_folder(tmp_path, {"cifar10_lt/cat/1.png": data[0], "cifar10_lt/dog/1.png": data[0]})
    with pytest.raises(ValueError, match="cifar10_lt must have the classes airplane, .* truck, got cat, dog"):
        load_images("cifar10_lt", tmp_path)


# -- fetching ---------------------------------------------------------------------------------------------------------


def test_fetched_once_checked_and_kept(tmp_path, monkeypatch):
    images, _ = write_mnist(tmp_path / "good")
    sums = {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in (tmp_path / "good").iterdir()}
    monkeypatch.setattr(sources, "_SHA256", sums)
    write_mnist(tmp_path / "bad")  # another file of that name: not what the sum says
    mirrors = tuple(f"{(tmp_path / kind).as_uri()}/" for kind in ("missing", "bad", "good"))
    monkeypatch.setattr(sources, "_MNIST_MIRRORS", mirrors)
    assert np.array_equal(load_images("mnist").pixels[:, 0].numpy(), images)
    kept = Path(os.environ["XDG_CACHE_HOME"]) / "levydiff" / "data" / "mnist"
    assert sorted(p.name for p in kept.iterdir()) == sorted(sums)
    monkeypatch.setattr(sources, "_MNIST_MIRRORS", ())  # now from the cache
    assert np.array_equal(load_images("mnist").pixels[:, 0].numpy(), images)


def test_a_wrong_sum_leaves_nothing(tmp_path, monkeypatch):
    write_mnist(tmp_path)
    monkeypatch.setattr(sources, "_MNIST_MIRRORS", (f"{tmp_path.as_uri()}/",))
    with pytest.raises(OSError, match=r"must have SHA-256 440fcabf73cc.*, got "):
        load_images("mnist")
    assert [p for p in Path(os.environ["XDG_CACHE_HOME"]).rglob("*") if p.is_file()] == []


def test_no_network_says_which_files_to_put_where(tmp_path):
    with pytest.raises(OSError, match="cannot fetch train-images-idx3-ubyte.gz and train-labels-idx1-ubyte.gz") as e:
        load_images("mnist", tmp_path)
    message = str(e.value)
    assert str(Path("levydiff") / "data" / "mnist") in message and "LEVYDIFF_DATA" in message and "\n" not in message
    with pytest.raises(OSError, match="cannot fetch cifar-10-binary.tar.gz"):
        load_images("cifar10_lt")
    assert fetch.TIMEOUT <= 60 and all(len(digest) == 64 for digest in sources._SHA256.values())


# -- folders and archives ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("top", ["", "photos/"])
def test_folder_with_classes(tmp_path, packed, top):
    names = ["dog/2.png", "cat/b/1.png", "dog/10.png", "cat/0.PNG"]
    made = {name: picture() for name in names}
    extra = {"dog/notes.txt": b"x", ".hidden/1.png": b"x", "cat/._0.png": b"x"}
    files = {top + name: data for name, data in ({n: d for n, (d, _) in made.items()} | extra).items()}
    if packed:
        path = write_zip(tmp_path / "photos.zip", files | {"__MACOSX/dog/2.png": b"x"})
    else:
        path = write_folder(tmp_path / "photos", files) / top
    found = load_images(str(path))
    assert found.classes == ("cat", "dog") and found.labels.tolist() == [0, 0, 1, 1]
    order = ["cat/0.PNG", "cat/b/1.png", "dog/10.png", "dog/2.png"]
    assert np.array_equal(found.pixels.permute(0, 2, 3, 1).numpy(), np.stack([made[name][1] for name in order]))
    assert found.source == f"{path.name}, 4 images"


def test_folder_without_classes(tmp_path):
    path = write_folder(tmp_path / "flat", {f"{i}.png": picture((4, 4))[0] for i in range(3)})
    found = load_images(str(path))
    assert found.labels is None and found.classes == () and found.shape == (1, 4, 4)
    with pytest.raises(ValueError, match="flat: there is no test set, which must be in a subfolder test"):
        load_images(str(path), train=False)
    packed = write_zip(tmp_path / "flat.zip", {f"flat/{i}.png": picture()[0] for i in range(2)})
    assert load_images(str(packed)).labels is None


def test_folder_with_splits(tmp_path):
    names = ["train/a/1.png", "train/b/1.png", "train/b/2.png", "test/a/1.png"]
    path = write_folder(tmp_path / "split", {name: picture()[0] for name in names})
    train, test = load_images(str(path)), load_images(str(path), train=False)
    assert train.classes == ("a", "b") and train.labels.tolist() == [0, 1, 1] and len(test) == 1
    assert (train.source, test.source) == ("split, 3 training images", "split, 1 test images")


def test_gray_and_colour(tmp_path):
    (gray, values), (colour, _) = picture((4, 4)), picture((4, 4, 3))
    palette, one, alpha = (picture((4, 4, 3), mode=mode)[0] for mode in ("P", "1", "LA"))
    folder = write_folder(tmp_path / "gray", {"a.png": gray, "b.png": one, "c.png": alpha})
    assert load_images(str(folder)).shape == (1, 4, 4)
    for name, more in (("rgb", colour), ("palette", palette)):
        found = load_images(str(write_folder(tmp_path / name, {"a.png": gray, "b.png": more})))
        assert found.shape == (3, 4, 4) and np.array_equal(found.pixels[0].numpy(), np.stack([values] * 3))
    deep = io.BytesIO()
    Image.fromarray(np.full((4, 4), 60_000, np.uint16)).save(deep, format="PNG")
    with pytest.raises(ValueError, match="deep: a.png must have 8 bits a channel, got an image of mode I"):
        load_images(str(write_folder(tmp_path / "deep", {"a.png": deep.getvalue()})))


def test_different_sizes_need_size(tmp_path):
    wide = np.zeros((4, 12), np.uint8)
    wide[:, 4:8] = 200  # what is left when the middle is cut out
    handle = io.BytesIO()
    Image.fromarray(wide).save(handle, format="PNG")
    folder = write_folder(tmp_path / "mixed", {"a.png": picture((4, 4))[0], "b.png": handle.getvalue()})
    with pytest.raises(ValueError, match="size must be given where images differ in size, got b.png with 12 x 4 after"):
        load_images(str(folder))
    found = load_images(str(folder), size=4)
    assert found.shape == (1, 4, 4) and bool((found.pixels[1] == 200).all())
    assert found.source == "mixed, 2 images, at 4 x 4"
    assert load_images(str(folder), size=9).shape == (1, 9, 9)


def test_pictures_stand_upright(tmp_path):
    image = Image.fromarray(np.zeros((2, 6), np.uint8))
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned
    image.save(tmp_path / "a.png", exif=exif)
    assert load_images(str(tmp_path)).shape == (1, 6, 2)


@pytest.mark.parametrize("packed", [True, False])
def test_corrupt_images_are_named(tmp_path, packed):
    good = picture((40, 40, 3))[0]
    for spoiled, why in ((b"not an image", "its format is unknown"), (good[: len(good) // 2], "")):
        files = {"cat/good.png": good, "dog/spoiled.png": spoiled}
        path = write_zip(tmp_path / "set.zip", files) if packed else write_folder(tmp_path / "set", files)
        with pytest.raises(ValueError, match=rf"set.*: dog/spoiled.png is no image that can be read: {why}"):
            load_images(str(path))


def test_empty_and_mixed_folders(tmp_path):
    folder = write_folder(tmp_path / "empty", {"notes.txt": b"x"})
    with pytest.raises(ValueError, match=r"empty: there must be images \(.png, .jpg, .*\), got none"):
        load_images(str(folder))
    with pytest.raises(ValueError, match=r"empty.zip: there must be images"):
        load_images(str(write_zip(tmp_path / "empty.zip", {})))
    (tmp_path / "broken.zip").write_bytes(b"PK nothing")
    with pytest.raises(ValueError, match=r"broken.zip is damaged: File is not a zip file"):
        load_images(str(tmp_path / "broken.zip"))
    mixed = write_folder(tmp_path / "mixed", {"a/1.png": picture()[0], "stray.png": picture()[0]})
    with pytest.raises(ValueError, match="images must all be in subfolders, .* or none, got stray.png outside"):
        load_images(str(mixed))


def test_unknown_names(tmp_path):
    for name in ("imagenet", str(tmp_path / "nowhere"), str(tmp_path / "nowhere.zip")):
        with pytest.raises(
            ValueError, match="name must be mnist, cifar10, cifar10_lt, digits, hf:owner/name, or the p"
        ):
            load_images(name)
    assert SOURCES == ("mnist", "cifar10", "cifar10_lt", "digits")


# -- Hugging Face -----------------------------------------------------------------------------------------------------


class Columns:
    """As much of a ``datasets.Dataset`` as is used."""

    def __init__(self, features, columns):
        self.features, self.columns = features, columns

    def __len__(self):
        return len(next(iter(self.columns.values())))

    def __getitem__(self, name):
        return self.columns[name]

    def __iter__(self):
        return ({k: v[i] for k, v in self.columns.items()} for i in range(len(self)))

    def select_columns(self, names):
        return Columns({k: self.features[k] for k in names}, {k: self.columns[k] for k in names})


@pytest.fixture
def hub(monkeypatch):
    module = types.ModuleType("datasets")
    module.__version__ = "4.0.0"
    module.Image = type("Image", (), {})
    module.ClassLabel = type("ClassLabel", (), {"names": ["cat", "dog"]})
    module.asked = []
    arrays = RNG.integers(0, 256, (3, 4, 4, 3), dtype=np.uint8)
    columns = {"img": [Image.fromarray(a) for a in arrays], "label": [1, 0, 1], "caption": ["x"] * 3}
    module.found = Columns({"img": module.Image(), "label": module.ClassLabel(), "caption": None}, columns)

    def load_dataset(name, split):
        module.asked.append((name, split))
        return module.found

    module.load_dataset = load_dataset
    monkeypatch.setitem(sys.modules, "datasets", module)
    return module, arrays


def test_hugging_face(hub):
    module, arrays = hub
    found = load_images("hf:owner/name")
    assert np.array_equal(found.pixels.permute(0, 2, 3, 1).numpy(), arrays) and found.labels.tolist() == [1, 0, 1]
    assert found.classes == ("cat", "dog") and found.source == "hf:owner/name, 3 training images"
    assert load_images("hf:owner/name", train=False, size=2).shape == (3, 2, 2)
    assert module.asked == [("owner/name", "train"), ("owner/name", "test")]
    del module.found.features["label"]
    assert load_images("hf:owner/name").labels is None
    del module.found.features["img"]
    with pytest.raises(ValueError, match=r"hf:owner/name must have exactly 1 column of images, got \['caption'\]"):
        load_images("hf:owner/name")
    module.__version__ = "3.6.0"
    with pytest.raises(ValueError, match="datasets must be of version 4 or later to load hf:owner/name, got 3.6.0"):
        load_images("hf:owner/name")


def test_without_the_extras(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ModuleNotFoundError, match="datasets is needed for hf:owner/name: pip install datasets"):
        load_images("hf:owner/name")
    folder = write_folder(tmp_path / "set", {"a.png": picture()[0]})
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(ModuleNotFoundError, match=r'pillow is needed for images: pip install "levydiff\[images\]"'):
        load_images(str(folder))
    assert len(load_images("digits")) == 1500  # needs neither


# -- the real files, where they are -----------------------------------------------------------------------------------


@pytest.mark.skipif(not (SHARED / "mnist").is_dir(), reason="MNIST is not at hand")
def test_real_mnist():
    train, test = load_images("mnist", SHARED), load_images("mnist", SHARED, train=False)
    assert (len(train), len(test)) == (60_000, 10_000)
    raw = struct.pack(">4I", 2051, 60_000, 28, 28) + train.pixels.numpy().tobytes()
    assert hashlib.md5(raw).hexdigest() == "6bbc9ace898e44ae57da46a324031adb"
    assert train.labels.bincount().tolist()[:3] == [5923, 6742, 5958]


@pytest.mark.skipif(not (SHARED / "cifar10_lt.zip").is_file(), reason="CIFAR10-LT is not at hand")
def test_real_cifar10_lt():
    found = load_images("cifar10_lt", SHARED)
    assert found.shape == (3, 32, 32) and found.labels.bincount().tolist() == list(sources._CIFAR_LT_COUNTS)


def test_postscript_is_not_handed_to_an_interpreter():
    """Pillow goes by the contents; PostScript is a program, and a file's name is no protection."""
    program = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\nshowpage\n"
    with pytest.raises(ValueError, match="dog.png is no image that can be read: its format is unknown"):
        _decode("dog.png", program)
