"""The demonstration: heavy-tailed against Gaussian noise on heavy-tailed data, in one table and one picture.

The data are a two-dimensional Student-t law with 1.7 degrees of freedom: P(‖x‖ > r) falls as r^{-1.7}. All models
have the same number of training steps and the same batches. Two of them share everything but α: the network, the
preconditioning and the loss. The third is DDPM as it is usually set up, with a plain network and the squared loss.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..data import StudentT
from ..denoise import Denoiser, PlainPreconditioning, StablePreconditioning
from ..loss import DDPMLoss, Loss, SelfWeightedLoss
from ..metrics import tail_error
from ..nn import PaperMLP, TailMLP
from ..plot import draw_points, draw_tails, new_figure
from ..process import LevyProcess
from ..sample import DDPM, DLIM, DLPM, Sampler
from ..scaling import fit_scaling
from ..schedule import quadratic_time
from ..train import CosineDecay, TrainConfig, Trainer

ALPHA = 1.7
POINTS = 25_000


def demo(out: str, steps: int = 3000, quiet: bool = False) -> dict[str, Any] | None:
    """Train, compare, draw; prints the table unless ``quiet``, and returns it."""
    started = time.perf_counter()
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    law = StudentT(df=ALPHA)
    data = law(20_000, torch.Generator().manual_seed(0))
    fresh = law(POINTS, torch.Generator().manual_seed(1))
    rows = {f"other draws of the data, {POINTS}": law(POINTS, torch.Generator().manual_seed(2))}
    for denoiser, loss, samplers in _contestants():
        rows |= _train_and_sample(denoiser, loss, samplers, data, steps, quiet)
    errors = {name: tail_error(fresh, x) for name, x in rows.items()}
    _draw(folder / "demo.png", fresh, rows)
    result = {
        "data": f"Student-t, df = {ALPHA}, 2-D, 20000 points",
        "steps": steps,
        "seconds": round(time.perf_counter() - started, 1),
        "tail_error": {name: round(error, 3) for name, error in errors.items()},
        "picture": str(folder / "demo.png"),
    }
    (folder / "demo.json").write_text(json.dumps(result, indent=2) + "\n")
    if quiet:
        return result
    print(f"\ntail error: mean |Δ log P(‖x‖ > r)| between the 95 % and 99.9 % quantiles; {result['data']}\n")
    for name, error in errors.items():
        print(f"  {name:44} {error:6.3f}")
    print(f"\n{result['seconds']} s; picture: {result['picture']}")
    return None


def _contestants() -> list[tuple[Denoiser, Loss, dict[str, Any]]]:
    """(denoiser, loss, samplers by name)."""

    def stable(alpha: float) -> Denoiser:
        torch.manual_seed(0)
        return Denoiser(TailMLP(2, width=64), LevyProcess(alpha), StablePreconditioning())

    torch.manual_seed(0)
    plain = Denoiser(PaperMLP(2), LevyProcess(2.0), PlainPreconditioning())
    return [
        (
            stable(ALPHA),
            SelfWeightedLoss(),
            {
                f"DLPM, alpha = {ALPHA}": lambda d: DLPM(d, 100),
                f"DLIM, alpha = {ALPHA}, 25 steps": lambda d: DLIM(d, 25, order=2, spacing=quadratic_time),
            },
        ),
        (stable(2.0), SelfWeightedLoss(), {"Gaussian (alpha = 2), all else the same": lambda d: DDPM(d, 100)}),
        (plain, DDPMLoss(), {"Gaussian DDPM as usual": lambda d: DDPM(d, 100)}),
    ]


def _train_and_sample(
    denoiser: Denoiser, loss: Loss, samplers: dict[str, Any], data: Tensor, steps: int, quiet: bool
) -> dict[str, Tensor]:
    scaling = fit_scaling(data, per_column=False)
    config = TrainConfig(steps=steps, batch_size=1024, rate=CosineDecay(2e-3), ema=0.998)
    trainer = Trainer(denoiser, loss, scaling.apply(data), config, scaling=scaling)
    model = trainer.fit(progress=not quiet)
    samples = {}
    for name, make in samplers.items():
        sampler: Sampler = make(model.denoiser)
        samples[name] = model.sample(POINTS, sampler, seed=3, progress=not quiet)
    return samples


def _draw(path: Path, fresh: Tensor, rows: dict[str, Tensor]) -> None:
    names = list(rows)
    heavy, usual = names[2], names[-1]
    figure, axes = new_figure(4, 4.4, 4.4)
    limit = 10.0
    draw_points(axes[0], fresh, "data", limit, "black")
    draw_points(axes[1], rows[heavy], heavy, limit, "C0")
    draw_points(axes[2], rows[usual], usual, limit, "C3")
    for ax in axes[1:3]:  # one frame for all, so that they can be compared
        ax.set(xlim=axes[0].get_xlim(), ylim=axes[0].get_ylim())
    shown = {"data": fresh, heavy: rows[heavy], names[3]: rows[names[3]], usual: rows[usual]}
    draw_tails(axes[3], shown, "How often is ‖x‖ larger than r?")
    axes[3].set_ylim(2 / POINTS, None)
    figure.savefig(path, dpi=110)
