"""Files that are written whole or not at all.

A file is first written under a temporary name in its own folder, forced to disk (fsync), and only then given its name
by ``os.replace``, which the file system does in one step. Whatever goes wrong before that, a full disk, an exception,
a power cut, the old file stays as it was; a reader never sees half a file.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def cache_folder() -> Path:
    """The user's folder for what can be made or fetched again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "levydiff"


# What a disk answers when it cannot take more data; other errors of a body's own are passed on as they are.
_DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO}


@contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Write a file whole or not at all: write to the temporary path that this yields.

    The temporary file exists (empty) and has the suffix of ``path``. When the body ends it takes the place of
    ``path``, with the permissions of the file that was there; when the body raises, it is removed and ``path`` is
    untouched. If ``path`` is a symbolic link, the file it points to is replaced.

    Arguments:
        path: The file to write, in a folder that exists.

    Raises:
        OSError: A missing or read-only folder, or a full disk, naming the folder.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "note.txt"
        >>> with atomic_file(path) as temporary:
        ...     _ = temporary.write_text("whole")
        >>> path.read_text()
        'whole'
    """
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, f"path must name a file, but {target} is a folder")
    # A short name of its own: the target's may already be as long as the file system allows.
    temporary = target.with_name(f".levydiff-{secrets.token_hex(8)}{target.suffix}")
    try:
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    except OSError as error:
        raise _cannot_write(target, error) from error
    try:
        try:
            yield temporary
        except OSError as error:
            if error.errno not in _DISK_ERRORS:
                raise
            raise _cannot_write(target, error) from error
        try:
            sync(temporary)
            if target.exists():
                shutil.copymode(target, temporary)
            os.replace(temporary, target)
        except OSError as error:
            raise _cannot_write(target, error) from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync(target.parent)


def sync(path: Path) -> None:
    """Force a file, or a folder's list of names, to disk."""
    if os.name != "posix" and path.is_dir():
        return  # there a folder cannot be opened, and needs no sync
    handle = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _cannot_write(target: Path, error: OSError) -> OSError:
    """The same kind of error, saying which file in which folder."""
    reason = error.strerror or str(error)
    return OSError(error.errno, f"cannot write {target.name} in folder {target.parent}: {reason}")
