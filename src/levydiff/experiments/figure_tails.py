"""The paper's picture of tails: stable data (α = 1.7) by DLPM with α = 1.7 and with Gaussian noise, and by ours.

    levydiff reproduce figure-tails

The first two use the networks of Table 1: where these are in the cache nothing is trained for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ..cli.build import build_data
from ..plot import draw_points, draw_tails, new_figure, save_figure, share_frame, typical_size
from . import paper
from .experiment import Experiment, small
from .ours import BEST, winner
from .report import markdown, mean_and_spread, scores
from .run import FRESH, Run
from .sweep import Record
from .trial import cached_samples

ROWS = ("paper's DLPM, α = 1.7", "paper's DLPM, α = 2", "ours, α = 1.7")


def runs(seeds: Sequence[int]) -> list[Run]:
    made = []
    for seed in seeds:
        for alpha, label in ((1.7, ROWS[0]), (2.0, ROWS[1])):
            made.append(replace(paper.dlpm(paper.STABLE, "msle", alpha, seed), label=label))
        made.append(replace(winner(paper.STABLE, "msle", 1.7, seed), label=ROWS[2], draws=(BEST[0],)))
    return made


def quick(seeds: Sequence[int]) -> list[Run]:
    return [small(run) for run in runs(seeds)]


def table(records: Sequence[Record]) -> str:
    rows = [
        [
            label,
            *(mean_and_spread(scores(records, draw.name, metric, label=label)) for metric in ("msle", "tail_error")),
        ]
        for label, draw in zip(ROWS, (paper.DRAWS["DLPM"], paper.DRAWS["DLPM"], BEST[0]), strict=True)
    ]
    return markdown(["", "MSLE of the first coordinate", "tail error of ‖x‖"], rows)


def pictures(records: Sequence[Record], networks: Path, stem: Path) -> list[Path]:
    """Points and tails of the first seed."""
    first = {record["run"]["label"]: Run.from_record(record["run"]) for record in reversed(records)}
    run = next(iter(first.values()))
    sets = {"data": build_data(run.data, None, run.evaluated, run.seed + FRESH).values.float()}
    made = {label: cached_samples(first[label], first[label].draws[0], networks) for label in ROWS if label in first}
    sets |= {label: x for label, x in made.items() if x is not None}
    if len(sets) <= len(ROWS):  # the picture is of all, or stays as it was
        return []
    figure, axes = new_figure(len(sets) + 1, 3.6, 3.8, (*[1.0] * len(sets), 1.4))
    limit = 10.0 * typical_size(sets["data"])
    for ax, (label, x), color in zip(axes, sets.items(), ("black", "C0", "C3", "C2"), strict=False):
        draw_points(ax, x[:10_000], label, limit, color)
    share_frame(axes[:-1])
    draw_tails(axes[-1], sets, "How often is ‖x‖ larger than r?", ("C0", "C3", "C2"))
    axes[-1].legend(loc="upper right", fontsize=8)
    return [save_figure(figure, stem.with_suffix(".png"), dpi=100)]


CAPTION = """
Stable data (α = 1.7): DLPM in the paper's protocol with α = 1.7 and with Gaussian noise (α = 2), and ours (DLIM of
order 2, 100 steps). The picture shows the first seed.
"""

FINDINGS = """
**What we found** (five seeds). By the tail error, up to P = 0.001, the paper's DLPM with α = 1.7 is some three times
closer to the data than the same loss with Gaussian noise; DDPM, whose loss is squared, has 0.7 ± 0.3 (not shown:
`table1.json`). Beyond, a few samples of DLPM with α = 1.7 come out a thousand times and more too large, since the
bounded network cannot stop a start in the far tail (see `table1`). Ours follows the data to the end.
"""

EXPERIMENT = Experiment("Tails: α = 1.7 against Gaussian noise", CAPTION, runs, quick, table, pictures, FINDINGS)
