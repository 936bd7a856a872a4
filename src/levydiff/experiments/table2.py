"""Table 2 of the paper: nine Gaussians of very uneven weights, by the F1 of precision and recall.

    levydiff reproduce table2

Cost: 13 trainings a seed, two to three minutes of one core each, 16 shorter ones, and 8 of the networks measured again.
DLPM_5 evaluates its network 25 times for each data point and costs about nine times as much; it is made at three values
of α with the first two seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from . import paper
from .experiment import Experiment, small
from .report import markdown, mean_and_spread, scores
from .run import CLUSTERS, Run
from .sweep import Record

CAPTION = """
The paper's protocol on nine Gaussians, α of the noise across. F1 of precision and recall (Sajjadi et al., 2018) with
the published settings: 25000 + 25000 points, k-means with 100 clusters, mean of 10 repeats; higher is better.
"Against DLPM": Welch's t-test. "Apart": our mean minus the paper's (30 runs), in standard errors of the difference.
"""

#: Mean and standard deviation over 30 runs.
PUBLISHED = {
    "DLPM": ((0.933, 0.018), (0.923, 0.005), (0.933, 0.028), (0.923, 0.024), (0.907, 0.034), (0.862, 0.028)),
    "DLPM_5": ((0.944, 0.013), (0.943, 0.021), (0.943, 0.010), (0.941, 0.014), (0.928, 0.016), None),
    "LIM": ((0.842, 0.039), (0.850, 0.046), (0.868, 0.034), (0.874, 0.030), (0.884, 0.017), (0.874, 0.027)),
    "DDPM": (None, None, None, None, None, (0.867, 0.029)),
}


def runs(seeds: Sequence[int]) -> list[Run]:
    costly = [paper.dlpm_5(paper.GRID, "f1", alpha, seed) for seed in seeds[:2] for alpha in (1.5, 1.7, 1.9)]
    cells = paper.main_cells(paper.GRID, "f1", paper.ALPHAS, seeds)
    return cells + paper.shorter(paper.GRID, "f1", seeds[:2]) + by_clusters(seeds[:2]) + costly


def by_clusters(seeds: Sequence[int]) -> list[Run]:
    """Does the score depend on how it is measured? Some networks again, from two starts, with other clusters."""
    made = []
    for run in (run for seed in seeds for run in paper.compared(paper.GRID, "f1 by clusters", seed)):
        draws = (run.draws[0], replace(run.draws[0], end=None if run.draws[0].end else 0.99))
        made.append(replace(run, label=f"{run.label}, α = {run.alpha}", draws=draws))
    return made


def quick(seeds: Sequence[int]) -> list[Run]:
    costly = [paper.dlpm_5(paper.GRID, "f1", alpha, seed) for seed in seeds for alpha in (1.5, 1.7)]
    return [small(run) for run in paper.main_cells(paper.GRID, "f1", (1.5, 1.7, 2.0), seeds) + costly]


def table(records: Sequence[Record]) -> str:
    measured = [record for record in records if record["run"]["metric"] == "f1 by clusters"]
    main = paper.table([record for record in records if record not in measured], "f1", PUBLISHED, 30)
    if not measured:
        return main
    return main + "\n\nThe same networks by another start and other numbers of clusters:\n\n" + _by_clusters(measured)


def _by_clusters(records: Sequence[Record]) -> str:
    rows = []
    for run in by_clusters([0]):
        for draw in sorted(run.draws, key=lambda draw: draw.end is None):
            cells = [scores(records, draw.name, f"f1 of {k} clusters", label=run.label) for k in CLUSTERS]
            rows.append([run.label, f"{draw.end or 0.9946}", *map(mean_and_spread, cells)])
    return markdown(["", "from t", *(f"{k} clusters" for k in CLUSTERS)], rows)


FINDINGS = """
**What we found** (five seeds; DLPM_5 two). DLPM scores 0.94 to 0.95 at every α: 1.6 to 4.2 standard errors above the
paper for α < 2, far above it at α = 2, and so are DDPM and, from α = 1.6 on, LIM. With that the paper's orderings go: α
< 2 is no better than α = 2, DDPM is as good as DLPM, and LIM is below DLPM at α = 1.5, and perhaps 1.6, only. The
median of means does what the paper says of it: DLPM_5 is above DLPM at each α it was made for, by 0.02 to 0.04 on the
two seeds that have both, and more than two standard errors above the paper's. A training costs nine times as much: 22
to 30 minutes of one core on a machine that had other work, against two to three, five at most but for one.

*Why.* The length of training is a part of it (second table, two seeds). After a tenth of the steps DLPM at α = 1.7 is
nearly at its final score, while LIM and DDPM are about where the paper has them, below DLPM as there; they learn more
slowly, and catch up. Whether it is the noise that is fast or the unsquared loss two seeds do not tell: DLPM at α = 2
lies between. How the score is measured does not explain it (third table, two seeds): the start of the chain moves F1 in
the third digit, and more clusters lower all scores, but DDPM stays the best of the four. DLPM and DDPM sample from t =
0.99, as the published code does, at times up to 0.005 beside those they were trained at.
"""

EXPERIMENT = Experiment("Table 2: F1 on nine Gaussians", CAPTION, runs, quick, table, findings=FINDINGS)
