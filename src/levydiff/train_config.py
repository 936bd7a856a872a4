"""How to train: the settings of a :class:`~levydiff.train.Trainer`, checked before the first step."""

from __future__ import annotations

import operator
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import Any

from .checks import check_count, check_positive
from .rates import CosineDecay, LearningRate


@dataclass(frozen=True)
class TrainConfig:
    """How to train.

    Arguments:
        steps: Optimizer steps.
        batch_size: Samples a step, over all processes and micro-batches together.
        rate: The learning rate.
        ema: Decay of the average of the weights, which is what is sampled from; 0 for none. After n steps it is
            (1 + n)/(10 + n) while that is smaller.
        seed: Everything random follows from it.
        clip_gradient: The largest norm of the gradient; none by default.
        accumulate: Split each process's share of a batch into so many micro-batches, to bound memory.
        precision: accelerate's mixed precision: ``"no"``, ``"bf16"`` or ``"fp16"``.
        compile: Compile the network with ``torch.compile``.
        log_every, validate_every, checkpoint_every: In steps; 0 for never. The last step always counts.
        keep: How many checkpoints to keep.
        trackers: accelerate's trackers, such as ``("tensorboard",)`` or ``("wandb",)``.

    Example:
        >>> TrainConfig(steps=100, rate=CosineDecay(1e-3), clip_gradient=1.0).to_record()["rate"]
        {'kind': 'CosineDecay', 'rate': 0.001, 'warmup': 100}
    """

    steps: int = 10_000
    batch_size: int = 1024
    rate: LearningRate = field(default_factory=CosineDecay)
    ema: float = 0.999
    seed: int = 0
    clip_gradient: float | None = None
    accumulate: int = 1
    precision: str = "no"
    compile: bool = False
    log_every: int = 100
    validate_every: int = 1000
    checkpoint_every: int = 1000
    keep: int = 2
    trackers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "accumulate", "keep"):
            object.__setattr__(self, name, check_count(name, getattr(self, name)))
        for name in ("log_every", "validate_every", "checkpoint_every"):
            if getattr(self, name) != 0:
                object.__setattr__(self, name, check_count(name, getattr(self, name)))
        if not 0 <= self.ema < 1:
            raise ValueError(f"ema must lie in [0, 1), got {self.ema}")
        object.__setattr__(self, "ema", float(self.ema))
        object.__setattr__(self, "seed", operator.index(self.seed))
        if self.clip_gradient is not None:
            object.__setattr__(self, "clip_gradient", check_positive("clip_gradient", self.clip_gradient))
        if self.precision not in ("no", "bf16", "fp16"):
            raise ValueError(f"precision must be no, bf16 or fp16, got {self.precision!r}")

    def to_record(self) -> dict[str, Any]:
        """As JSON."""
        own = {item.name: getattr(self, item.name) for item in fields(self)}
        rate: dict[str, Any] = asdict(self.rate) if is_dataclass(self.rate) else {}  # one's own may be any class
        return own | {"rate": {"kind": type(self.rate).__name__, **rate}}
