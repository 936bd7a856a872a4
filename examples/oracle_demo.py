"""Sample heavy-tailed data from an exact denoiser: no training, ten seconds.

    python examples/oracle_demo.py [--out oracle_demo.png]

The data are isotropic α-stable with the α of the noise, for which E[ε | x_t] is known in closed form. The left
picture shows whose samples have the data's tail; the right one how fast deterministic DLIM approaches the exact
map from noise to data.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch

from levydiff import DLIM, DLPM, LIM, IsotropicStable, LevyProcess, StableOracle, quadratic_time

ALPHA, POINTS = 1.7, 200_000


def ccdf(ax: plt.Axes, radius: torch.Tensor, label: str, **style: object) -> None:
    r = np.sort(radius.numpy())
    ax.loglog(r, 1 - np.arange(len(r)) / len(r), label=label, **style)


def _quantiles(x: torch.Tensor) -> str:
    return "".join(f"{float(x.norm(dim=1).quantile(q)):8.2f}" for q in (0.5, 0.999))


def tails(ax: plt.Axes, oracle: StableOracle) -> None:
    data = IsotropicStable(ALPHA, torch.zeros(2)).sample((POINTS,), torch.Generator().manual_seed(0))
    ccdf(ax, data.norm(dim=1), "data", color="black", lw=3)
    print(f"{'quantiles of the radius':24}{'50 %':>8}{'99.9 %':>8}\n{'data':24}{_quantiles(data)}")
    for label, sampler in (
        ("DLIM, 100 steps", DLIM(oracle, 100)),
        ("DLIM order 2, 25 steps", DLIM(oracle, 25, order=2, spacing=quadratic_time)),
        ("DLPM, 100 steps", DLPM(oracle, 100)),
        ("LIM, 100 steps", LIM(oracle, 100)),
    ):
        x = sampler((POINTS, 2), torch.Generator().manual_seed(1), progress=True)
        ccdf(ax, x.norm(dim=1), label, lw=1.5)
        print(f"{label:24}{_quantiles(x)}")
    ax.set(
        xlabel="radius r", ylabel="P(‖x‖ > r)", xlim=(0.3, None), title=f"Tails with the exact denoiser, α = {ALPHA}"
    )
    ax.legend()


def convergence(ax: plt.Axes, oracle: StableOracle) -> None:
    process = oracle.process
    x_T = process.noise((1000, 2), torch.Generator().manual_seed(2), torch.float64)[0]
    exact = oracle.exact_data(x_T, torch.tensor(process.schedule.t_max, dtype=torch.float64))
    steps = [5, 10, 25, 50, 100, 200, 400]
    for order, marker in ((1, "o-"), (2, "s-")):
        errors = []
        for n in steps:
            x = DLIM(oracle, n, order=order, spacing=quadratic_time)((1000, 2), x_T=x_T, dtype=torch.float64)
            errors.append(float(((x - exact).norm(dim=1) / exact.norm(dim=1)).mean()))
        ax.loglog(steps, errors, marker, label=f"DLIM, order {order}")
    ax.set(
        xlabel="steps (network calls)", ylabel="relative error", title="Distance to the exact map from noise to data"
    )
    ax.legend()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("oracle_demo.png"))
    args = parser.parse_args()
    oracle = StableOracle(LevyProcess(ALPHA))
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    tails(left, oracle)
    convergence(right, oracle)
    for ax in (left, right):
        ax.grid(alpha=0.3)
    figure.savefig(args.out, dpi=120)
    print(f"picture: {args.out}")


if __name__ == "__main__":
    main()
