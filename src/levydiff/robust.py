r"""Median of means: the paper's DLPM_M, which takes M² draws of the noise for each data point.

A mean over heavy-tailed values follows its largest one. The median over M groups of each group's mean does not
(Lugosi & Mendelson, *Mean estimation and regression under heavy-tailed distributions*, 2019).

**What it costs.** M² network evaluations a point, but not M² gradients: a median has the value of one group (of two
if M is even), and the other groups get no gradient. So :class:`MedianOfMeans` evaluates all draws without keeping
their graph, and runs the network again, with gradients, on the chosen group alone. At M = 5 that is 30 evaluations
and 5 gradients instead of 25 and 25: about half the time and a fifth of the memory, for the same gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .checks import check_count
from .conditions import pick_rows
from .denoise import Predictor
from .loss import Loss
from .process import LevyProcess
from .rng import Generator


def median_of_means(values: Tensor, groups: int) -> Tensor:
    """The median over ``groups`` groups of each group's mean, along the first dimension; differentiable.

    Arguments:
        values: Of shape (n, …), n a multiple of ``groups``.
        groups: How many groups.

    Returns:
        The median, of shape (…).

    Example:
        >>> median_of_means(torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 600.0]), groups=3)
        tensor(3.5000)
    """
    groups = check_count("groups", groups)
    if len(values) % groups:
        raise ValueError(f"groups must divide the number of values, {len(values)}, got {groups}")
    means = values.reshape(groups, -1, *values.shape[1:]).mean(1)
    middle = means.sort(dim=0).values
    return (middle[(groups - 1) // 2] + middle[groups // 2]) / 2


class MedianOfMeans(Loss):
    r"""Any loss under M² draws of the noise for each data point: M groups of M, the mean in each, the median over them.

    With :class:`~levydiff.loss.OneVariableLoss` this is the paper's DLPM_M. The draws of a data point share its time.

    Arguments:
        loss: The loss of one draw.
        groups: M.

    Example:
        >>> from levydiff import OneVariableLoss, StableOracle
        >>> MedianOfMeans(OneVariableLoss(), groups=5)(StableOracle(LevyProcess(1.7)), torch.randn(8, 2)).shape
        torch.Size([8])
    """

    def __init__(self, loss: Loss, groups: int) -> None:
        super().__init__()
        if getattr(loss, "inner", 1) > 1:
            raise ValueError(f"loss must have inner = 1 inside MedianOfMeans, got {loss.inner}")  # type: ignore[attr-defined]
        self.loss = loss
        self.groups = check_count("groups", groups)

    def check(self, process: LevyProcess) -> None:
        self.loss.check(process)

    def draw_times(self, process: LevyProcess, x_0: Tensor, generator: Generator = None) -> Tensor:
        return self.loss.draw_times(process, x_0, generator)

    def evaluate(self, denoiser: Predictor, x_0: Tensor, t: Tensor, generator: Generator, **cond: Any) -> Tensor:
        size, draws = len(x_0), self.groups**2
        rows = torch.arange(size, device=x_0.device).repeat_interleave(draws)
        inputs = (x_0, *(value for value in cond.values() if isinstance(value, Tensor)))
        if torch.is_grad_enabled() and not (denoiser.learned_variance or any(x.requires_grad for x in inputs)):
            denoiser = _Rerunning(denoiser)
        values = self.loss.evaluate(denoiser, x_0[rows], t[rows], generator, **pick_rows(cond, rows, size))
        return median_of_means(values.reshape(size, draws).T, self.groups)


class _Rerunning(Predictor):
    """A denoiser that keeps no graph, and runs again on the rows that turn out to need a gradient.

    A network with dropout draws another mask then.
    """

    def __init__(self, denoiser: Predictor) -> None:
        super().__init__(denoiser.process)
        self.denoiser = denoiser

    def forward(self, x_t: Tensor, t: Tensor, **cond: Any) -> Tensor:
        def run(rows: Tensor | None) -> Tensor:
            if rows is None:
                return self.denoiser(x_t, t, **cond)  # type: ignore[no-any-return]
            return self.denoiser(x_t[rows], t[rows], **pick_rows(cond, rows, len(x_t)))  # type: ignore[no-any-return]

        weights = [weight for weight in self.denoiser.parameters() if weight.requires_grad]
        out: Tensor = _Rerun.apply(run, *weights)  # type: ignore[no-untyped-call]
        return out

    def scales(self, x_t: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        return self.denoiser.scales(x_t, t)


class _Rerun(torch.autograd.Function):
    """``run(None)`` as a function of the weights, whose gradient is that of ``run(rows)``."""

    @staticmethod
    def forward(ctx: Any, run: Callable[[Tensor | None], Tensor], *weights: Tensor) -> Tensor:
        out = run(None)
        ctx.run = run
        ctx.save_for_backward(*weights)
        device = out.device.type
        ctx.autocast = (device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device))
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = gradients
        rows = gradient.flatten(1).any(1).nonzero().squeeze(1)
        if len(rows) == 0:
            return None, *map(torch.zeros_like, ctx.saved_tensors)
        with torch.enable_grad(), torch.autocast(*ctx.autocast):
            out = ctx.run(rows)
        return None, *torch.autograd.grad(out, ctx.saved_tensors, gradient[rows], allow_unused=True)
