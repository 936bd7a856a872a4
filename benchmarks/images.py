"""What sampling images costs beyond the U-Net: time, as a ratio to the U-Net's own calls in the same run, and memory.

    python benchmarks/images.py [--threads 1] [--repeats 5] [--batch 32] [--steps 5]
    python benchmarks/images.py --memory 1000

Timings on a shared machine are noisy. Every run clocks its network calls on the way, so that the ratio, the whole over
the calls, compares times measured side by side; the table gives the median over repeats. The runs of the rows take
turns.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from diffusers import UNet2DModel
from torch import Tensor, nn

from levydiff import DLIM, DLPM, Denoiser, LevyProcess
from levydiff.diffusers import DLIMScheduler, DLPMScheduler
from levydiff.pipeline import LevyPipeline

ALPHA = 1.7
AT_MOST = 1.03


class TimedUNet(UNet2DModel):
    """A U-Net that adds up the seconds spent in it."""

    seconds = 0.0

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        out = super().forward(*args, **kwargs)
        self.seconds += time.perf_counter() - start
        return out


class Backbone(nn.Module):
    """diffusers' U-Net as a backbone of the core: timesteps for times, a tensor for its output."""

    def __init__(self, unet: UNet2DModel, t_max: float) -> None:
        super().__init__()
        self.unet, self.t_max = unet, t_max

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        out: Tensor = self.unet(x, (t * (1000 / self.t_max)).round() - 1).sample
        return out


def small_unet(size: int) -> TimedUNet:
    blocks = {"down_block_types": ("DownBlock2D", "DownBlock2D"), "up_block_types": ("UpBlock2D", "UpBlock2D")}
    return TimedUNet(size, 3, 3, block_out_channels=(32, 64), layers_per_block=1, **blocks).eval()


def runs(unet: TimedUNet, batch: int, steps: int, size: int) -> dict[str, Callable[[], object]]:
    """The subjects, each a whole run of the sampler."""
    process = LevyProcess(ALPHA)
    denoiser = Denoiser(Backbone(unet, process.schedule.t_max), process)
    shape, generator = (batch, 3, size, size), torch.Generator().manual_seed(0)
    subjects: dict[str, Callable[[], object]] = {}
    for sampler in (DLPM(denoiser, steps), DLIM(denoiser, steps), DLIM(denoiser, steps, order=2)):
        name = type(sampler).__name__ + (", order 2" if getattr(sampler, "order", 1) == 2 else "")
        subjects[name] = lambda sampler=sampler: sampler(shape, generator)
    for scheduler in (DLPMScheduler(alpha=ALPHA), DLIMScheduler(alpha=ALPHA)):
        pipeline = LevyPipeline(unet, scheduler)
        pipeline.set_progress_bar_config(disable=True)
        name = f"LevyPipeline, {type(scheduler).__name__}"
        subjects[name] = lambda pipeline=pipeline: pipeline(batch, generator, steps, output_type="pt")
    return subjects


def overhead(subject: Callable[[], object], unet: TimedUNet) -> tuple[float, float]:
    """(seconds of a run over the seconds of its network calls, the latter)."""
    unet.seconds = 0.0
    start = time.perf_counter()
    subject()
    return (time.perf_counter() - start) / unet.seconds, unet.seconds


def peak_megabytes(subject: Callable[[], object]) -> float:
    """By how much the process's memory peaks above what it has (Linux)."""

    def status(name: str) -> float:
        with open("/proc/self/status") as lines:
            return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1024

    with open("/proc/self/clear_refs", "w") as refs:
        refs.write("5")  # the peak counts from here
    before = status("VmHWM")
    subject()
    return status("VmHWM") - before


def memory(made: int) -> None:
    """The peak of the first ``made`` of 1000 steps, 64 images of 3×64×64, over that of a network that does nothing.

    It is the process's own, with what malloc keeps of freed blocks; so it differs a little from run to run.
    """
    steps = 1000

    class Enough(Exception):
        pass

    def stop(progress: Any) -> None:
        if progress.i <= steps - made:
            raise Enough

    def network(x: Tensor, t: Tensor) -> Tensor:
        return 0.1 * x

    @torch.no_grad()
    def bare(shape: tuple[int, ...]) -> None:
        network(torch.zeros(shape), torch.zeros(()))

    def core(shape: tuple[int, ...]) -> None:
        with contextlib.suppress(Enough):
            DLPM(Denoiser(network, LevyProcess(ALPHA)), steps)(shape, callback=stop)

    @torch.no_grad()
    def scheduled(shape: tuple[int, ...]) -> None:
        scheduler = DLPMScheduler(alpha=ALPHA)
        x = scheduler.init_latents(shape)
        for n in scheduler.timesteps[:made]:
            x = scheduler.step(network(x.float(), n), n, x).prev_sample

    shape = (64, 3, 64, 64)
    for name, subject in (("DLPM", core), ("DLPMScheduler", scheduled)):
        subject((2, 3, 8, 8))  # what is allocated once, whatever the size
        bare(shape)
        print(f"{name}: {peak_megabytes(lambda subject=subject: subject(shape)):.1f} MB (at most 50 MB)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--size", type=int, default=32, help="of an image, in pixels")
    parser.add_argument("--memory", type=int, metavar="M", help="measure memory instead, over M of 1000 steps")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    if args.memory is not None:
        memory(args.memory)
        return
    unet = small_unet(args.size)
    subjects = runs(unet, args.batch, args.steps, args.size)
    measured: dict[str, list[tuple[float, float]]] = {name: [] for name in subjects}
    for repeat in range(args.repeats + 1):
        for name, subject in subjects.items():
            result = overhead(subject, unet)
            if repeat > 0:  # the first is a warm-up
                measured[name].append(result)
    weights = sum(p.numel() for p in unet.parameters()) / 1e6
    print(f"levydiff on images, torch {torch.__version__}, {args.threads} thread(s), medians of {args.repeats}")
    print(f"{args.batch} images of 3×{args.size}×{args.size}, {args.steps} steps, U-Net of {weights:.1f} M weights\n")
    print(f"| {'whole run / its U-Net calls':46} | ratio | at most | U-Net, s |")
    print(f"|{'-' * 48}|------:|--------:|---------:|")
    for name, results in measured.items():
        ratio, base = (statistics.median(column) for column in zip(*results, strict=True))
        print(f"| {name:46} | {ratio:5.3f} | {AT_MOST:7.2f} | {base:8.3f} |")


if __name__ == "__main__":
    main()
