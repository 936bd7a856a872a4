"""Reading and writing tables."""

import os
import pickle
import re
import sys

import numpy as np
import pytest
import torch

from levydiff.data import StableData
from levydiff.table import Table, TableWriter, open_array, read_table, write_table

ENDINGS = [".csv", ".tsv", ".parquet", ".npy"]


@pytest.fixture
def pandas():
    pytest.importorskip("pyarrow")
    return pytest.importorskip("pandas")


def heavy(n: int, d: int = 3, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Numbers of all sizes, with all their digits."""
    return (StableData(0.5, 1e-3, d)(n, torch.Generator().manual_seed(0)).double() / 3).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("d", [1, 3])
def test_round_trip_is_exact(pandas, tmp_path, ending, dtype, d):
    values = heavy(1000, d, dtype)
    path = tmp_path / f"x{ending}"
    names = ("a,b", "día", 'say "c"')[:d]
    write_table(path, values, names)
    table = read_table(path)
    assert table.values.dtype == (torch.float64 if ending in (".csv", ".tsv") else dtype)
    assert torch.equal(table.values.to(dtype), values)
    assert table.columns == (("x0", "x1", "x2")[:d] if ending == ".npy" else names)
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("ending", ENDINGS)
def test_pieces_make_the_same_file(pandas, tmp_path, ending):
    values = heavy(1000, dtype=torch.float32)
    with TableWriter(tmp_path / f"pieces{ending}", ("x0", "x1", "x2"), 1000) as writer:
        for piece in values.split(300):
            writer.write(piece)
        assert not (tmp_path / f"pieces{ending}").exists()
    write_table(tmp_path / f"whole{ending}", values)
    if ending != ".parquet":  # its row groups differ
        assert (tmp_path / f"pieces{ending}").read_bytes() == (tmp_path / f"whole{ending}").read_bytes()
    assert torch.equal(read_table(tmp_path / f"pieces{ending}").values.float(), values)


def test_npy_is_numpys(tmp_path):
    values = heavy(100).T.contiguous().T  # columns first in memory
    write_table(tmp_path / "x.npy", values)
    assert np.array_equal(np.load(tmp_path / "x.npy"), values.numpy())


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("failure", ["raise", "few", "many", "nan", "shape", "dtype"])
def test_failed_write_leaves_the_target_alone(pandas, tmp_path, ending, failure):
    path = tmp_path / f"x{ending}"
    path.write_text("old")
    match = {
        "raise": "stop",
        "few": "total_rows is 10, but 4 were written",
        "many": "total_rows is 10, but 11 were written",
        "nan": r"values must be finite, but row 6, column 1 \('b'\) is nan",
        "shape": r"values must have shape \(k, 2\) and dtype torch.float32, got \(6, 3\)",
        "dtype": "got .* and torch.float64",
    }[failure]
    with pytest.raises(ValueError, match=match), TableWriter(path, ["a", "b"], 10) as writer:  # noqa: PT012
        writer.write(torch.ones(4, 2))
        if failure == "raise":
            raise ValueError("stop")
        if failure == "many":
            writer.write(torch.ones(7, 2))
        if failure == "nan":
            bad = torch.ones(6, 2)
            bad[2, 1] = torch.nan
            writer.write(bad)
        if failure == "shape":
            writer.write(torch.ones(6, 3))
        if failure == "dtype":
            writer.write(torch.ones(6, 2, dtype=torch.float64))
    assert path.read_text() == "old" and os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("ending", ENDINGS)
def test_full_disk(pandas, tmp_path, ending):
    # The operating system refuses to let a file grow beyond 100 kB.
    resource = pytest.importorskip("resource")
    path = tmp_path / f"x{ending}"
    path.write_text("old")
    values = heavy(50_000, 2)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(OSError, match=f"cannot write x{ending} in folder {tmp_path}"):
            write_table(path, values)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_text() == "old" and os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("ending", [".npy", ".csv"])
def test_memory_of_writing(tmp_path, ending, monkeypatch):
    # However large the piece that is handed over, at most 2¹⁶ rows of it are turned into text or bytes at once.
    sizes = []
    writer = TableWriter(tmp_path / f"x{ending}", ["a"], 150_000)
    with writer:
        append = writer._append
        monkeypatch.setattr(writer, "_append", lambda rows: (sizes.append(len(rows)), append(rows)))
        writer.write(torch.zeros(150_000, 1))
    assert sum(sizes) == 150_000 and max(sizes) <= 1 << 16


def test_columns_are_picked_in_order(pandas, tmp_path):
    for ending in ENDINGS:
        path = tmp_path / f"x{ending}"
        write_table(path, torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]))
        picked = read_table(path, ["x2", "x0"])
        assert picked.columns == ("x2", "x0") and picked.values.tolist() == [[3, 1], [6, 4]]
        with pytest.raises(ValueError, match=rf"{path}: columns asks for 'y', .* got \['x0', 'x1', 'x2'\]"):
            read_table(path, ["y"])
        with pytest.raises(ValueError, match="columns must be different, got 'x0' more than once"):
            read_table(path, ["x0", "x0"])
        with pytest.raises(ValueError, match="columns must be names"):
            read_table(path, [])
    # a bad column that is not asked for does no harm
    (tmp_path / "y.csv").write_text("day,loss\nmonday,1\ntuesday,2\n")
    assert read_table(tmp_path / "y.csv", ["loss"]).values.tolist() == [[1], [2]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "No columns to parse"),
        ("a,b\n", r"n >= 2 rows and d >= 1, got \(0, 2\)"),
        ("a,b\n1,2\n", r"n >= 2 rows and d >= 1, got \(1, 2\)"),
        ("a,b\n1,2\n3,oops\n", r"row 1, column 1 \('b'\) must be a number, got 'oops'"),
        ("a,b\n1,2\n\n3,oops\n", r"row 1, column 1 \('b'\) must be a number, got 'oops'"),
        ('a,b\n1,2\n"1,234",3\n', r"row 1, column 0 \('a'\) must be a number, got '1,234'"),
        ("a,b\n1,2020-01-01\n2,2020-01-02\n", r"row 0, column 1 \('b'\) must be a number, got '2020-01-01'"),
        ("a,b\n1,True\n2,False\n", r"column 1 \('b'\) must hold numbers, got bool"),
        ("a,b\n1,2\n3,\n", r"row 1, column 1 \('b'\) is nan"),
        ("a,b\n1,2\n3\n", r"row 1, column 1 \('b'\) is nan"),
        ("a,b\n1,NaN\n3,4\n", r"row 0, column 1 \('b'\) is nan"),
        ("a,b\n1,2\n-inf,4\n", r"row 1, column 0 \('a'\) is -inf"),
        ("a,b\n1,2\n1e999,4\n", r"row 1, column 0 \('a'\) is inf"),
        ("1,2\n3,4\n5,6\n", r"the first line must name the columns, got only numbers: \['1', '2'\]"),
        ("a,a\n1,2\n3,4\n", "columns must be different, got 'a' more than once"),
        (",a\n0,2\n1,4\n", "columns must be names, at least one and none empty"),
        ("a,b\n0,5,6\n1,7,8\n", "rows must have 2 fields as the first line has, got more"),
        ("a,b\n1,2\n3,4,5\n", "Expected 2 fields in line 3, saw 3"),
        ("a;b\n1;2\n3;4\n", "columns must be separated by commas in a .csv file, got semicolons: 'a;b'"),
    ],
)
def test_bad_text(pandas, tmp_path, text, message):
    path = tmp_path / "x.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=re.escape(f"{path}: ") + ".*" + message):
        read_table(path)


def test_usual_text(pandas, tmp_path):
    path = tmp_path / "x.CSV"
    for text in ("\ufeffa, b\r\n1,2\r\n 3 ,4e0\r\n\r\n", '"a","b"\n1,2,\n3,4,\n', "\n\na,b\n1,2\n3,4"):
        path.write_bytes(text.encode())
        table = read_table(path)
        assert table.columns == ("a", "b") and table.values.tolist() == [[1, 2], [3, 4]]
    path.write_bytes(b"a,b\n\xff\xfe,2\n")
    with pytest.raises(ValueError, match=f"{path}: .*decode"):
        read_table(path)


def test_parquet_columns(pandas, tmp_path):
    path = tmp_path / "x.parquet"

    def read(column):
        pandas.DataFrame({"n": [1, 2, 3], "x": column}).to_parquet(path)
        return read_table(path)

    assert read(pandas.array([1, 2, 3], dtype="Int64")).values.tolist() == [[1, 1], [2, 2], [3, 3]]
    assert read(np.float32([0.5, 1, 2])).values.dtype == torch.float64  # next to an integer column
    for column, message in (
        (["1", "two", "3"], r"row 1, column 1 \('x'\) must be a number, got 'two'"),
        ([1.0, np.inf, 2.0], r"row 1, column 1 \('x'\) is inf"),
        (pandas.array([1, None, 2], dtype="Int64"), r"row 1, column 1 \('x'\) is nan"),
        (pandas.to_datetime(["2020-01-01"] * 3), r"column 1 \('x'\) must hold numbers, got datetime"),
        ([True, False, True], r"column 1 \('x'\) must hold numbers, got bool"),
    ):
        with pytest.raises(ValueError, match=f"{path}: .*{message}"):
            read(column)
    path.write_bytes(b"not a parquet file at all")
    with pytest.raises(ValueError, match=f"{path}: "):
        read_table(path)
    pandas.DataFrame().to_parquet(path)
    with pytest.raises(ValueError, match=f"{path}: columns must be names, at least one"):
        read_table(path)


@pytest.mark.parametrize("ending", [".npy", ".npz"])
@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((0, 3)), r"got \(0, 3\)"),
        (np.zeros((1, 3)), r"got \(1, 3\)"),
        (np.zeros((2, 0)), r"got \(2, 0\)"),
        (np.zeros((2, 3, 4)), r"got \(2, 3, 4\)"),
        (np.array(1.0), r"got \(\)"),
        (np.array([[1.0], [np.nan]]), "row 1, column 0 is nan"),
        (np.array([[1.0, -np.inf], [0, 0]]), "row 0, column 1 is -inf"),
        (np.array(["1", "2"]), "the array must hold real numbers, got dtype <U1"),
        (np.array([1j, 2]), "the array must hold real numbers, got dtype complex128"),
        (np.array([True, False]), "the array must hold real numbers, got dtype bool"),
        (np.zeros(2, dtype=[("a", float)]), "the array must hold real numbers"),
    ],
)
def test_bad_arrays(tmp_path, ending, array, message):
    path = tmp_path / f"x{ending}"
    np.save(path, array) if ending == ".npy" else np.savez(path, a=array)
    with pytest.raises(ValueError, match=re.escape(f"{path}: ") + ".*" + message):
        read_table(path)


@pytest.mark.parametrize(
    ("dtype", "kept"),
    [("f2", "f4"), ("<f4", "f4"), (">f4", "f4"), (">f8", "f8"), ("i2", "f8"), ("u8", "f8"), ("g", "f8")],
)
@pytest.mark.parametrize("ending", [".npy", ".npz"])
def test_array_dtypes(tmp_path, dtype, kept, ending):
    array = np.arange(6).astype(dtype)
    path = tmp_path / f"x{ending}"
    np.save(path, array) if ending == ".npy" else np.savez_compressed(path, array)
    table = read_table(path)
    assert table.columns == ("x0",) and table.values.numpy().dtype == np.dtype(kept)
    assert table.values.flatten().tolist() == list(range(6))


class Bomb:
    """What a hostile pickle is: reading it runs a command."""

    def __reduce__(self):
        return (os.mkdir, (os.environ["LEVYDIFF_BOMB"],))


@pytest.mark.parametrize("kind", ["object.npy", "pickle.npy", "pickle.npz", "object.npz"])
def test_pickles_are_never_executed(tmp_path, monkeypatch, kind):
    crater, path = tmp_path / "crater", tmp_path / kind
    monkeypatch.setenv("LEVYDIFF_BOMB", str(crater))
    array = np.array([Bomb(), 1.0], dtype=object)
    if kind.startswith("pickle"):
        path.write_bytes(pickle.dumps(Bomb()))
    elif kind.endswith("npy"):
        np.save(path, array, allow_pickle=True)
    else:
        np.savez(path, a=array)
    readers = [read_table, open_array] if kind.endswith("npy") else [read_table]
    for reader in readers:
        with pytest.raises(ValueError, match=f"{path}: .*pickle.* never read, since reading them can execute code"):
            reader(path)
    assert not crater.exists()
    if kind == "object.npy":  # the bomb is live
        np.load(path, allow_pickle=True)
        assert crater.exists()


def test_damaged_arrays(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.zeros((100, 3)))
    whole = path.read_bytes()
    for content in (whole[:500], whole[:20], b""):
        path.write_bytes(content)
        for reader in (read_table, open_array):
            with pytest.raises(ValueError, match=f"{path}: "):
                reader(path)
    path = tmp_path / "x.npz"
    path.write_bytes(b"PK\x03\x04 and no more")
    with pytest.raises(ValueError, match=f"{path}: the file is damaged"):
        read_table(path)
    np.savez(path, a=np.zeros(3), b=np.zeros(3))
    with pytest.raises(ValueError, match=r"the file must hold exactly 1 array, got \['a', 'b'\]"):
        read_table(path)


def test_open_array(tmp_path):
    values = heavy(50).numpy()
    np.save(tmp_path / "x.npy", values)
    array = open_array(tmp_path / "x.npy")
    assert isinstance(array, np.memmap) and np.array_equal(array, values)
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1
    np.save(tmp_path / "y.npy", values[:, 0])
    assert isinstance(open_array(tmp_path / "y.npy"), np.memmap) and open_array(tmp_path / "y.npy").shape == (50, 1)
    with pytest.raises(ValueError, match="path must end in .npy, got 'x.csv'"):
        open_array(tmp_path / "x.csv")


def test_bad_table_and_path(tmp_path):
    two = torch.zeros(2, 2)
    for columns, message in (
        (("a",), "columns must name the 2 columns of values, got 1 names"),
        (("a", "a"), "columns must be different, got 'a' more than once"),
        (("a", " "), "columns must be names, at least one and none empty"),
        ("ab", "columns must be names, at least one and none empty, got 'ab'"),
    ):
        with pytest.raises(ValueError, match=message):
            Table(two, columns)
    with pytest.raises(ValueError, match="values must be float32 or float64, got torch.int64"):
        Table(two.long(), ("a", "b"))
    with pytest.raises(ValueError, match="path must end in .csv, .tsv, .parquet, .npy, .npz, got 'x.xlsx'"):
        read_table("x.xlsx")
    for path in ("x.npz", "x"):
        with pytest.raises(ValueError, match="path must end in .csv, .tsv, .parquet, .npy, got"):
            write_table(tmp_path / path, two)
    with pytest.raises(ValueError, match="dtype must be torch.float32 or torch.float64, got torch.int64"):
        write_table(tmp_path / "x.npy", two.long())
    with pytest.raises(ValueError, match=r"values must have shape \(n, d\), got \(2,\)"):
        write_table(tmp_path / "x.npy", torch.zeros(2))
    with pytest.raises(ValueError, match="total_rows must be a whole number of at least 1, got 0"):
        write_table(tmp_path / "x.npy", torch.zeros(0, 2))
    with pytest.raises(FileNotFoundError, match="in folder .*none"):
        write_table(tmp_path / "none" / "x.npy", two)
    for ending in (".csv", ".npy", ".npz", ".parquet"):
        with pytest.raises((FileNotFoundError, ImportError)):
            read_table(tmp_path / f"none{ending}")


@pytest.mark.parametrize("path", ["x.csv", "x.parquet"])
def test_missing_extra(tmp_path, monkeypatch, path):
    for name in ("pandas", "pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, name, None)  # makes an import fail
    (tmp_path / path).write_text("a,b\n1,2\n3,4\n")
    with pytest.raises(ImportError, match=r'is needed for this file: pip install "levydiff\[tabular\]"'):
        read_table(tmp_path / path)
    if path == "x.parquet":
        with pytest.raises(ImportError, match="levydiff"):
            write_table(tmp_path / path, torch.zeros(2, 2))
        assert (tmp_path / path).read_text() == "a,b\n1,2\n3,4\n" and os.listdir(tmp_path) == [path]
    write_table(tmp_path / "y.csv", torch.zeros(2, 1))  # writing text needs nothing
    assert (tmp_path / "y.csv").read_text() == "x0\n0.0\n0.0\n"
