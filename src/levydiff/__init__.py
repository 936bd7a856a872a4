"""levydiff: heavy-tailed diffusion models in PyTorch.

Start with :class:`LevyProcess` (the noise), :class:`Denoiser` (your network), a loss and a sampler::

    process = LevyProcess(alpha=1.7)
    denoiser = Denoiser(network, process, StablePreconditioning(scale))
    loss = SelfWeightedLoss()(denoiser, x_0).mean()
    samples = DLIM(denoiser, steps=25, order=2)((1000, 2))
"""

from .denoise import (
    Denoiser,
    PlainPreconditioning,
    Predictor,
    StablePreconditioning,
    eps_from_score,
    eps_from_x0,
    score_from_eps,
    x0_from_eps,
)
from .implicit import interpolate
from .kl import CauchyLoss, FullKLLoss, TwoVariableLoss
from .loss import (
    DDPMLoss,
    LIMLoss,
    Loss,
    MedianOfMeans,
    OneVariableLoss,
    SelfWeightedLoss,
    median_of_means,
)
from .oracle import MixtureOracle, PointMassOracle, StableOracle
from .process import Clipping, LevyProcess, NoisePath, Perturbed
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

__version__ = "0.1.0"

__all__ = [
    "DDIM",
    "DDPM",
    "DLIM",
    "DLPM",
    "LIM",
    "LIMODE",
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
    "TwoVariableLoss",
    "eps_from_score",
    "eps_from_x0",
    "interpolate",
    "linear_time",
    "log_ratio_spacing",
    "median_of_means",
    "quadratic_time",
    "score_from_eps",
    "x0_from_eps",
]
