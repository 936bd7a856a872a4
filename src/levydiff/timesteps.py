r"""Timesteps: diffusers' discrete grid and tables of betas, in the core's continuous time.

diffusers counts n = 0 … N - 1, and describes a process by :math:`β_1 … β_N`. Timestep n is our time
:math:`t = t_{max}(n + 1)/N`, the paper's grid :math:`t_i = t_{max} i/N` with i = n + 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from .schedule import Schedule


@dataclass(frozen=True, kw_only=True)
class BetaSchedule(Schedule):
    r"""Scale preserving, from a table of DDPM's betas: :math:`\barγ_t^α = \prod_{k ≤ n} (1 - β_k)` at :math:`t = n/N`.

    Between two entries log γ̄ is linear in t, so the table can be walked in any number of steps.

    Arguments:
        betas: β_1 … β_N, each in (0, 1).

    Example:
        >>> schedule = BetaSchedule(alpha=2.0, betas=(0.1, 0.3))
        >>> schedule.gamma_bar(torch.tensor([0.5, 1.0])) ** 2
        tensor([0.9000, 0.6300])
    """

    betas: tuple[float, ...]
    _h: Tensor = field(init=False, repr=False, compare=False)  # -log γ̄^α at n/N, shape (N + 1,)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "betas", tuple(self.betas))
        betas = torch.tensor(self.betas, dtype=torch.float64)
        if betas.ndim != 1 or len(betas) == 0 or not bool(((betas > 0) & (betas < 1)).all()):
            raise ValueError(f"betas must be one or more numbers in (0, 1), got {self.betas}")
        object.__setattr__(self, "_h", torch.cat([betas.new_zeros(1), -torch.log1p(-betas).cumsum(0)]))

    def _integral(self, t: Tensor) -> Tensor:
        h = self._h.to(t.dtype).to(t.device)
        position = t * len(self.betas)
        n = position.floor().long().clamp(0, len(self.betas) - 1)
        return torch.lerp(h[n], h[n + 1], position - n)

    def signal(self, t: Tensor) -> Tensor:
        return torch.exp(-self._integral(t))

    def noise(self, t: Tensor) -> Tensor:
        return -torch.expm1(-self._integral(t))

    def time_at(self, log_ratio: Tensor) -> Tensor:
        h = self._h.to(log_ratio.dtype).to(log_ratio.device)
        wanted = torch.nn.functional.softplus(-self.index * log_ratio)
        n = torch.searchsorted(h, wanted, right=True).sub(1).clamp(0, len(self.betas) - 1)
        return (n + (wanted - h[n]) / (h[n + 1] - h[n])) / len(self.betas)


def spaced_steps(total: int, steps: int, spacing: str) -> Tensor:
    r"""The i = n + 1 of T out of N timesteps n, rising, int64 of shape (T,).

    Arguments:
        total: N.
        steps: T, at most N.
        spacing: ``"trailing"`` is even and ends at N, the paper's grid; ``"quadratic"`` is :math:`N (k/T)^2`, denser
            near the data. ``"leading"`` (even, starts at 1) and ``"linspace"`` (even, from 1 to N) are diffusers'.

    Example:
        >>> spaced_steps(1000, 4, "trailing"), spaced_steps(1000, 4, "leading"), spaced_steps(1000, 4, "quadratic")
        (tensor([ 250,  500,  750, 1000]), tensor([  1, 251, 501, 751]), tensor([  62,  250,  562, 1000]))
    """
    k = torch.arange(1, steps + 1, dtype=torch.float64)
    if spacing == "trailing":
        rows = k * total / steps
    elif spacing == "quadratic":
        rows = torch.maximum((total * (k / steps) ** 2).round(), k)  # no two alike
    elif spacing == "leading":
        rows = (k - 1) * (total // steps) + 1
    elif spacing == "linspace":
        rows = torch.linspace(0, total - 1, steps, dtype=torch.float64).round() + 1
    else:
        known = "'trailing', 'quadratic', 'leading' or 'linspace'"
        raise ValueError(f"timestep_spacing must be {known}, got {spacing!r}")
    return rows.round().long()
