"""Table 3 of the paper: images, by the Fréchet distance of features and by precision and recall.

    levydiff reproduce table3 --dataset mnist --budget cpu

``--dataset``: ``mnist``; ``mnist_lt``, a long-tailed part of it, for the recall of rare classes; ``cifar10_lt``.
``--budget cpu``: a small U-Net, some ten minutes of one core for each training (DLPM_5: two hours), 1000 samples.
``--budget paper``: the paper's U-Net, steps and samples, for GPUs. The methods, losses and samplers are the same.

Pictures and findings are in :mod:`.table3_pictures` and :mod:`.table3_findings`.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

from .experiment import Experiment
from .image_run import ImageRun, score_of_images
from .report import markdown, mean_and_spread, scores
from .sweep import Record
from .table3_findings import FINDINGS
from .table3_pictures import pictures
from .trial import Draw

ALPHAS = (1.5, 1.7, 2.0)

#: Millions of weights.
UNET_SIZES = {"unet": 0.4, "paper-unet": 38}

#: Steps of the deterministic samplers; the table shows the last, the figure all.
FEW = (5, 10, 25)


@dataclass(frozen=True)
class Method:
    """A row's training: its loss, and what differs from the paper's plain one."""

    label: str
    loss: str
    options: Mapping[str, Any] = field(default_factory=dict)


DLPM = Method("DLPM", "one-variable")
DLPM_5 = Method("DLPM_5", "one-variable", {"groups": 5})
INDEPENDENT = Method("DLPM, independent noise", "one-variable", {"isotropic": False})
LIM = Method("LIM", "lim")
DDPM = Method("DDPM", "ddpm")
OURS = Method("ours", "self-weighted", {"preconditioning": "bounded"})
STABLE = Method("stable preconditioning", "self-weighted", {"preconditioning": "stable"})

#: In the order of making, so that a sweep that is stopped has the rows that matter most.
PLAN = (
    (OURS, 1.7),
    (DDPM, 2.0),
    (DLPM, 1.7),
    (LIM, 1.7),
    (OURS, 2.0),
    (DLPM, 1.5),
    (LIM, 1.5),
    (OURS, 1.5),
    (DLPM, 2.0),
    (LIM, 2.0),
    (STABLE, 1.7),
    (INDEPENDENT, 1.7),
    (DLPM_5, 1.7),
)

#: For the recall of rare classes.
SHORT_PLAN = ((OURS, 1.7), (DDPM, 2.0), (DLPM, 1.7), (OURS, 2.0))


@dataclass(frozen=True)
class Setting:
    """A data set at a budget.

    Arguments:
        options: Of every training.
        steps: T of the stochastic samplers.
        published: The paper's FID, by row, at the α of :data:`ALPHAS`.
        plan: Which methods at which α, in the order of making.
    """

    options: Mapping[str, Any]
    steps: int
    published: Mapping[str, tuple[float | None, ...]]
    plan: Sequence[tuple[Method, float]]


_PAPER = {"network": "paper-unet", "decay": "step", "features": "inception", "evaluated": 5000}
_MNIST = {
    "DLPM": (5.39, 2.94, 3.63),
    "DLPM_5": (3.80, 3.03, None),
    "LIM": (14.37, 11.54, 11.69),
    "DDPM": (None, None, 3.43),
    "DLIM": (3.38, 2.81, 5.18),
    "LIM-ODE": (49.63, 78.59, 29.04),
    "DDIM": (None, None, 5.16),
}
_CIFAR10_LT = {
    "DLPM": (16.10, 18.00, 21.07),
    "LIM": (75.38, 35.15, 21.56),
    "DDPM": (None, None, 19.05),
    "DLIM": (20.69, 20.77, 23.99),
    "DDIM": (None, None, 23.44),
}
_CIFAR_OPTIONS = {"data": "cifar10_lt", "features": "efficientnet", "held_out": False, "flips": True}

SETTINGS = {
    ("mnist", "cpu"): Setting({"data": "mnist", "features": "classifier"}, 100, _MNIST, PLAN),
    ("mnist_lt", "cpu"): Setting({"data": "mnist", "features": "classifier", "imbalance": 100.0}, 100, {}, SHORT_PLAN),
    ("cifar10_lt", "cpu"): Setting(_CIFAR_OPTIONS, 100, _CIFAR10_LT, PLAN),
    ("mnist", "paper"): Setting(
        {"data": "mnist", "steps": 120_000, "batch_size": 256, "rate": 1e-3, "ema": 0.99} | _PAPER, 1000, _MNIST, PLAN
    ),
    ("mnist_lt", "paper"): Setting(
        {"data": "mnist", "imbalance": 100.0, "steps": 120_000, "batch_size": 256, "rate": 1e-3, "ema": 0.99} | _PAPER,
        1000,
        {},
        SHORT_PLAN,
    ),
    ("cifar10_lt", "paper"): Setting(
        _CIFAR_OPTIONS
        | {"steps": 400_000, "batch_size": 100, "rate": 2e-4, "decay_every": 1000, "ema": 0.9999}
        | _PAPER,
        4000,
        _CIFAR10_LT,
        PLAN,
    ),
}


def draws(method: Method, steps: int) -> tuple[Draw, ...]:
    """How the networks of a method are sampled: T stochastic steps, and few deterministic ones."""
    if method is LIM:
        few = [Draw("lim-ode", n) for n in FEW] + [Draw("lim-ode", FEW[-1], clipping=True)]
        return (Draw("lim", steps), Draw("lim", steps, clipping=True), *few)
    if method is DDPM:
        return (Draw("ddpm", steps), *(Draw("ddim", n) for n in FEW))
    ours = method in (OURS, STABLE)
    few = [Draw("dlim", n, 2, "quadratic") if ours else Draw("dlim", n) for n in FEW]
    return (Draw("dlpm", steps), *few)


def runs(setting: Setting, seeds: Sequence[int]) -> list[ImageRun]:
    """All trainings of a setting, seed by seed."""
    made = []
    for seed in seeds:
        for method, alpha in setting.plan:
            options = {**setting.options, **method.options}
            if method in (DLPM, DLPM_5, INDEPENDENT, DDPM) and options.get("network") == "paper-unet":
                options["grid"] = setting.steps  # the paper trains on the grid it samples on
            how = draws(method, setting.steps)
            made.append(ImageRun(label=method.label, alpha=alpha, loss=method.loss, draws=how, seed=seed, **options))
    return made


def quick(setting: Setting, seeds: Sequence[int]) -> list[ImageRun]:
    """The same with trainings of a few steps: everything works, nothing is learnt."""
    few: dict[str, Any] = {"steps": 20, "batch_size": 32, "evaluated": 100, "network": "unet", "grid": 0}
    short = [replace(run, **few) for run in runs(setting, seeds) if run.label != "DLPM_5"]
    return [
        replace(run, draws=tuple(dict.fromkeys(replace(draw, steps=min(draw.steps, 5)) for draw in run.draws)))
        for run in short
    ]


#: The rows of the table: name, method, and the sampler as the draw of T steps or of the few.
ROWS: tuple[tuple[str, Method, str], ...] = (
    ("DLPM", DLPM, "dlpm {T}"),
    ("DLPM_5", DLPM_5, "dlpm {T}"),
    ("DLPM, independent noise", INDEPENDENT, "dlpm {T}"),
    ("LIM", LIM, "lim {T}"),
    ("LIM, clipped", LIM, "lim {T} clipped"),
    ("DDPM", DDPM, "ddpm {T}"),
    ("ours, stochastic", OURS, "dlpm {T}"),
    ("stable preconditioning, stochastic", STABLE, "dlpm {T}"),
    ("DLIM", DLPM, "dlim {n}"),
    ("DLIM of DLPM_5", DLPM_5, "dlim {n}"),
    ("DLIM, independent noise", INDEPENDENT, "dlim {n}"),
    ("LIM-ODE", LIM, "lim-ode {n}"),
    ("LIM-ODE, clipped", LIM, "lim-ode {n} clipped"),
    ("DDIM", DDPM, "ddim {n}"),
    ("ours", OURS, "dlim2 {n} quadratic"),
    ("stable preconditioning", STABLE, "dlim2 {n} quadratic"),
)


def table(setting: Setting, records: Sequence[Record]) -> str:
    """The Fréchet distance with the paper's beside it; precision and recall; recall of each class."""
    steps = max((draw["steps"] for record in records for draw in record["run"]["draws"]), default=setting.steps)
    n = min(steps, FEW[-1])
    distance, balls = [], []
    by_class: dict[str, list[list[str]]] = {"class_share": [], "class_recall": []}
    for name, method, draw in ROWS:
        key = draw.format(T=steps, n=n)
        count = steps if "{T}" in draw else n
        cells = {
            metric: [scores(records, key, metric, label=method.label, alpha=alpha) for alpha in ALPHAS]
            for metric in ("frechet", "precision", "recall", "density")
        }
        if not any(cells["frechet"]):
            continue
        published = [f"{x:g}" if x is not None else "" for x in setting.published.get(name, (None,) * len(ALPHAS))]
        shown = [mean_and_spread(cell, 2) for cell in cells["frechet"]]
        distance.append([name, str(count), *shown, " / ".join(x or "–" for x in published) if any(published) else ""])
        pairs = zip(cells["precision"], cells["recall"], cells["density"], strict=True)
        balls.append([name, *(" / ".join(_mean(cell) for cell in three) if three[0] else "–" for three in pairs)])
        for metric, rows in by_class.items():
            rows += _class_rows(records, name, method, key, metric)
    alphas = [f"α = {alpha}" for alpha in ALPHAS]
    floor = _floor(ImageRun.from_record(records[0]["run"]))
    if floor is not None:
        distance.append([f"training images: {floor['frechet']:.2f}", *[""] * (len(ALPHAS) + 2)])
        three = " / ".join(f"{floor[metric]:.2f}" for metric in ("precision", "recall", "density"))
        balls.append([f"training images: {three}", *[""] * len(ALPHAS)])
    parts = [
        "Fréchet distance, lower is better:",
        markdown(["", "steps", *alphas, "paper's FID"], distance),
        "Precision / recall / density by 5 nearest neighbours, higher is better:",
        markdown(["", *alphas], balls),
    ]
    if floor is not None and "class_share" in floor and by_class["class_share"]:
        by_class["class_share"].append(
            ["training images", "", *(f"{100 * share:.1f}" for share in floor["class_share"])]
        )
    for metric, rows in by_class.items():
        if rows:
            names = [str(k) for k in range(len(rows[0]) - 2)]
            parts += [_class_title(records, metric), markdown(["", "α", *names], rows)]
    good = [result for record in records for result in record["results"].values() if "failed" not in result]
    named = sorted({f"Features: {result['features']}. Reference: {result['reference']}." for result in good})
    run = ImageRun.from_record(records[0]["run"])
    budget = (
        f"Every row: {run.network} ({UNET_SIZES[run.network]} million weights), {run.steps} steps of {run.batch_size} "
        f"images, Adam at {run.rate:g}, average of the weights {run.ema:g}, {run.evaluated} samples."
    )
    return "\n\n".join([*parts, budget, *named])


