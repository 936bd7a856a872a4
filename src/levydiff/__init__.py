"""levydiff: heavy-tailed diffusion models in PyTorch.

Start with :class:`LevyProcess` (the noise), :class:`Denoiser` (your network), a loss and a sampler::

    process = LevyProcess(alpha=1.7)
    denoiser = Denoiser(network, process, StablePreconditioning(scale))
    loss = SelfWeightedLoss()(denoiser, x_0).mean()
    samples = DLIM(denoiser, steps=25, order=2)((1000, 2))
"""

from typing import TYPE_CHECKING, Any

from . import data
from .denoise import (
    Denoiser,
    Predictor,
    eps_from_score,
    eps_from_x0,
    score_from_eps,
    x0_from_eps,
)
from .implicit import interpolate
from .kl import CauchyLoss, FullKLLoss, TwoVariableLoss
from .loss import DDPMLoss, LIMLoss, Loss, OneVariableLoss, SelfWeightedLoss
from .oracle import MixtureOracle, PointMassOracle, StableOracle
from .precondition import BoundedPreconditioning, PlainPreconditioning, StablePreconditioning
from .process import Clipping, LevyProcess, NoisePath, Perturbed
from .robust import MedianOfMeans, median_of_means
from .sample import DDIM, DDPM, DLIM, DLPM, LIM, LIMODE, CauchyDLIM, Progress, Sampler
from .schedule import (
    CosineSchedule,
    ExplodingSchedule,
    LinearSchedule,
    Schedule,
    linear_time,
    log_ratio_spacing,
    quadratic_time,
)
from .stable import IndependentStable, IsotropicStable, PositiveStable

if TYPE_CHECKING:
    from .fitting import fit
    from .model import LevyModel
    from .train import Trainer
    from .train_config import TrainConfig

__version__ = "0.1.0"

#: Loaded when first asked for: they import accelerate and huggingface_hub.
_LAZY = {"LevyModel": "model", "TrainConfig": "train_config", "Trainer": "train", "fit": "fitting"}


_LAZY_MODULES = (
    "batches",
    "diffusers",
    "features",
    "guidance",
    "images",
    "metrics",
    "nn",
    "pipeline",
    "plot",
    "scaling",
    "sources",
    "table",
    "train",
    "unet",
)


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _LAZY_MODULES:
        return import_module(f".{name}", __name__)
    if name in _LAZY:
        return getattr(import_module(f".{_LAZY[name]}", __name__), name)
    raise AttributeError(f"module 'levydiff' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, *_LAZY_MODULES})


__all__ = [
    "DDIM",
    "DDPM",
    "DLIM",
    "DLPM",
    "LIM",
    "LIMODE",
    "BoundedPreconditioning",
    "CauchyDLIM",
    "CauchyLoss",
    "Clipping",
    "CosineSchedule",
    "DDPMLoss",
    "Denoiser",
    "ExplodingSchedule",
    "FullKLLoss",
    "IndependentStable",
    "IsotropicStable",
    "LIMLoss",
    "LevyModel",
    "LevyProcess",
    "LinearSchedule",
    "Loss",
    "MedianOfMeans",
    "MixtureOracle",
    "NoisePath",
    "OneVariableLoss",
    "Perturbed",
    "PlainPreconditioning",
    "PointMassOracle",
    "PositiveStable",
    "Predictor",
    "Progress",
    "Sampler",
    "Schedule",
    "SelfWeightedLoss",
    "StableOracle",
    "StablePreconditioning",
    "TrainConfig",
    "Trainer",
    "TwoVariableLoss",
    "data",
    "eps_from_score",
    "eps_from_x0",
    "fit",
    "interpolate",
    "linear_time",
    "log_ratio_spacing",
    "median_of_means",
    "quadratic_time",
    "score_from_eps",
    "x0_from_eps",
]
