"""Many runs, on all cores, none of them twice.

Each :class:`~levydiff.experiments.trial.Trial` is a job of its own through ``joblib``, on one thread. Its record is
written to the cache, whole or not at all, by the worker that made it; so a sweep can be killed at any moment and,
started again, makes only the runs that are missing. A training that was under way goes on from its last checkpoint.

On a cluster: :func:`sweep` takes the address of a Dask scheduler, whose workers must see the same cache folder, or
``"local"`` for a cluster of as many workers as jobs on this machine. Another joblib backend (Ray's, say) is used if the
caller has chosen it with ``joblib.parallel_config``.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache as once
from pathlib import Path
from typing import Any

import joblib
import torch
from joblib.parallel import get_active_backend
from tqdm.auto import tqdm

from ..files import atomic_file
from .trial import Trial, execute

Record = Mapping[str, Any]


def finished(runs: Sequence[Trial], cache: Path) -> dict[str, Record]:
    """The records in the cache of those of the runs that are made, by their keys."""
    return {run.key: record for run in runs if (record := _read(cache / f"{run.key}.json", run.key)) is not None}


def _read(path: Path, key: str) -> Record | None:
    """A record; None if there is none that can be read."""
    try:
        record = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) and record.get("key") == key else None


def sweep(
    runs: Sequence[Trial], cache: Path, *, jobs: int = -1, dask: str | None = None, progress: bool = True, made: int = 0
) -> Iterator[Record]:
    """Make runs; gives the record of each as soon as it is there.

    Arguments:
        runs: What to make; runs with the same key are made once.
        cache: A folder for records and trained networks.
        jobs: How many runs at a time; as many as there are cores by default.
        dask: Where to run them instead: the address of a Dask scheduler, or ``"local"``.
        progress: Show a progress bar over the runs.
        made: How many runs the bar counts as finished from the start.
    """
    cache = cache.resolve()  # workers may stand elsewhere
    cache.mkdir(parents=True, exist_ok=True)
    missing = list({run.key: run for run in runs}.values())
    bar = tqdm(total=made + len(missing), initial=made, desc="runs", unit="run", disable=not progress)
    with bar:
        if missing:
            with _workers(dask, jobs) as return_as:
                work = joblib.Parallel(n_jobs=jobs, return_as=return_as, batch_size=1)
                for record in work(joblib.delayed(_make)(run, cache, os.getpid()) for run in missing):
                    bar.update()
                    yield record


def _make(run: Trial, cache: Path, sweeper: int) -> Record:
    """One run, for the process ``sweeper``: in a worker of it, in itself, or on a cluster."""
    if os.getppid() == sweeper:
        _die_with(sweeper)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # so that as many runs as cores do not disturb each other
    try:
        record = execute(run, cache / "networks")
    finally:
        torch.set_num_threads(threads)
    with atomic_file(cache / f"{run.key}.json") as path:
        path.write_text(json.dumps(record, indent=1) + "\n")
    return record


@once
def _die_with(parent: int) -> None:
    """End this process when its parent is gone: a sweep that was killed must not go on in its workers."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _workers(dask: str | None, jobs: int) -> Iterator[str]:
    """joblib's own processes, the backend the caller has chosen, or Dask; gives how results can be returned."""
    if dask is not None:
        with _dask_client(dask, jobs), joblib.parallel_config(backend="dask"):
            yield "generator_unordered"
        return
    # For the workers: else glibc returns the memory of each training step and fetches it anew, a tenth of the time.
    tuned = {name: str(1 << 30) for name in ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")}
    added = [name for name in tuned if name not in os.environ]
    os.environ.update({name: tuned[name] for name in added})
    try:
        yield "generator_unordered" if get_active_backend()[0].supports_return_generator else "list"
    finally:
        for name in added:
            os.environ.pop(name, None)


@contextmanager
def _dask_client(address: str, jobs: int) -> Iterator[None]:
    try:
        from distributed import Client, LocalCluster
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError('a Dask cluster needs Dask: pip install "levydiff[cluster]"') from error
    if address != "local":
        with Client(address):
            yield
        return
    count = joblib.cpu_count() if jobs < 1 else jobs
    with LocalCluster(n_workers=count, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster):
        yield
