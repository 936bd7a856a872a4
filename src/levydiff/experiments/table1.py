"""Table 1 of the paper: the tail of two-dimensional stable data (α = 1.7, scale 0.05), by MSLE(0.95).

    levydiff reproduce table1

Cost: 13 trainings a seed, two to three minutes of one core each, and 16 shorter ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from . import paper
from .experiment import Experiment, small
from .run import Run
from .sweep import Record
from .trial import Draw

CAPTION = """
The paper's protocol on stable data, α of the noise across. MSLE(0.95) of the first coordinate, the mean over the tail
(the integral of the paper's definition is 0.05 times as much; runs of the published code showed that the paper prints
the mean); lower is better. DLPM and DDPM start from t = 0.99 as in the published code, LIM from t = 0.9946 as its
authors do; the second row of each has the same networks from the other's start (and, for DLPM, at the very times it was
trained at, which from 0.99 lie up to 0.005 beside them). "Against DLPM": Welch's t-test. "Apart": our mean minus the
paper's (20 runs), in standard errors of the difference.
"""

#: Mean and standard deviation over 20 runs.
PUBLISHED = {
    "DLPM": ((0.160, 0.128), (0.081, 0.078), (0.071, 0.028), (0.099, 0.044), (0.132, 0.101), (0.798, 0.601)),
    "DDPM": (None, None, None, None, None, (0.528, 0.400)),
    "LIM": ((0.743, 0.290), (0.497, 0.311), (0.267, 0.077), (0.653, 0.413), (2.444, 1.067), (1.239, 0.240)),
}


#: Each method's networks from where the other starts.
OTHER_START = {
    "DLPM": ("**DLPM** from t = 0.9946", Draw("dlpm")),
    "LIM": ("**LIM** from t = 0.99", Draw("lim", end=0.99)),
}


def _cells(seeds: Sequence[int], alphas: Sequence[float]) -> list[Run]:
    cells = paper.main_cells(paper.STABLE, "msle", alphas, seeds)
    other = {label: (draw,) for label, (_, draw) in OTHER_START.items()}
    return [replace(run, draws=run.draws + other.get(run.label, ())) for run in cells]


def runs(seeds: Sequence[int]) -> list[Run]:
    return _cells(seeds, paper.ALPHAS) + paper.shorter(paper.STABLE, "msle", seeds[:2])


def quick(seeds: Sequence[int]) -> list[Run]:
    return [small(run) for run in _cells(seeds, (1.5, 1.7, 2.0))]


def table(records: Sequence[Record]) -> str:
    return paper.table(records, "msle", PUBLISHED, 20, OTHER_START)


FINDINGS = """
**What we found** (five seeds). In outline the paper's table holds: DLPM is better than LIM at every α (at 1.9 within
the noise), α = 1.7 to 1.9 serve it better than 1.5 (in each seed), and with its loss Gaussian noise (α = 2) is worse
than 1.8 and 1.9. The order is MSLE's: by the tail error, which ends at the 99.9 % quantile, DLPM is best at 1.5 and 1.6
(0.27), and LIM has the lower mean at 1.8 and 1.9. The gap to DDPM is not there: it scores 0.13 here, where the paper
has 0.53, as good as DLPM near its best. More than two standard errors from the paper are DLPM at 1.6 (above) and 2
(below), DDPM (below), and LIM at all α but 1.8 (above up to 1.7 and at 2, below at 1.9).

*Why.* A few samples decide. Seeds differ by up to a factor of 18 (DLPM at α = 1.9), and starting the same networks at t
= 0.9946 instead of 0.99 raises the mean by up to three quarters. The reason is the network, whose output is bounded:
where ‖x_t‖ is large, every step divides by γ_t and nothing is taken away, so that the few starts in the far tail come
out multiplied by up to 1/γ̄_T. Stable preconditioning takes the cause away; with the rest of our recipe the score is
0.003 (`ours`). Longer training helps heavy-tailed noise and not DDPM (second table, two seeds): at α = 1.7 DLPM is at
0.7 after a tenth of the steps, and may not have arrived after all of them.

LIM at α = 2 is explained by its start: from t = 0.9946 its first step of a hundred multiplies the scale of the noise by
2.8 even with the exact score, beyond what the network has seen; from t = 0.99 the same networks score 0.7 ± 0.9, where
the paper has 1.2. Below α = 2 the start is a smaller part. With the exact score LIM also multiplies the scale of such
data by (α-1)^(-1/α), which alone gives an MSLE of 0.21 at α = 1.5 and 0.04 at 1.7. Not found: why the paper's numbers
are higher at α = 2 for DLPM and DDPM, and at 1.9 for LIM.
"""

EXPERIMENT = Experiment("Table 1: MSLE on stable data", CAPTION, runs, quick, table, findings=FINDINGS)
