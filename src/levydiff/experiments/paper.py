"""The paper's protocol in two dimensions: its methods as runs.

32000 training points, batches of 1024, 10000 steps of Adam at 5e-3, T = 100 steps, the paper's network as it is
(no preconditioning, no average of the weights), data in their own units, 25000 samples against 25000 fresh points.
The discrete chains start from t = 0.99 = (T - 1)/T, as the published code's; LIM from its own 0.9946.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from .report import Cell, markdown, mean_and_spread, paper_rows, scores
from .run import Run
from .sweep import Record
from .trial import Draw

ALPHAS = (1.5, 1.6, 1.7, 1.8, 1.9, 2.0)

STABLE = "stable:alpha=1.7"
GRID = "grid"

#: Fewer steps of training than the paper's, for the table of how the methods come to their scores.
SHORTER = (1000, 2500)

#: How each method samples; the published code starts its chains at 0.99.
DRAWS = {
    "DLPM": Draw("dlpm", end=0.99),
    "DLPM_5": Draw("dlpm", end=0.99),
    "LIM": Draw("lim"),
    "DDPM": Draw("ddpm", end=0.99),
}


def dlpm(data: str, metric: str, alpha: float, seed: int) -> Run:
    """DLPM: the one-variable loss on a grid of 100 times, and the stochastic sampler."""
    return Run("DLPM", data, alpha, "one-variable", (DRAWS["DLPM"],), metric, seed)


def dlpm_5(data: str, metric: str, alpha: float, seed: int) -> Run:
    """DLPM_5: the same, with the median of 5 means of 5 draws for each point."""
    return replace(dlpm(data, metric, alpha, seed), label="DLPM_5", groups=5)


def lim(data: str, metric: str, alpha: float, seed: int) -> Run:
    """LIM: its smooth l1 loss over all times, and its stochastic sampler."""
    return Run("LIM", data, alpha, "lim", (DRAWS["LIM"],), metric, seed, grid=0)


def ddpm(data: str, metric: str, seed: int) -> Run:
    """DDPM, the Gaussian baseline: α = 2 and the squared loss."""
    return Run("DDPM", data, 2.0, "ddpm", (DRAWS["DDPM"],), metric, seed)


def main_cells(data: str, metric: str, alphas: Sequence[float], seeds: Sequence[int]) -> list[Run]:
    """DLPM and LIM at every α, and DDPM; seed by seed, so that a sweep that is stopped has whole tables."""
    runs = []
    for seed in seeds:
        runs += [make(data, metric, alpha, seed) for alpha in alphas for make in (dlpm, lim)]
        runs.append(ddpm(data, metric, seed))
    return runs


def compared(data: str, metric: str, seed: int) -> list[Run]:
    """The runs to repeat with shorter trainings: DLPM at α = 1.7 and 2, LIM at 1.7, DDPM."""
    heavy, gaussian = (dlpm(data, metric, alpha, seed) for alpha in (1.7, 2.0))
    return [heavy, gaussian, lim(data, metric, 1.7, seed), ddpm(data, metric, seed)]


def shorter(data: str, metric: str, seeds: Sequence[int]) -> list[Run]:
    """Those runs after fewer steps of training."""
    return [replace(run, steps=steps) for seed in seeds for steps in SHORTER for run in compared(data, metric, seed)]


def cells_of(records: Sequence[Record], metric: str) -> tuple[list[float], dict[str, list[Cell]]]:
    """The α of the records, and the scores of each method at each of them."""
    alphas = sorted({record["run"]["alpha"] for record in records})
    return alphas, {
        method: [scores(records, draw.name, metric, label=method, alpha=alpha) for alpha in alphas]
        for method, draw in DRAWS.items()
    }


def table(
    records: Sequence[Record],
    metric: str,
    published: Mapping[str, Sequence[tuple[float, float] | None]],
    published_runs: int,
    other_draws: Mapping[str, tuple[str, Draw]] | None = None,
) -> str:
    """Ours and the paper's, α across. Then, where there are any, shorter trainings.

    Arguments:
        records: Of the runs.
        metric: Which score.
        published: The paper's mean and standard deviation of each method, by α.
        published_runs: Over how many runs these are.
        other_draws: For some methods the title of another row, and what else to sample of the same networks for it.
    """
    lengths = sorted({record["run"]["steps"] for record in records})  # one, of few steps, in a quick table
    alphas, cells = cells_of([record for record in records if record["run"]["steps"] == lengths[-1]], metric)
    columns = [ALPHAS.index(alpha) for alpha in alphas]
    numbers = {method: [row[i] for i in columns] for method, row in published.items()}
    rows = paper_rows(cells, numbers, published_runs)
    for method, (title, draw) in (other_draws or {}).items():
        others = [scores(records, draw.name, metric, label=method, alpha=alpha) for alpha in alphas]
        place = [row[0] for row in rows].index(f"**{method}**") + 1
        rows.insert(place, [title, *map(mean_and_spread, others)])
    main = markdown(["", *(f"α = {alpha}" for alpha in alphas)], rows)
    if len(lengths) == 1:
        return main
    return main + "\n\nThe same after fewer steps of training:\n\n" + _table_by_length(records, metric, lengths)


def _table_by_length(records: Sequence[Record], metric: str, lengths: Sequence[int]) -> str:
    rows = []
    for run in compared(STABLE, metric, seed=0):
        where = {"label": run.label, "alpha": run.alpha}
        cells = [scores(records, run.draws[0].name, metric, **where, steps=steps) for steps in lengths]
        rows.append([f"{run.label}, α = {run.alpha}", *map(mean_and_spread, cells)])
    return markdown(["", *map(str, lengths)], rows)
