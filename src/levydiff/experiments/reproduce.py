"""``levydiff reproduce``: make the runs of an experiment, write its table.

The results are written anew after every run: ``NAME.json`` holds all records, ``NAME.md`` the table with the command,
the versions, the seeds and the cost. Runs that ``NAME.json`` already holds are not made again, even without the cache.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from .. import __version__
from ..checks import check_count
from ..files import atomic_file
from . import load
from .experiment import Experiment
from .run import Run
from .sweep import Record, sweep

PACKAGES = ("torch", "numpy", "scipy", "scikit-learn")


def reproduce(
    name: str,
    *,
    runs: int | None = None,
    jobs: int = -1,
    quick: bool = False,
    dask: str | None = None,
    out: Path = Path("experiments/results"),
    cache: Path = Path("experiments/cache"),
    progress: bool = True,
) -> dict[str, Any]:
    """Make an experiment.

    Arguments:
        name: One of :data:`levydiff.experiments.NAMES`.
        runs: How many seeds; each experiment has its own default.
        jobs: How many runs at a time, each on one thread; as many as there are cores by default.
        quick: A small version, for a look; it is written to ``NAME-quick``.
        dask: The address of a Dask scheduler, or ``"local"``; see :mod:`levydiff.experiments.sweep`.
        out: The folder for the results.
        cache: The folder for records and trained networks of single runs.
        progress: Show a progress bar.
    """
    experiment = load(name)
    if jobs != -1:
        check_count("jobs", jobs)
    seeds = range(check_count("runs", runs) if runs is not None else 2 if quick else experiment.seeds)
    wanted = experiment.quick(seeds) if quick else experiment.runs(seeds)
    stem = f"{name}-quick" if quick else name
    out.mkdir(parents=True, exist_ok=True)
    known = _known(out / f"{stem}.json")
    command = f"levydiff reproduce {name}{' --quick' if quick else ''}{f' --runs {runs}' if runs else ''}"
    records: list[Record] = []
    for record in sweep(wanted, cache, known, jobs=jobs, dask=dask, progress=progress):
        records.append(record)
        _write(out / stem, experiment, command, _in_order(records, wanted), len(wanted))
    paths = [out / f"{stem}.json", out / f"{stem}.md"]
    if experiment.pictures is not None:
        paths += experiment.pictures(_in_order(records, wanted), cache / "networks", out / stem)
    return {"table": (out / f"{stem}.md").read_text(), "files": [str(path) for path in paths]}


def _known(path: Path) -> dict[str, Record]:
    """The records of an earlier sweep."""
    return {record["key"]: record for record in json.loads(path.read_text())["runs"]} if path.exists() else {}


def _in_order(records: Sequence[Record], wanted: Sequence[Run]) -> list[Record]:
    order = {run.key: number for number, run in enumerate(wanted)}
    return sorted(records, key=lambda record: order[record["key"]])


def _write(stem: Path, experiment: Experiment, command: str, records: Sequence[Record], wanted: int) -> None:
    seconds = sum(part for record in records for part in record["seconds"].values())
    versions = {"python": platform.python_version(), "levydiff": __version__}
    versions |= {package: version(package) for package in PACKAGES}
    head = {"title": experiment.title, "command": command, "versions": versions, "core_seconds": round(seconds)}
    rows = ",\n".join(json.dumps(record) for record in records)  # one run a line, so that a change is one line
    with atomic_file(stem.with_suffix(".json")) as path:
        path.write_text(json.dumps(head, indent=1)[:-2] + f',\n "runs": [\n{rows}\n]}}\n')
    seeds = sorted({record["run"]["seed"] for record in records})
    cost = f"{len(records)} of {wanted} runs, seeds {seeds[0]} to {seeds[-1]}, {seconds / 3600:.1f} core hours"
    parts = [
        f"# {experiment.title}",
        f"`{command}`: {cost}, one thread a run.",
        experiment.table(records),
        experiment.findings.strip(),
        "Mean ± standard deviation over seeds. Versions: " + ", ".join(f"{k} {v}" for k, v in versions.items()) + ".",
    ]
    with atomic_file(stem.with_suffix(".md")) as path:
        path.write_text("\n\n".join(part for part in parts if part) + "\n")
