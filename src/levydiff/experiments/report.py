"""Records to tables: means over seeds, standard deviations, Welch's test, Markdown.

A *cell* of a table is a list of scores, one for each seed; a run that failed is a NaN in it, and is counted, not
forgotten.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from ..metrics import welch_t_test
from .sweep import Record

Cell = list[float]

#: How to read a cell, for captions.
LEGEND = "Mean ± standard deviation over seeds (how many)."


def scores(records: Sequence[Record], draw: str, metric: str, **where: Any) -> Cell:
    """The scores of one draw of the runs that match, in the order of their seeds.

    Example:
        >>> record = {"run": {"alpha": 1.7, "seed": 0}, "results": {"dlpm 100": {"f1": 0.9}}}
        >>> scores([record], "dlpm 100", "f1", alpha=1.7), scores([record], "dlpm 100", "f1", alpha=1.5)
        ([0.9], [])
    """
    chosen = [
        record
        for record in sorted(records, key=lambda record: record["run"]["seed"])
        if draw in record["results"] and all(record["run"][name] == value for name, value in where.items())
    ]
    results = [record["results"][draw] for record in chosen]
    return [math.nan if "failed" in result else result[metric] for result in results]


def _succeeded(cell: Cell) -> Cell:
    return [score for score in cell if not math.isnan(score)]


def _count(cell: Cell) -> str:
    good = len(_succeeded(cell))
    return f"({good})" if good == len(cell) else f"({good}, {len(cell) - good} failed)"


def mean_and_spread(cell: Cell, digits: int = 3) -> str:
    """Mean ± standard deviation over the seeds, and how many they are.

    Example:
        >>> mean_and_spread([0.9, 0.92]), mean_and_spread([0.9]), mean_and_spread([])
        ('0.910 ± 0.014 (2)', '0.900 (1)', '–')
        >>> mean_and_spread([0.9, float("nan"), 0.92])
        '0.910 ± 0.014 (2, 1 failed)'
    """
    if not cell:
        return "–"
    good = _succeeded(cell)
    if not good:
        return _count(cell)
    mean = f"{statistics.fmean(good):.{digits}f}"
    return f"{mean} ± {statistics.stdev(good):.{digits}f} {_count(cell)}" if len(good) > 1 else f"{mean} {_count(cell)}"


def median_and_quartiles(cell: Cell, digits: int = 3) -> str:
    """Median and quartiles over the seeds, and how many they are: for scores whose mean need not exist.

    Example:
        >>> median_and_quartiles([1.0, 2.0, 3.0, 4.0, 100.0], 1), median_and_quartiles([0.9])
        ('3.0 [2.0, 4.0] (5)', '0.900 (1)')
    """
    good = _succeeded(cell)
    if len(good) < 2:
        return mean_and_spread(cell, digits)
    low, median, high = (f"{q:.{digits}f}" for q in statistics.quantiles(good, n=4, method="inclusive"))
    return f"{median} [{low}, {high}] {_count(cell)}"


def p_value(cell: Cell, reference: Cell) -> str:
    """Welch's p against another cell; empty where there are not two seeds of each, or no spread at all."""
    good, other = _succeeded(cell), _succeeded(reference)
    if min(len(good), len(other)) < 2 or (len(set(good)) == 1 and len(set(other)) == 1):
        return ""
    return f"p = {welch_t_test(good, other).p:.1e}"


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table.

    Example:
        >>> print(markdown(["a", "b"], [["1", "2"]]))
        | a | b |
        |---|---|
        | 1 | 2 |
    """
    lines = ["| " + " | ".join(line) + " |" for line in (header, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(header), *lines[1:]])


def standard_errors_apart(cell: Cell, mean: float, spread: float, runs: int) -> str:
    """How many standard errors of the difference lie between our mean and a published one; empty below two seeds.

    Example:
        >>> standard_errors_apart([0.0, 2.0], mean=3.0, spread=4.0, runs=16)  # -2/√(2/2 + 16/16)
        '-1.4'
    """
    good = _succeeded(cell)
    if len(good) < 2:
        return ""
    error = math.sqrt(statistics.variance(good) / len(good) + spread**2 / runs)
    return f"{(statistics.fmean(good) - mean) / error:+.1f}"


def paper_rows(
    cells: Mapping[str, Sequence[Cell]],
    published: Mapping[str, Sequence[tuple[float, float] | None]],
    published_runs: int,
) -> list[list[str]]:
    """For each method a row of ours, Welch's p against DLPM, the paper's, and how far apart they are.

    Arguments:
        cells: The scores of each method, by column.
        published: The paper's mean and standard deviation, likewise.
        published_runs: Over how many runs these are.
    """
    rows = []
    for name, numbers in published.items():
        rows.append([f"**{name}**", *map(mean_and_spread, cells[name])])
        if name != "DLPM":
            rows.append(["against DLPM", *map(p_value, cells[name], cells["DLPM"])])
        rows.append(["paper", *("–" if n is None else f"{n[0]:.3f} ± {n[1]:.3f}" for n in numbers)])
        apart = [
            "" if n is None else standard_errors_apart(cell, *n, published_runs)
            for cell, n in zip(cells[name], numbers, strict=True)
        ]
        rows.append(["apart, in standard errors", *apart])
    return rows
