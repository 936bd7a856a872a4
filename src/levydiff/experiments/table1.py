"""Table 1 of the paper: the tail of two-dimensional stable data (α = 1.7, scale 0.05), by MSLE(0.95).

    levydiff reproduce table1

The MSLE is the mean over the tail (the integral divided by 0.05), of the first coordinate: research on the published
code showed that this is what the paper prints. Cost: 13 trainings a seed, two to three minutes of one core each.
"""

from __future__ import annotations

from collections.abc import Sequence

from . import paper
from .experiment import Experiment, small
from .report import paper_table
from .run import Run
from .sweep import Record

#: Mean and standard deviation over 20 runs.
PUBLISHED = {
    "DLPM": ((0.160, 0.128), (0.081, 0.078), (0.071, 0.028), (0.099, 0.044), (0.132, 0.101), (0.798, 0.601)),
    "DDPM": (None, None, None, None, None, (0.528, 0.400)),
    "LIM": ((0.743, 0.290), (0.497, 0.311), (0.267, 0.077), (0.653, 0.413), (2.444, 1.067), (1.239, 0.240)),
}


def runs(seeds: Sequence[int]) -> list[Run]:
    return paper.main_cells(paper.STABLE, "msle", paper.ALPHAS, seeds)


def quick(seeds: Sequence[int]) -> list[Run]:
    return [small(run) for run in paper.main_cells(paper.STABLE, "msle", (1.5, 1.7, 2.0), seeds)]


def table(records: Sequence[Record]) -> str:
    alphas = sorted({record["run"]["alpha"] for record in records})
    columns = [paper.ALPHAS.index(alpha) for alpha in alphas]
    published = {method: [numbers[i] for i in columns] for method, numbers in PUBLISHED.items()}
    return paper_table(records, "msle", alphas, published, 20, lambda method, alpha: {"label": method, "alpha": alpha})


EXPERIMENT = Experiment("Table 1: MSLE on stable data", 5, runs, table, quick)
