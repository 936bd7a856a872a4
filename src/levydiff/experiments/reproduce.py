"""``levydiff reproduce``: make the runs of an experiment, write its table.

The results are written anew after every run: ``NAME.json`` holds all records, ``NAME.md`` the table with the command,
the versions, the seeds and the cost. Runs that ``NAME.json`` already holds are not made again, even without the cache.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import joblib
from filelock import FileLock

from ..checks import check_count
from ..files import atomic_file
from ..plot import new_figure
from . import load
from .experiment import Experiment
from .report import LEGEND
from .sweep import Record, finished, sweep
from .trial import Trial


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
    dataset: str | None = None,
    budget: str | None = None,
    data_dir: str | None = None,
) -> dict[str, Any]:
    """Make an experiment.

    Arguments:
        name: One of :data:`levydiff.experiments.NAMES`.
        runs: How many seeds; each experiment has its own default.
        jobs: How many runs at a time, each on one thread; -1 for as many as there are cores.
        quick: A small version, for a look; it is written to ``NAME-quick``.
        dask: The address of a Dask scheduler, or ``"local"``; see :mod:`levydiff.experiments.sweep`.
        out: The folder for the results.
        cache: The folder for records and trained networks of single runs.
        progress: Show a progress bar.
        dataset, budget: Of ``table3``: see :mod:`levydiff.experiments.table3`.
        data_dir: Where image data are, for this process and its workers; see :mod:`levydiff.sources`.

    Returns:
        The table, and the files that were written.
    """
    experiment = load(name, dataset, budget)
    if data_dir is not None:
        if name != "table3":
            raise ValueError(f"data_dir is of table3, got {data_dir} for {name}")
        if dask not in (None, "local"):
            raise ValueError(f"data_dir does not reach a cluster: set LEVYDIFF_DATA on its workers, got {data_dir}")
    chosen = [word for word in (dataset or ("mnist" if name == "table3" else None), budget) if word]
    stem = "-".join([name, *(word for word in chosen if word != "cpu"), *(["quick"] if quick else [])])
    if jobs != -1 and jobs < 1:
        raise ValueError(f"jobs must be at least 1, or -1 for as many as there are cores, got {jobs}")
    if experiment.pictures is not None:
        new_figure(1)  # without matplotlib, say so before hours of work
    seeds = range(
        check_count("runs", runs) if runs is not None else experiment.quick_seeds if quick else experiment.seeds
    )
    wanted = experiment.quick(seeds) if quick else experiment.runs(seeds)
    words = [f"--dataset {dataset}" if dataset else "", f"--budget {budget}" if budget else ""]
    words += ["--quick" if quick else "", f"--runs {runs}" if runs else ""]
    command = " ".join(["levydiff reproduce", name, *(word for word in words if word)])
    out.mkdir(parents=True, exist_ok=True)
    sheet = Sheet(experiment, out / stem, command, quick, wanted)
    with _data_folder(data_dir):
        known = sheet.read() | finished(wanted, cache)
        missing = [run for run in wanted if run.key not in known]
        if not missing:
            sheet.write(known, "")
        started, jobs_text = time.perf_counter(), str(joblib.cpu_count() if jobs < 1 else jobs)
        made = len({run.key for run in wanted} & set(known))
        for number, record in enumerate(sweep(missing, cache, jobs=jobs, dask=dask, progress=progress, made=made), 1):
            known[record["key"]] = record
            minutes = (time.perf_counter() - started) / 60
            sheet.write(known, f"Last: {number} runs in {minutes:.0f} minutes, {jobs_text} at a time.")
        paths = [sheet.file(".json"), sheet.file(".md")]
        if experiment.pictures is not None:
            paths += experiment.pictures(sheet.chosen(known), cache / "networks", sheet.stem)
        return {"table": sheet.file(".md").read_text(), "files": [str(path) for path in paths]}


@contextmanager
def _data_folder(path: str | None) -> Iterator[None]:
    """Look for image data there, in this process and the workers it starts, and afterwards where they were before."""
    before = os.environ.get("LEVYDIFF_DATA")
    if path is not None:
        os.environ["LEVYDIFF_DATA"] = path
    try:
        yield
    finally:
        if before is not None:
            os.environ["LEVYDIFF_DATA"] = before
        elif path is not None:
            del os.environ["LEVYDIFF_DATA"]


@dataclass(frozen=True)
class Sheet:
    """The two files of an experiment.

    Arguments:
        experiment: What they are of.
        stem: Their path, without the suffix.
        command: The command that makes them.
        quick: Whether they are of the small version.
        wanted: The runs of the table.
    """

    experiment: Experiment
    stem: Path
    command: str
    quick: bool
    wanted: Sequence[Trial]

    def file(self, suffix: str) -> Path:
        """The path with a suffix."""
        return self.stem.with_name(self.stem.name + suffix)

    def read(self) -> dict[str, Record]:
        """The records of an earlier sweep, by their keys."""
        path = self.file(".json")
        if not path.exists():
            return {}
        try:
            return {record["key"]: record for record in json.loads(path.read_text())["runs"]}
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path} must be a file of results, but cannot be read: {error}") from error

    def chosen(self, known: dict[str, Record]) -> list[Record]:
        """The records of the wanted runs that are there, in order, under the labels wanted now."""
        return [{**known[run.key], "run": run.to_record()} for run in self.wanted if run.key in known]

    def write(self, known: dict[str, Record], cost: str) -> None:
        """The table of the wanted runs; records of others (of more seeds, or of a sweep beside this one) are kept."""
        with FileLock(self.stem.with_name(f".{self.stem.name}.lock")):  # a sweep beside this one may write too
            self._write(self.read() | known, cost)

    def _write(self, known: dict[str, Record], cost: str) -> None:
        records = self.chosen(known)
        text = self._markdown(records, len(known) - len({record["key"] for record in records}), cost)
        wanted = {record["key"]: record for record in records}  # first, and under the labels of now
        order = wanted | {key: record for key, record in known.items() if key not in wanted}
        rows = ",\n".join(json.dumps(record) for record in order.values())  # one run a line: a change is one line
        head = {"title": self.experiment.title, "command": self.command}
        with atomic_file(self.file(".json")) as path:
            path.write_text(json.dumps(head, indent=1)[:-2] + f',\n "runs": [\n{rows}\n]}}\n')
        with atomic_file(self.file(".md")) as path:
            path.write_text(text)

    def _markdown(self, records: Sequence[Record], others: int, cost: str) -> str:
        hours = sum(part for record in records for part in record["seconds"].values()) / 3600
        seeds = sorted({record["run"]["seed"] for record in records})
        versions = sorted({f"{k} {v}" for record in records for k, v in record.get("versions", {}).items()})
        lines = [
            f"`{self.command}`: {len(records)} of {len(self.wanted)} runs, seeds {seeds[0]} to {seeds[-1]}, "
            f"{hours:.1f} hours of one core (networks found in the cache not counted).",
            cost,
            f"{others} runs of other settings are in `{self.file('.json').name}`." if others else "",
            f"Made with {', '.join(versions)}." if versions else "",
        ]
        parts = [
            f"# {self.experiment.title}" + (", in small" if self.quick else ""),
            self.experiment.caption.strip() + " " + LEGEND,
            "A budget of seconds a run: this shows that everything works, not how well." if self.quick else "",
            self.experiment.table(records),
            "" if self.quick else self.experiment.findings.strip(),
            " ".join(line for line in lines if line),
        ]
        return "\n\n".join(part for part in parts if part) + "\n"