def _mean(cell: list[float]) -> str:
    """The mean over the seeds that did not fail."""
    good = [score for score in cell if not math.isnan(score)]
    return f"{statistics.fmean(good):.2f}" if good else "failed"


def _class_title(records: Sequence[Record], metric: str) -> str:
    if metric == "class_recall":
        return "Recall of each class:"
    seeds = len({record["run"]["seed"] for record in records})
    rare, common = (100 * math.sqrt(p * (1 - p) / (seeds * records[0]["run"]["evaluated"])) for p in (0.004, 0.1))
    errors = f"standard error {rare:.1f} at 0.4 %, {common:.1f} at 10 %"
    return f"Samples that the classifier takes for each digit, in % ({errors}):"


def _class_rows(records: Sequence[Record], name: str, method: Method, key: str, metric: str) -> list[list[str]]:
    """Rows of a metric by class, of long-tailed data."""
    rows = []
    for alpha in ALPHAS:
        chosen = [r for r in records if r["run"]["imbalance"] and metric in r["results"].get(key, {})]
        kept: list[Any] = list(scores(chosen, key, metric, label=method.label, alpha=alpha))
        if kept:
            means = [statistics.fmean(numbers[k] for numbers in kept) for k in range(len(kept[0]))]
            shown = [f"{100 * mean:.1f}" if metric == "class_share" else f"{mean:.2f}" for mean in means]
            rows.append([name, f"{alpha:g}", *shown])
    return rows


@cache
def _floor(run: ImageRun) -> dict[str, Any] | None:
    """The scores of training images: what to compare with. None where images or features are not to be had."""
    try:
        return score_of_images(run)
    except (OSError, ImportError):
        return None


def experiment(dataset: str = "mnist", budget: str = "cpu") -> Experiment:
    """The experiment on a data set at a budget."""
    if (dataset, budget) not in SETTINGS:
        names = ", ".join(dict.fromkeys(name for name, _ in SETTINGS))
        raise ValueError(f"dataset must be one of {names}, and budget cpu or paper, got {dataset} and {budget}")
    setting = SETTINGS[dataset, budget]
    caption = (
        "All methods with one network and one budget (below). The paper's numbers are FID of Inception features at its "
        "own budget: compare orders, not values."
    )
    return Experiment(
        f"Table 3: images, {dataset}" + (", at the paper's budget" if budget == "paper" else ""),
        caption,
        partial(runs, setting),
        partial(quick, setting),
        partial(table, setting),
        pictures,
        FINDINGS.get((dataset, budget), ""),
        seeds=1,
        quick_seeds=1,
    )
