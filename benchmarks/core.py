"""Speed and memory of the core, each as a ratio to a baseline measured in the same run.

    make bench        or        python benchmarks/core.py [--threads 1] [--repeats 9]

Timings on a shared machine are noisy. Every repeat times the baseline and the subject back to back, and the table
gives the median over repeats of their quotient.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from scipy.stats import levy_stable

from levydiff import (
    DLIM,
    DLPM,
    Denoiser,
    LevyProcess,
    OneVariableLoss,
    SelfWeightedLoss,
    StablePreconditioning,
)
from levydiff.loss import Loss
from levydiff.nn import PaperMLP
from levydiff.stable import positive_stable

ALPHA = 1.7


def seconds(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def compare(subject: Callable[[], object], baseline: Callable[[], object], repeats: int) -> tuple[float, float]:
    """(median ratio, median seconds of the baseline), after one warm-up of each."""
    subject(), baseline()
    pairs = [(seconds(subject), seconds(baseline)) for _ in range(repeats)]
    return statistics.median(s / b for s, b in pairs), statistics.median(b for _, b in pairs)


def draws(repeats: int) -> tuple[float, float]:
    """10⁶ draws of A against scipy's sampler of the same law."""
    generator, rng = torch.Generator().manual_seed(0), np.random.default_rng(0)
    return compare(
        lambda: positive_stable(ALPHA, (10**6,), generator),
        lambda: levy_stable.rvs(ALPHA / 2, 1.0, size=10**6, random_state=rng),
        repeats,
    )


def sampling(
    method: type[DLPM] | type[DLIM], repeats: int, points: int = 25_000, steps: int = 100
) -> tuple[float, float]:
    """A sampler against its bare network calls."""
    network = PaperMLP(2)
    sampler = method(Denoiser(network, LevyProcess(ALPHA)), steps)
    x, t = torch.randn(points, 2), torch.tensor(0.5).expand(points)  # one time for all, as a sampler gives it

    @torch.no_grad()
    def bare() -> None:
        for _ in range(steps):
            network(x, t)

    return compare(lambda: sampler((points, 2), torch.Generator().manual_seed(0)), bare, repeats)


def training(loss: Loss, denoiser: Denoiser, repeats: int, batch: int = 1024, steps: int = 20) -> tuple[float, float]:
    """A training step against the bare forward, backward and optimiser step of the same network."""
    network = denoiser.backbone
    optimizer = torch.optim.Adam(denoiser.parameters(), lr=1e-4)
    generator = torch.Generator().manual_seed(0)
    x, t = torch.randn(batch, 2), torch.rand(batch)

    def bare() -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            network(x, t).square().mean().backward()
            optimizer.step()

    def subject() -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            loss(denoiser, x, generator).mean().backward()
            optimizer.step()

    return compare(subject, bare, repeats)


def path_megabytes() -> float:
    """The noise path of 64 images of 3×32×32 over 1000 steps."""
    process = LevyProcess(ALPHA)
    path = process.draw_path((64, 3, 32, 32), process.schedule.grid(1000))
    return (path.a.nbytes + path.var.nbytes) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=9)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    process = LevyProcess(ALPHA)
    plain = Denoiser(PaperMLP(2), process)
    stable = Denoiser(PaperMLP(2), process, StablePreconditioning())
    few = max(3, args.repeats // 3)
    rows = [
        ("10^6 draws of A / scipy levy_stable.rvs", *draws(3 * args.repeats), 0.10),
        ("DLPM, 25000 points, 100 steps / bare network", *sampling(DLPM, few), 1.15),
        ("DLIM, 25000 points, 100 steps / bare network", *sampling(DLIM, few), 1.05),
        ("training step, paper's loss / bare step", *training(OneVariableLoss(), plain, 3 * args.repeats), 1.10),
        ("training step, self-weighted / bare step", *training(SelfWeightedLoss(), stable, 3 * args.repeats), None),
    ]
    print(f"levydiff core, torch {torch.__version__}, {args.threads} thread(s), medians over repeats\n")
    print(f"| {'what':46} | ratio | at most | baseline, s |\n|{'-' * 48}|------:|--------:|------------:|")
    for name, ratio, base, limit in rows:
        print(f"| {name:46} | {ratio:5.3f} | {'' if limit is None else f'{limit:.2f}':>7} | {base:11.3f} |")
    print(f"\nnoise path of 64×3×32×32 over 1000 steps: {path_megabytes():.3f} MB (at most 1 MB)")


if __name__ == "__main__":
    main()
