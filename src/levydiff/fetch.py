"""Finding files of public data sets, and fetching them once.

A file is looked for in the folder that the caller names, else where the environment variable ``LEVYDIFF_DATA`` points,
then in the cache (:func:`levydiff.files.cache_folder`). What is fetched goes into the cache, whole and with the SHA-256
that is known of it, or not at all.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

from tqdm.auto import tqdm

from .files import atomic_file, cache_folder

TIMEOUT = 30.0  # seconds without a byte


def places(folder: str | Path | None) -> list[Path]:
    """Where to look for files, the cache last."""
    cache = cache_folder() / "data"
    what, given = ("folder", folder) if folder is not None else ("LEVYDIFF_DATA", os.environ.get("LEVYDIFF_DATA"))
    if not given:
        return [cache]
    if not Path(given).is_dir():
        raise FileNotFoundError(f"{what} must be a folder that exists, got {given}")
    return [Path(given), cache]


def find(places: Sequence[Path], own: str, *names: str) -> Path | None:
    """The first that exists of some names, in a set's own folder or beside it."""
    candidates = (base / name for place in places for base in (place / own, place) for name in names)
    return next((path for path in candidates if path.exists()), None)


def fetch(folder: Path, files: Sequence[str], mirrors: Sequence[str], digests: Mapping[str, str]) -> list[Path]:
    """Download files into a folder, each from the first mirror that has it whole.

    Arguments:
        folder: Where to put them; it is made if need be.
        files: Their names.
        mirrors: Addresses that end in a slash.
        digests: The SHA-256 of each file, by name.
    """
    for file in files:
        for mirror in mirrors:
            try:
                _download(mirror + file, folder / file, digests[file])
                break
            except (OSError, http.client.HTTPException, ValueError) as error:
                reason: Exception = error
        else:
            raise OSError(
                f"cannot fetch {' and '.join(files)} ({reason}): get what is missing from {mirrors[0]} and put it into "
                f"{folder}, or into the folder that LEVYDIFF_DATA names"
            ) from reason
    return [folder / file for file in files]


def _download(url: str, path: Path, digest: str) -> None:
    """Download a file whose SHA-256 is known, whole or not at all."""
    found = hashlib.sha256()
    with urllib.request.urlopen(url, timeout=TIMEOUT) as answer:
        path.parent.mkdir(parents=True, exist_ok=True)
        total = int(answer.headers.get("Content-Length") or 0) or None
        # disable=None: no bar where nobody looks, in a log file
        bar = tqdm(total=total, desc=path.name, unit="B", unit_scale=True, disable=None)
        with bar, atomic_file(path) as temporary, open(temporary, "wb") as handle:
            while piece := answer.read(1 << 18):
                handle.write(piece)
                found.update(piece)
                bar.update(len(piece))
            if found.hexdigest() != digest:
                raise ValueError(f"{url} must have SHA-256 {digest}, got {found.hexdigest()}")
