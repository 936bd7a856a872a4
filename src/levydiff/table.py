"""Tables: numbers in named columns, read from and written to CSV, Parquet and numpy files.

Reading is strict, because a model learns from whatever it is given: text, a missing value, NaN or infinity is an error
that names file, row (0 is the first row of data) and column. Nothing that a file holds is executed: pickled arrays
are refused.

Writing is whole or not at all (:mod:`levydiff.files`), in pieces if need be: ten million rows take the memory of one
piece.
"""

from __future__ import annotations

import csv
import importlib
import io
import os
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .checks import check_count
from .files import atomic_file
from .scaling import check_finite, check_table, column_name

_ROWS_AT_ONCE = 1 << 16
_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_DTYPES: dict[torch.dtype, np.dtype[Any]] = {torch.float32: np.dtype(np.float32), torch.float64: np.dtype(np.float64)}


@dataclass(frozen=True, eq=False)
class Table:
    """Numbers in named columns.

    Arguments:
        values: float32 or float64 of shape (n, d), finite, n ≥ 2.
        columns: The d names, all different.

    Example:
        >>> Table(torch.tensor([[0.1, 0.0], [0.3, 2.5]]), ("loss", "rain")).columns
        ('loss', 'rain')
    """

    values: Tensor
    columns: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.values.dtype not in _DTYPES:
            raise ValueError(f"values must be float32 or float64, got {self.values.dtype}")
        check_names(self.columns)
        check_table(self.values, self.columns)


def read_table(path: str | os.PathLike[str], columns: Sequence[str] | None = None) -> Table:
    """Read a table of numbers from a .csv, .tsv, .parquet, .npy or .npz file (of one array).

    A text file's first line names its columns; a numpy array's are called x0, x1, … and an array of shape (n,) is one
    column. Values are float64, but float32 where the file has float32. Text and Parquet need the extra ``tabular``.

    Arguments:
        path: The file; its ending says what it is.
        columns: The names of the columns to take, in this order; all by default.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "losses.csv"
        >>> _ = path.write_text("fire,flood\\n1.5,0\\n2.5,oops\\n")
        >>> read_table(path, ["fire"]).values.flatten()
        tensor([1.5000, 2.5000], dtype=torch.float64)
        >>> read_table(path)
        Traceback (most recent call last):
        ValueError: .../losses.csv: row 1, column 1 ('flood') must be a number, got 'oops'
    """
    path = Path(path)
    suffix = _suffix(path, (".csv", ".tsv", ".parquet", ".npy", ".npz"))
    try:
        if suffix in (".npy", ".npz"):
            array = _load_array(path)
            check_table(array)
            names = list(default_names(array.shape[1]))
            positions = _select(names, columns)
            values = array[:, positions]
        else:
            names, frame = _load_parquet(path) if suffix == ".parquet" else _load_text(path, _DELIMITERS[suffix])
            positions = _select(names, columns)
            picked = [names[j] for j in positions]
            numbers = [_numbers(frame.iloc[:, j], column_name(i, picked)) for i, j in enumerate(positions)]
            values = np.stack(numbers, axis=1) if numbers else np.empty((len(frame), 0))
        keep = np.float32 if values.dtype.kind == "f" and values.dtype.itemsize <= 4 else np.float64
        return Table(torch.from_numpy(values.astype(keep)), tuple(names[j] for j in positions))
    except ValueError as error:  # pandas' and pyarrow's own errors are ValueErrors too
        raise ValueError(f"{path}: {str(error).strip()}") from error


def open_array(path: str | os.PathLike[str]) -> np.memmap[Any, Any]:
    """Open a .npy file of numbers without reading it: rows are read from disk when they are asked for.

    An array of shape (n,) is opened as (n, 1). Values are not checked; :func:`levydiff.scaling.check_table` does.
    """
    path = Path(path)
    _suffix(path, (".npy",))
    try:
        return cast("np.memmap[Any, Any]", _load_array(path, mmap_mode="r"))
    except ValueError as error:
        raise ValueError(f"{path}: {str(error).strip()}") from error


def write_table(path: str | os.PathLike[str], values: Tensor, columns: Sequence[str] | None = None) -> None:
    """Write a table to a .csv, .tsv, .parquet or .npy file, whole or not at all.

    Numbers are exact when read back. A .npy file does not hold the names.

    Arguments:
        path: The file; its ending says what it becomes. A file of that name is replaced.
        values: float32 or float64 of shape (n, d), finite.
        columns: The d names; x0, x1, … by default.
    """
    if values.ndim != 2:
        raise ValueError(f"values must have shape (n, d), got {tuple(values.shape)}")
    names = default_names(values.shape[1]) if columns is None else columns
    with TableWriter(path, names, len(values), values.dtype) as writer:
        writer.write(values)


