"""What an experiment is: a list of runs, and how to read them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from .run import Run
from .sweep import Record
from .trial import Trial


@dataclass(frozen=True)
class Experiment:
    """A table or a figure.

    Arguments:
        title: One line.
        caption: The protocol, and how to read the table; Markdown.
        runs: From the seeds to the runs.
        quick: The runs of a small version that takes a minute or two, seeds given.
        table: From the records to a Markdown table (or several), whatever runs are there.
        pictures: Draws pictures from the records; gets the folder of the trained networks and the stem of the files,
            returns the paths.
        findings: What the table shows, in words; Markdown.
        seeds: How many seeds by default.
        quick_seeds: How many in the small version.
    """

    title: str
    caption: str
    runs: Callable[[Sequence[int]], Sequence[Trial]]
    quick: Callable[[Sequence[int]], Sequence[Trial]]
    table: Callable[[Sequence[Record]], str]
    pictures: Callable[[Sequence[Record], Path, Path], list[Path]] | None = None
    findings: str = ""
    seeds: int = 5
    quick_seeds: int = 2


def small(run: Run) -> Run:
    """The same run at a budget of seconds: its numbers show that everything works, not how well."""
    return replace(run, steps=500, batch_size=256, points=8_000, evaluated=5_000)
