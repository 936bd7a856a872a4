"""``levydiff reproduce``: make the runs of an experiment, write its table.

The results are written anew after every run: ``NAME.json`` holds all records, ``NAME.md`` the table with the command,
the versions, the seeds and the cost. Runs that ``NAME.json`` already holds are not made again, even without the cache.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
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
    command = f"levydiff reproduce {name}{' --quick' if quick else ''}{f' --runs {runs}' if runs else ''}"
    out.mkdir(parents=True, exist_ok=True)
    sheet = _Sheet(experiment, out / (f"{name}-quick" if quick else name), command, quick, wanted)
    known = sheet.known()
    others = [
        record for key, record in known.items() if key not in sheet.order
    ]  # of more seeds, say: never thrown away
    records: list[Record] = []
    for record in sweep(wanted, cache, known, jobs=jobs, dask=dask, progress=progress):
        records = sorted([*records, record], key=lambda record: sheet.order[record["key"]])
        sheet.write(records, others)
    paths = [sheet.file(".json"), sheet.file(".md")]
    if experiment.pictures is not None:
        paths += experiment.pictures(records, cache / "networks", sheet.stem)
    return {"table": sheet.file(".md").read_text(), "files": [str(path) for path in paths]}


@dataclass(frozen=True)
class _Sheet:
    """The files of an experiment."""

    experiment: Experiment
    stem: Path
    command: str
    quick: bool
    wanted: Sequence[Run]

    @cached_property
    def order(self) -> dict[str, int]:
        """The place of each run, by its key."""
        return {run.key: number for number, run in enumerate(self.wanted)}

    def file(self, suffix: str) -> Path:
        return self.stem.with_name(self.stem.name + suffix)

    def known(self) -> dict[str, Record]:
        """The records of an earlier sweep."""
        path = self.file(".json")
        return {record["key"]: record for record in json.loads(path.read_text())["runs"]} if path.exists() else {}

    def write(self, records: Sequence[Record], others: Sequence[Record]) -> None:
        """The table of the records; ``others`` are kept with them, but not in the table."""
        seconds = sum(part for record in records for part in record["seconds"].values())
        versions = {"python": platform.python_version(), "levydiff": __version__}
        versions |= {package: version(package) for package in PACKAGES}
        head = {"title": self.experiment.title, "command": self.command, "versions": versions}
        head |= {"core_seconds": round(seconds)}
        rows = ",\n".join(json.dumps(record) for record in (*records, *others))  # one run a line: a change is one line
        with atomic_file(self.file(".json")) as path:
            path.write_text(json.dumps(head, indent=1)[:-2] + f',\n "runs": [\n{rows}\n]}}\n')
        seeds = sorted({record["run"]["seed"] for record in records})
        cost = f"{len(records)} of {len(self.order)} runs, seeds {seeds[0]} to {seeds[-1]}, {seconds / 3600:.1f} hours"
        words = "A budget of seconds a run: this shows that everything works, not how well."
        parts = [
            f"# {self.experiment.title}" + (", in small" if self.quick else ""),
            f"`{self.command}`: {cost} of one core.",
            self.experiment.table(records),
            words if self.quick else self.experiment.findings.strip(),
            "Mean ± standard deviation over seeds. Versions: " + ", ".join(map(" ".join, versions.items())) + ".",
        ]
        with atomic_file(self.file(".md")) as path:
            path.write_text("\n\n".join(part for part in parts if part) + "\n")
