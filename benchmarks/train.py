"""The cost of the trainer over a hand-written loop, and of the median of means over one draw: ratios of one run.

    python benchmarks/train.py [--threads 1] [--repeats 9]

Both loops take the same steps on the same in-memory data at batch 1024: draw a batch, loss, backward, Adam. The
trainer also averages the weights, checks every loss, schedules the rate and keeps the log. The median of 5 means of
5 draws (the paper's DLPM_5) evaluates the network 25 times for each point; only the group in the middle needs a
gradient, and the cost with the gradient of all 25 is printed for comparison.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch

from levydiff import (
    Denoiser,
    LevyProcess,
    MedianOfMeans,
    OneVariableLoss,
    SelfWeightedLoss,
    StablePreconditioning,
    TrainConfig,
    Trainer,
)
from levydiff.loss import Loss
from levydiff.nn import PaperMLP, TailMLP


def hand_written(denoiser: Denoiser, loss: Loss, data: torch.Tensor, steps: int) -> None:
    optimizer = torch.optim.Adam(denoiser.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        x_0 = data[torch.randint(len(data), (1024,), generator=generator)]
        optimizer.zero_grad()
        loss(denoiser, x_0, generator).mean().backward()
        optimizer.step()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=9)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    data, steps, loss = torch.randn(32_000, 2), 100, SelfWeightedLoss()
    what = f"batch 1024, {args.threads} thread(s), median of {args.repeats} x {steps} steps"
    print(f"trainer / hand-written loop, {what}")
    for network in (PaperMLP, TailMLP):
        ratios = []
        for repeat in range(args.repeats + 1):
            denoiser = Denoiser(network(2), LevyProcess(1.7), StablePreconditioning())
            trainer = Trainer(denoiser, loss, data, TrainConfig(steps=steps, batch_size=1024, log_every=50))
            start = time.perf_counter()
            trainer.fit(progress=False)
            middle = time.perf_counter()
            hand_written(Denoiser(network(2), LevyProcess(1.7), StablePreconditioning()), loss, data, steps)
            if repeat:  # the first is the warm-up
                ratios.append((middle - start) / (time.perf_counter() - middle))
        print(f"  {network.__name__:10} {statistics.median(ratios):.3f} (at most 1.15)")
    print(f"DLPM_5 / DLPM, a step of the paper's network, median of {args.repeats} x 3 steps")
    for name, share in (("the middle group's gradient", True), ("the whole gradient", False)):
        print(f"  {name:28} {statistics.median(median_of_means_cost(data, share) for _ in range(args.repeats)):.1f}")


def median_of_means_cost(data: torch.Tensor, middle_only: bool) -> float:
    """The time of three steps of DLPM_5 over that of three steps of DLPM."""
    denoiser = Denoiser(PaperMLP(2), LevyProcess(1.7))
    robust = MedianOfMeans(OneVariableLoss(), 5)
    seconds = []
    for loss in (robust, OneVariableLoss()):
        # A batch that itself asks for a gradient makes the loss keep the whole graph.
        source = data if middle_only or loss is not robust else data.clone().requires_grad_()
        start = time.perf_counter()
        hand_written(denoiser, loss, source, 3)
        seconds.append(time.perf_counter() - start)
    return seconds[0] / seconds[1]


if __name__ == "__main__":
    main()
