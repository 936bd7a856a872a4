"""Pictures of Table 3: samples of every method, and the Fréchet distance against the number of steps."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

import torch

from ..images import save_grid
from ..plot import new_figure, save_figure
from .image_run import ImageRun
from .report import scores
from .sweep import Record
from .trial import Draw, cached_samples

#: Samples of each method in the grid.
SHOWN = 12


def pictures(records: Sequence[Record], networks: Path, stem: Path) -> list[Path]:
    """``…-samples.png`` from the networks that are in the cache, and ``…-steps.png``."""
    paths = [_steps(records, stem.with_name(stem.name + "-steps.png"))]
    rows, titles = [], []
    for record in records:
        run = ImageRun.from_record(record["run"])
        draw = _shown(run)
        samples = cached_samples(run, draw, networks, SHOWN)
        if samples is not None:
            rows.append(samples)
            titles += [f"{run.label}, alpha = {run.alpha:g}: {draw.method} {draw.steps}", *[""] * (SHOWN - 1)]
    if rows:
        grid = stem.with_name(stem.name + "-samples.png")
        paths.append(save_grid(grid, torch.cat(rows), columns=SHOWN, titles=titles))
    return paths


def _shown(run: ImageRun) -> Draw:
    """The deterministic sampler with most steps."""
    few = [draw for draw in run.draws if draw.method in ("dlim", "ddim", "lim-ode") and not draw.clipping]
    return max(few, key=lambda draw: draw.steps)


def _steps(records: Sequence[Record], path: Path) -> Path:
    figure, (ax,) = new_figure(1, width=6.5)
    from matplotlib.ticker import LogLocator, ScalarFormatter  # new_figure has said so if it is missing

    for number, record in enumerate(_first_of_each(records)):
        run = ImageRun.from_record(record["run"])
        few = [d for d in run.draws if d.method == _shown(run).method and not d.clipping]
        cells = [scores(records, draw.name, "frechet", label=run.label, alpha=run.alpha) for draw in few]
        style = {1.5: ":", 1.7: "-"}.get(run.alpha, "--")
        label = f"{run.label}: {_shown(run).method}, α = {run.alpha:g}"
        means = [statistics.fmean(cell) for cell in cells]  # a run that failed leaves a gap
        ax.plot([d.steps for d in few], means, style, marker="o", ms=4, color=_color(run.label, number), label=label)
    ax.set(xscale="log", yscale="log", xlabel="deterministic steps", ylabel="Fréchet distance of features")
    steps = sorted(
        {d["steps"] for r in records for d in r["run"]["draws"] if d["method"] in ("dlim", "ddim", "lim-ode")}
    )
    ax.set_xticks(steps, [str(n) for n in steps])
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_major_formatter(ScalarFormatter())
    ax.minorticks_off()
    ax.grid(alpha=0.3)
    ax.legend(fontsize=8, handlelength=4, markerscale=0.7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return save_figure(figure, path, dpi=130)


def _first_of_each(records: Sequence[Record]) -> list[Record]:
    """One record of each label and α."""
    return list({(record["run"]["label"], record["run"]["alpha"]): record for record in reversed(records)}.values())[
        ::-1
    ]


def _color(label: str, number: int) -> str:
    named = {"DLPM": "C0", "LIM": "C1", "DDPM": "black", "ours": "C2"}
    return named.get(label, f"C{3 + number % 6}")
