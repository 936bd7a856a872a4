r"""Classifier-free guidance (Ho & Salimans, 2022): samples of a class, more typical of it than the model's own.

One network learns ε̂ with and without the class: in training :class:`LabelDropout` replaces some labels by the null
class. In sampling :class:`Guided` extrapolates from the one to the other,

.. math::  \hat ε_w = \hat ε(x_t, ∅) + w\,(\hat ε(x_t, y) - \hat ε(x_t, ∅)),

and goes into any sampler in the denoiser's place. w = 1 is the conditional model itself, w = 0 the unconditional
one; a step costs two evaluations of the network in one batch.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from .conditions import per_sample
from .denoise import Predictor
from .loss import Loss
from .process import LevyProcess
from .rng import Generator, uniform


class LabelDropout(Loss):
    """Any loss, with a share of the labels replaced by the null class.

    Which labels is drawn from the same stream as the times and the noise, so that a run resumes exactly.

    Arguments:
        loss: The loss.
        null: The number of the null class: ``classes`` for :class:`~levydiff.unet.UNet`.
        probability: The share of labels to drop, in [0, 1].

    Example:
        >>> from levydiff import Denoiser, SelfWeightedLoss
        >>> network = lambda x, t, label: x * label[:, None]
        >>> denoiser = Denoiser(network, LevyProcess(1.7))
        >>> loss = LabelDropout(SelfWeightedLoss(), null=10, probability=0.1)
        >>> loss(denoiser, torch.randn(8, 2), label=torch.arange(8)).shape
        torch.Size([8])
    """

    def __init__(self, loss: Loss, null: int, probability: float = 0.1) -> None:
        super().__init__()
        if not 0 <= probability <= 1:
            raise ValueError(f"probability must lie in [0, 1], got {probability}")
        self.loss, self.null, self.probability = loss, null, probability
        self.inner = getattr(loss, "inner", 1)

    def check(self, process: LevyProcess) -> None:
        self.loss.check(process)

    def draw_times(self, process: LevyProcess, x_0: Tensor, generator: Generator = None) -> Tensor:
        return self.loss.draw_times(process, x_0, generator)

    def evaluate(self, denoiser: Predictor, x_0: Tensor, t: Tensor, generator: Generator, **cond: Any) -> Tensor:
        label = cond.get("label")
        if label is None:
            raise ValueError("label must be given to LabelDropout, got none: train on labelled data")
        dropped = uniform((len(label),), generator, torch.float32, label.device) < self.probability
        cond["label"] = label.masked_fill(dropped, self.null)
        return self.loss.evaluate(denoiser, x_0, t, generator, **cond)


class Guided(Predictor):
    r"""A denoiser with guidance: :math:`\hat ε(x_t, ∅) + w\,(\hat ε(x_t, y) - \hat ε(x_t, ∅))`.

    Arguments:
        denoiser: A denoiser whose network takes ``label``, trained with :class:`LabelDropout`.
        scale: w, finite and at least 0.
        null: The number of the null class; the network's own by default.

    Example:
        >>> from levydiff import DLIM, Denoiser
        >>> from levydiff.unet import UNet
        >>> denoiser = Denoiser(UNet.small(1, size=8, classes=10), LevyProcess(1.7))
        >>> sampler = DLIM(Guided(denoiser, scale=2.0), steps=3)
        >>> sampler((5, 1, 8, 8), label=torch.arange(5)).shape
        torch.Size([5, 1, 8, 8])
    """

    def __init__(self, denoiser: Predictor, scale: float, null: int | None = None) -> None:
        super().__init__(denoiser.process)
        if not (math.isfinite(scale) and scale >= 0):
            raise ValueError(f"scale must be finite and at least 0, got {scale}")
        own = getattr(getattr(denoiser, "backbone", None), "classes", None) or None
        null = own if null is None else null
        if null is None:
            raise ValueError("null must be given for a network without a class of its own for none, got None")
        self.denoiser, self.scale, self.null = denoiser, float(scale), null
        self.learned_variance = denoiser.learned_variance

    @property
    def dtype(self) -> torch.dtype:
        return self.denoiser.dtype

    def forward(self, x_t: Tensor, t: Tensor, **cond: Any) -> Tensor:
        return self.eps_and_variance(x_t, t, **cond)[0]

    def eps_and_variance(self, x_t: Tensor, t: Tensor, **cond: Any) -> tuple[Tensor, Tensor | None]:
        label = cond.pop("label", None)
        if label is None:
            raise ValueError("label must be given to be guided towards, got none")
        if self.scale == 1.0:
            return self.denoiser.eps_and_variance(x_t, t, label=label, **cond)
        labels = torch.cat([label, torch.full_like(label, self.null)])
        twice = {name: _twice(value, len(x_t)) for name, value in cond.items()}
        eps, v = self.denoiser.eps_and_variance(torch.cat([x_t, x_t]), _twice(t, len(x_t)), label=labels, **twice)
        given, null = eps.chunk(2)
        return torch.lerp(null, given, self.scale), None if v is None else v.chunk(2)[0]

    def scales(self, x_t: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        return self.denoiser.scales(x_t, t)


def _twice(value: Any, size: int) -> Any:
    """A tensor with a row for each sample, repeated; anything else as it is."""
    return torch.cat([value, value]) if per_sample(value, size) else value
