"""Records to tables: means over seeds, standard deviations, Welch's test, Markdown.

A *cell* of a table is a list of scores, one for each seed.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from ..metrics import welch_t_test
from .sweep import Record

Cell = list[float]


def scores(records: Sequence[Record], metric: str, **where: Any) -> Cell:
    """The scores of the first draw of the runs that match, in the order of their seeds.

    Example:
        >>> record = {"run": {"alpha": 1.7, "seed": 0}, "results": {"dlpm 100": {"f1": 0.9}}}
        >>> scores([record], "f1", alpha=1.7), scores([record], "f1", alpha=1.5)
        ([0.9], [])
    """
    return [next(iter(record["results"].values()))[metric] for record in _matching(records, where, metric)]


def scores_of_draw(records: Sequence[Record], draw: str, metric: str, **where: Any) -> Cell:
    """The scores of one draw of the runs that match."""
    return [record["results"][draw][metric] for record in _matching(records, where, metric, draw)]


def _matching(
    records: Sequence[Record], where: Mapping[str, Any], metric: str, draw: str | None = None
) -> list[Record]:
    def fits(record: Record) -> bool:
        results = record["results"]
        result = next(iter(results.values())) if draw is None else results.get(draw, {})
        return metric in result and all(record["run"][name] == value for name, value in where.items())

    return sorted(filter(fits, records), key=lambda record: record["run"]["seed"])


def mean_and_spread(cell: Cell, digits: int = 3) -> str:
    """Mean ± standard deviation over the seeds; the number of seeds where it is one.

    Example:
        >>> mean_and_spread([0.9, 0.92]), mean_and_spread([0.9]), mean_and_spread([])
        ('0.910 ± 0.014', '0.900 (1 seed)', '–')
    """
    if not cell:
        return "–"
    mean = f"{statistics.fmean(cell):.{digits}f}"
    return f"{mean} ± {statistics.stdev(cell):.{digits}f}" if len(cell) > 1 else f"{mean} (1 seed)"


def p_value(cell: Cell, reference: Cell) -> str:
    """Welch's p against another cell; empty where there are not two seeds of each, or no spread at all."""
    if min(len(cell), len(reference)) < 2 or math.isclose(statistics.pvariance([*cell, *reference]), 0.0):
        return ""
    return f"p = {welch_t_test(cell, reference).p:.1e}"


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


def standard_errors_apart(cell: Cell, mean: float, spread: float, runs: int) -> float:
    """How many standard errors of the difference lie between our mean and a published one."""
    own = statistics.variance(cell) / len(cell) if len(cell) > 1 else 0.0
    return (statistics.fmean(cell) - mean) / math.sqrt(own + spread**2 / runs)


def paper_rows(
    records: Sequence[Record],
    metric: str,
    alphas: Sequence[float],
    published: Mapping[str, Sequence[tuple[float, float] | None]],
    published_runs: int,
) -> list[list[str]]:
    """Rows of methods, columns of α as in the paper: ours, Welch's p against DLPM, the paper's, how far apart."""
    cells = {name: [scores(records, metric, label=name, alpha=alpha) for alpha in alphas] for name in published}
    rows = []
    for name, numbers in published.items():
        rows.append([f"**{name}**", *map(mean_and_spread, cells[name])])
        if name != "DLPM":
            rows.append(["against DLPM", *map(p_value, cells[name], cells["DLPM"])])
        rows.append(["paper", *("–" if n is None else f"{n[0]:.3f} ± {n[1]:.3f}" for n in numbers)])
        apart = [
            "" if n is None or len(cell) < 2 else f"{standard_errors_apart(cell, *n, published_runs):+.1f}"
            for cell, n in zip(cells[name], numbers, strict=True)
        ]
        rows.append(["apart, in standard errors", *apart])
    return rows
