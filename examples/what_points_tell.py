"""What 5000 points tell of their tails: the points themselves, their own law fitted to them, and fresh data.

    python examples/what_points_tell.py funnel --draws 1000
    python examples/what_points_tell.py student-t:df=1 --draws 400
    python examples/what_points_tell.py student-t:df=1 --draws 100 --beyond

Each draw has 5000 points to learn from and 25000 to be compared with (250000 with --beyond, between the 99.9 % and the
99.99 % quantile). No network, no training: a third of a second a draw (--beyond: a second) on one core. The averages in
docs/choosing.md and experiments/results/tails.md over other draws than those of the five seeds are from here.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from tqdm import trange

from levydiff.cli.build import build_data
from levydiff.experiments.likelihood import fitted_law
from levydiff.metrics import global_l1, tail_error

POINTS = 5000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", help="funnel or student-t:df=NUMBER")
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--beyond", action="store_true", help="the 99.9 to 99.99 %% quantile, by 250000 points")
    options = parser.parse_args()
    torch.set_num_threads(1)
    number = 250_000 if options.beyond else 25_000
    quantiles = {"lower": 0.999, "upper": 0.9999} if options.beyond else {}
    results: dict[str, list[tuple[float, float]]] = {"fitted law": [], "the points": [], "fresh data": []}
    for draw in trange(options.draws, desc="draws"):
        # one seed for each part of each draw
        points, real, fresh = (
            build_data(options.data, None, n, 10 * (options.seed * 1_000_000 + draw) + part).values.float()
            for part, n in enumerate((POINTS, number, number))
        )
        fitted = fitted_law(options.data, points)(number, torch.Generator().manual_seed(10 * draw + 9))
        for name, x in zip(results, (fitted, points, fresh), strict=True):
            results[name].append((tail_error(real, x, **quantiles), global_l1(real, x)))
    print(f"{options.data}, {options.draws} draws{'tail error':>14} ± sd{'L1: quartiles':>26}")
    for name, scores in results.items():
        error, distance = np.array(scores).T
        quartiles = "".join(f"{value:10.3f}" for value in np.quantile(distance, [0.25, 0.5, 0.75]))
        print(f"{name:24}{error.mean():10.3f} ± {error.std(ddof=1):.3f}{quartiles}")


if __name__ == "__main__":
    main()
