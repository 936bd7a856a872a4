"""Many runs, on all cores, none of them twice.

Each :class:`~levydiff.experiments.run.Run` is a job of its own through ``joblib``, on one thread. Its record is
written to the cache, whole or not at all, by the worker that made it; so a sweep can be killed at any moment and,
started again, makes only the runs that are missing. A training that was under way goes on from its last checkpoint.

On a cluster: ``joblib`` has backends for Dask and Ray. ``dask`` below is the address of a Dask scheduler (the workers
must see the same cache folder), or ``"local"`` for a cluster of as many workers as jobs on this machine.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import joblib
from tqdm.auto import tqdm

from ..files import atomic_file
from .run import Run, execute, one_thread

Record = Mapping[str, Any]


def sweep(
    runs: Sequence[Run],
    cache: Path,
    known: Mapping[str, Record] | None = None,
    *,
    jobs: int = -1,
    dask: str | None = None,
    progress: bool = True,
) -> Iterator[Record]:
    """The records of the runs, each as soon as it is there.

    Arguments:
        runs: What to make.
        cache: A folder for records and trained networks.
        known: Records of runs that are already made, by their keys, besides those in the cache.
        jobs: How many runs at a time; as many as there are cores by default.
        dask: Where to run them instead: the address of a Dask scheduler, or ``"local"``.
        progress: Show a progress bar over the runs.
    """
    cache.mkdir(parents=True, exist_ok=True)
    for name in ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"):
        # For the workers: else glibc returns the memory of each training step and fetches it anew, a tenth of the time.
        os.environ.setdefault(name, str(1 << 30))
    # A change of the labels does not change a result, so the label is always the one asked for now.
    made = {run.key: record for run in runs if (record := _read(run, cache, known or {})) is not None}
    missing = list({run.key: run for run in runs if run.key not in made}.values())
    bar = tqdm(total=len(made) + len(missing), initial=len(made), desc="runs", unit="run", disable=not progress)
    with bar, _backend(dask, jobs):
        yield from made.values()
        work = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)
        for record in work(joblib.delayed(_make)(run, cache, os.getpid()) for run in missing):
            bar.update()
            yield record


def _read(run: Run, cache: Path, known: Mapping[str, Record]) -> Record | None:
    path = cache / f"{run.key}.json"
    record = json.loads(path.read_text()) if path.exists() else known.get(run.key)
    return None if record is None else {**record, "run": run.to_record()}


def _make(run: Run, cache: Path, sweeper: int) -> Record:
    """One run in a worker of the process ``sweeper``."""
    one_thread()
    if os.getppid() == sweeper:
        threading.Thread(target=_die_with, args=(sweeper,), daemon=True).start()
    record = execute(run, cache / "networks")
    with atomic_file(cache / f"{run.key}.json") as path:
        path.write_text(json.dumps(record, indent=1) + "\n")
    return record


def _die_with(parent: int) -> None:
    """End this process when its parent is gone: a sweep that was killed must not go on in its workers."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


@contextmanager
def _backend(dask: str | None, jobs: int) -> Iterator[None]:
    """joblib's own processes, or a Dask cluster."""
    if dask is None:
        yield
        return
    try:
        from distributed import Client, LocalCluster
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError('a Dask cluster needs Dask: pip install "dask[distributed]"') from error
    count = joblib.cpu_count() if jobs < 1 else jobs
    cluster = LocalCluster(n_workers=count, threads_per_worker=1, dashboard_address=None) if dask == "local" else dask
    with Client(cluster), joblib.parallel_config(backend="dask"):
        yield
