"""Learning rates: functions of the step, so that a resumed run needs no state of them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass


class LearningRate(ABC):
    """The learning rate as a function of the step."""

    @abstractmethod
    def at(self, step: int, steps: int) -> float:
        """The rate of a step in 0 … steps - 1."""


@dataclass(frozen=True)
class ConstantRate(LearningRate):
    """One rate throughout: the paper's for two-dimensional data."""

    rate: float = 5e-3

    def at(self, step: int, steps: int) -> float:
        return self.rate


@dataclass(frozen=True)
class StepDecay(LearningRate):
    """``rate · factorᵏ`` after every k · ``every`` steps: the paper's for images.

    Example:
        >>> StepDecay(1e-3, factor=0.5, every=400).at(900, 10_000)
        0.00025
    """

    rate: float = 1e-3
    factor: float = 0.99
    every: int = 400

    def at(self, step: int, steps: int) -> float:
        return self.rate * self.factor ** (step // self.every)


@dataclass(frozen=True)
class CosineDecay(LearningRate):
    """Up linearly over ``warmup`` steps, then down to 0 along a cosine.

    Example:
        >>> CosineDecay(1.0, warmup=10).at(4, 110), round(CosineDecay(1.0, warmup=10).at(60, 110), 3)
        (0.5, 0.5)
    """

    rate: float = 3e-3
    warmup: int = 100

    def at(self, step: int, steps: int) -> float:
        if step < self.warmup:
            return self.rate * (step + 1) / self.warmup
        progress = (step - self.warmup) / max(1, steps - self.warmup)
        return self.rate * 0.5 * (1.0 + math.cos(math.pi * progress))
