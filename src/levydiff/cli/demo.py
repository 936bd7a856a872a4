"""The demonstration: heavy-tailed against Gaussian noise on heavy-tailed data, in one table and one picture.

By default the data are the paper's first set, two-dimensional isotropic stable with α = 1.7; any other data set can be
given. All models see the same batches for the same number of steps:

- *DLPM*: α = 1.7, stable preconditioning, the norm loss on the rescaled residual, the stochastic sampler;
- *DLIM*: the same with the self-weighted loss, and 25 deterministic steps of second order;
- *Gaussian DDPM* as it is usually set up: α = 2, a plain network, the squared loss.

The tail error is the mean of |Δ log P(‖x‖ > r)| over quantiles of fresh data: the second column looks ten times
farther into the tail, where some 20 of the training points lie.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..denoise import Denoiser, StablePreconditioning
from ..files import atomic_file
from ..loss import DDPMLoss, Loss, OneVariableLoss, SelfWeightedLoss
from ..metrics import tail_error
from ..nn import PaperMLP, TailMLP
from ..plot import draw_points, draw_tails, new_figure, save_figure, share_frame, typical_size
from ..process import LevyProcess
from ..rates import CosineDecay
from ..sample import DDPM, DLIM, DLPM, Sampler
from ..scaling import Scaling, fit_scaling
from ..schedule import quadratic_time
from ..train import Trainer
from ..train_config import TrainConfig
from .build import DATA_SETS, build_data
from .config import DemoOptions

ALPHA = 1.7
RANGES = {"95-99.9 %": (0.95, 0.999), "99.9-99.99 %": (0.999, 0.9999)}


class Contestant(NamedTuple):
    """A model to train, and how to sample from it."""

    name: str
    denoiser: Denoiser
    loss: Loss
    sampler: Callable[[Denoiser], Sampler]


def demo(options: DemoOptions, quiet: bool = False) -> dict[str, Any] | None:
    """Train, compare, draw; prints the table unless ``quiet``, in which case it returns it."""
    started = time.perf_counter()
    if options.data.partition(":")[0] not in DATA_SETS:  # of a file there are no fresh draws to compare with
        raise ValueError(f"data must be one of {', '.join(DATA_SETS)} for the demo, got {options.data!r}")
    folder = Path(options.out)
    folder.mkdir(parents=True, exist_ok=True)
    data = build_data(options.data, None, options.train_points, options.seed).values
    fresh = build_data(options.data, None, 1_000_000, options.seed + 1).values  # what the tails are measured against
    rows = {"fresh draws of the data": build_data(options.data, None, options.points, options.seed + 2).values}
    if data.shape[1] != 2:
        raise ValueError(f"data must have two dimensions for the demo, got {data.shape[1]} of {options.data}")
    scaling = fit_scaling(data, per_column=False)
    scaled = scaling.apply(data)
    for contestant in _contestants(options.seed, StablePreconditioning.for_data(scaled)):
        rows[contestant.name] = _train_and_sample(contestant, scaled, scaling, options, quiet)
    errors = {name: _errors(fresh, x) for name, x in rows.items()}
    _draw(folder / "demo.png", fresh, rows)
    result = {
        "data": f"{options.data}, {options.train_points} points",
        "steps": options.steps,
        "seed": options.seed,
        "seconds": round(time.perf_counter() - started, 1),
        "tail_error": errors,
        "picture": str(folder / "demo.png"),
    }
    with atomic_file(folder / "demo.json") as temporary:
        temporary.write_text(json.dumps(result, indent=2) + "\n")
    if quiet:
        return result
    print(f"\ntail error, mean |Δ log P(‖x‖ > r)|, on {result['data']}; {options.steps} training steps each\n")
    print(f"  {'between the quantiles':36}" + "".join(f"{name:>14}" for name in RANGES))
    for name, values in errors.items():
        print(f"  {name:36}" + "".join(f"{value:14.3f}" for value in values.values()))
    print(f"\n{result['seconds']} s; picture: {result['picture']}")
    return None


def _contestants(seed: int, preconditioning: StablePreconditioning) -> list[Contestant]:
    def tail_network(alpha: float) -> Denoiser:
        torch.manual_seed(seed)
        return Denoiser(TailMLP(2), LevyProcess(alpha), preconditioning)

    torch.manual_seed(seed)
    plain = Denoiser(PaperMLP(2), LevyProcess(2.0))
    norm = OneVariableLoss(rescaled=True)
    return [
        Contestant(f"DLPM, alpha = {ALPHA}, 50 steps", tail_network(ALPHA), norm, lambda d: DLPM(d, 50)),
        Contestant(
            f"DLIM, alpha = {ALPHA}, 25 steps",
            tail_network(ALPHA),
            SelfWeightedLoss(),
            lambda d: DLIM(d, 25, order=2, spacing=quadratic_time),
        ),
        Contestant("Gaussian DDPM, 50 steps", plain, DDPMLoss(), lambda d: DDPM(d, 50)),
    ]


def _train_and_sample(
    contestant: Contestant, scaled: Tensor, scaling: Scaling, options: DemoOptions, quiet: bool
) -> Tensor:
    config = TrainConfig(steps=options.steps, rate=CosineDecay(1e-3), ema=0.998, seed=options.seed)
    trainer = Trainer(contestant.denoiser, contestant.loss, scaled, config, scaling=scaling)
    if not quiet:
        print(f"training {contestant.name.split(',')[0]}")
    model = trainer.fit(progress=not quiet)
    sampler = contestant.sampler(model.denoiser)
    return model.sample(options.points, sampler, seed=options.seed, batch_size=25_000, progress=not quiet)


def _errors(fresh: Tensor, x: Tensor) -> dict[str, float]:
    return {name: round(tail_error(fresh, x, lower=low, upper=high), 3) for name, (low, high) in RANGES.items()}


def _draw(path: Path, fresh: Tensor, rows: dict[str, Tensor]) -> None:
    _, dlpm, dlim, gaussian = rows
    figure, axes = new_figure(4, 4.2, 4.2, (1, 1, 1, 1.4))
    limit = 10.0 * typical_size(fresh)
    shown = 20_000
    draw_points(axes[0], fresh[:shown], "data", limit, "black")
    draw_points(axes[1], rows[dlim][:shown], "heavy-tailed: " + dlim.split(",")[0], limit, "C0")
    draw_points(axes[2], rows[gaussian][:shown], gaussian.split(",")[0], limit, "C3")
    share_frame(axes[:3])
    lines = {"data": fresh, dlim: rows[dlim], dlpm: rows[dlpm], gaussian: rows[gaussian]}
    draw_tails(axes[3], lines, "How often is ‖x‖ larger than r?", ("C0", "C2", "C3"))
    ends = [float(q) for q in torch.quantile(fresh.norm(dim=1).double(), torch.tensor([0.9, 0.99999]).double())]
    axes[3].set(xlim=ends, ylim=(1e-5, 0.1))
    save_figure(figure, path, dpi=100)