class TableWriter:
    """Write a table piece by piece, in the memory of one piece; the file appears when all rows are there.

    Arguments:
        path: A .csv, .tsv, .parquet or .npy file. Parquet needs the extra ``tabular``.
        columns: The d names.
        total_rows: The number of rows that will be written.
        dtype: float32 or float64.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "samples.npy"
        >>> with TableWriter(path, ["loss", "rain"], total_rows=6) as writer:
        ...     for piece in torch.ones(6, 2).split(4):
        ...         writer.write(piece)
        >>> open_array(path).shape
        (6, 2)
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        columns: Sequence[str],
        total_rows: int,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.path = Path(path)
        self._sink = _SINKS[_suffix(self.path, tuple(_SINKS))]
        self.columns = check_names(columns)
        self.total_rows = check_count("total_rows", total_rows)
        if dtype not in _DTYPES:
            raise ValueError(f"dtype must be torch.float32 or torch.float64, got {dtype}")
        self.dtype = dtype
        self.rows_written = 0

    def __enter__(self) -> TableWriter:
        with ExitStack() as stack:
            temporary = stack.enter_context(atomic_file(self.path))
            # Plain writes, not a memory map: on a full disk they raise, where a memory map kills the process.
            handle = stack.enter_context(open(temporary, "wb"))
            self._append = stack.enter_context(self._sink(handle, self))
            stack.push(self._check_complete)
            self._stack = stack.pop_all()
        return self

    def write(self, values: Tensor) -> None:
        """Append rows, a tensor of shape (k, d) of the writer's dtype."""
        if values.ndim != 2 or values.shape[1] != len(self.columns) or values.dtype != self.dtype:
            raise ValueError(
                f"values must have shape (k, {len(self.columns)}) and dtype {self.dtype}, got {tuple(values.shape)} "
                f"and {values.dtype}"
            )
        if self.rows_written + len(values) > self.total_rows:
            raise ValueError(f"total_rows is {self.total_rows}, but {self.rows_written + len(values)} were written")
        check_finite(values, self.columns, first_row=self.rows_written)
        for piece in values.detach().split(_ROWS_AT_ONCE):
            self._append(np.ascontiguousarray(piece.cpu().numpy()))
        self.rows_written += len(values)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def _check_complete(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self.rows_written < self.total_rows:
            raise ValueError(f"total_rows is {self.total_rows}, but {self.rows_written} were written")


_Append = Callable[[NDArray[Any]], object]


@contextmanager
def _text_sink(handle: IO[bytes], table: TableWriter) -> Iterator[_Append]:
    delimiter = _DELIMITERS[table.path.suffix.lower()]
    with io.TextIOWrapper(handle, encoding="utf-8", newline="") as text:
        csv.writer(text, delimiter=delimiter, lineterminator="\n").writerow(table.columns)

        def append(rows: NDArray[Any]) -> None:
            # numpy's str is the shortest decimal that is read back as the same number, in float32 too
            text.writelines(delimiter.join(row) + "\n" for row in rows.astype(str).tolist())

        yield append


@contextmanager
def _numpy_sink(handle: IO[bytes], table: TableWriter) -> Iterator[_Append]:
    header = {
        "descr": np.lib.format.dtype_to_descr(_DTYPES[table.dtype]),
        "fortran_order": False,
        "shape": (table.total_rows, len(table.columns)),
    }
    np.lib.format.write_array_header_1_0(handle, header)
    yield lambda rows: handle.write(rows.data)


@contextmanager
def _parquet_sink(handle: IO[bytes], table: TableWriter) -> Iterator[_Append]:
    arrow, parquet = _tabular("pyarrow"), _tabular("pyarrow.parquet")
    kind = arrow.from_numpy_dtype(_DTYPES[table.dtype])
    schema = arrow.schema([(name, kind) for name in table.columns])
    with parquet.ParquetWriter(handle, schema) as writer:
        yield lambda rows: writer.write_table(arrow.table([arrow.array(c) for c in rows.T], schema=schema))


_SINKS: dict[str, Callable[[IO[bytes], TableWriter], AbstractContextManager[_Append]]] = {
    ".csv": _text_sink,
    ".tsv": _text_sink,
    ".parquet": _parquet_sink,
    ".npy": _numpy_sink,
}


def _load_array(path: Path, mmap_mode: Literal["r"] | None = None) -> NDArray[Any]:
    """The array of a .npy file, or the only one of a .npz file; never a pickled one."""
    try:
        loaded = np.load(path, mmap_mode=mmap_mode, allow_pickle=False)
        if isinstance(loaded, np.lib.npyio.NpzFile):
            with loaded:
                if len(loaded.files) != 1:
                    raise ValueError(f"the file must hold exactly 1 array, got {loaded.files}")
                loaded = loaded[loaded.files[0]]
    except (EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"the file is damaged: {error}") from error
    except ValueError as error:
        if "pickle" in str(error) or "Python objects" in str(error):
            raise ValueError(
                "the file is no plain array of numbers; Python objects (pickle) are never read, since reading them "
                "can execute code"
            ) from error
        raise
    array: NDArray[Any] = np.asanyarray(loaded)
    if array.dtype.kind not in "fiu":
        raise ValueError(f"the array must hold real numbers, got dtype {array.dtype}")
    return array.reshape(-1, 1) if array.ndim == 1 else array


def _load_text(path: Path, delimiter: str) -> tuple[list[str], Any]:
    """Column names and data frame of a text file."""
    pandas = _tabular("pandas")
    with open(path, encoding="utf-8-sig", newline="") as text:
        names = next(([name.strip() for name in row] for row in csv.reader(text, delimiter=delimiter) if row), [])
        if len(names) == 1 and delimiter == "," and ";" in names[0]:
            raise ValueError(f"columns must be separated by commas in a .csv file, got semicolons: {names[0]!r}")
        # Without a header the first row would be lost in silence.
        if names and all(_is_number(name) for name in names):
            raise ValueError(f"the first line must name the columns, got only numbers: {names}")
        text.seek(0)
        exact = {"float_precision": "round_trip"} if int(pandas.__version__.split(".")[0]) < 4 else {}
        with warnings.catch_warnings():
            # Since pandas 3 numbers are exact without asking, and asking is deprecated.
            warnings.simplefilter("ignore", DeprecationWarning)
            # A row longer than the header: pandas would cut it, or without index_col shift all columns by one.
            warnings.simplefilter("error", pandas.errors.ParserWarning)
            try:
                frame = pandas.read_csv(text, sep=delimiter, index_col=False, low_memory=False, **exact)
            except pandas.errors.ParserWarning as error:
                raise ValueError(f"rows must have {len(names)} fields as the first line has, got more") from error
    return names, frame


def _load_parquet(path: Path) -> tuple[list[str], Any]:
    """Column names and data frame of a Parquet file."""
    _tabular("pyarrow")
    with open(path, "rb") as handle:
        frame = _tabular("pandas").read_parquet(handle, engine="pyarrow")
    return [str(name) for name in frame.columns], frame


def _numbers(series: Any, what: str) -> NDArray[Any]:
    """A column of a data frame as float32 or float64, with NaN where a value is missing."""
    pandas = _tabular("pandas")
    if pandas.api.types.is_bool_dtype(series.dtype) or series.dtype.kind in "mMc":
        raise ValueError(f"{what} must hold numbers, got {series.dtype}")
    if series.dtype == np.float32:
        return cast("NDArray[Any]", series.to_numpy())
    numbers = pandas.to_numeric(series, errors="coerce")
    text = (numbers.isna() & series.notna()).to_numpy()
    if text.any():
        row = int(text.argmax())
        raise ValueError(f"row {row}, {what} must be a number, got {series.iloc[row]!r}")
    return cast("NDArray[Any]", numbers.to_numpy(dtype=np.float64, na_value=np.nan))


def _select(names: Sequence[str], columns: Sequence[str] | None) -> list[int]:
    """The positions of the columns asked for; all by default."""
    for name in columns or ():
        if list(names).count(name) != 1:
            found = "several of that name" if name in names else f"got {list(names)}"
            raise ValueError(f"columns asks for {name!r}, which the file must hold once: {found}")
    return list(range(len(names))) if columns is None else [list(names).index(name) for name in columns]


def check_names(columns: Sequence[str]) -> tuple[str, ...]:
    """Return names of columns: at least one, none empty, no two alike."""
    names = tuple(columns)
    if isinstance(columns, str) or not names or not all(isinstance(name, str) and name.strip() for name in names):
        raise ValueError(f"columns must be names, at least one and none empty, got {columns!r}")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"columns must be different, got {twice!r} more than once")
    return names


def _suffix(path: Path, allowed: Sequence[str]) -> str:
    suffix = path.suffix.lower()
    if suffix not in allowed:
        raise ValueError(f"path must end in {', '.join(allowed)}, got {path.name!r}")
    return suffix


def default_names(count: int) -> tuple[str, ...]:
    """What columns without names are called: x0, x1, …"""
    return tuple(f"x{j}" for j in range(count))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _tabular(module: str) -> Any:
    """A module of the extra ``tabular``, imported only where it is used."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f'{module} is needed for this file: pip install "levydiff[tabular]"') from error
