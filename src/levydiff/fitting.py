"""From a tensor to a model in one call."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from .denoise import Denoiser, StablePreconditioning
from .loss import Loss, OneVariableLoss, SelfWeightedLoss
from .model import LevyModel
from .nn import TailMLP
from .process import LevyProcess
from .rates import CosineDecay, LearningRate
from .scaling import check_table, scaling_for
from .train import Trainer
from .train_config import TrainConfig


def fit(
    x: Tensor | ArrayLike,
    alpha: float = 1.7,
    *,
    steps: int = 6000,
    batch_size: int = 1024,
    rate: LearningRate | None = None,
    loss: Loss | None = None,
    network: nn.Module | None = None,
    isotropic: bool = True,
    per_column: bool = True,
    compress: bool = False,
    columns: Sequence[str] | None = None,
    folder: str | Path | None = None,
    seed: int = 0,
    progress: bool = False,
) -> LevyModel:
    r"""Train a model of the rows of a table, with the library's defaults.

    The columns are centred and scaled by :func:`~levydiff.scaling.fit_scaling`; the network is
    :class:`~levydiff.nn.TailMLP` with stable preconditioning, and the loss the self-weighted one.

    Arguments:
        x: Data of shape (n, d), in their own units: a tensor, an array or a data frame of numbers.
        alpha: The stability index of the noise: 2 is Gaussian; near the data's tail index, if the tail matters.
        steps, batch_size, rate, seed, folder: See :class:`~levydiff.train.Trainer`.
        loss, network: Instead of the defaults.
        isotropic: One random variance for each sample (True), or one for each coordinate.
        per_column: A scale for each column, or one for all (which keeps directions).
        compress: Take the tails away by asinh of each column (:class:`~levydiff.scaling.AsinhScaling`), and train with
            the squared loss; for ``alpha`` = 2.
        columns: Names of the columns.
        progress: Show a progress bar.

    Example:
        >>> import torch
        >>> x = torch.randn(1000, 2, generator=torch.Generator().manual_seed(0))
        >>> model = fit(x, alpha=1.9, steps=10, batch_size=128)
        >>> model.alpha, model.sample(4).shape
        (1.9, torch.Size([4, 2]))
    """
    if not isinstance(x, Tensor):  # an array or a data frame
        columns = columns if columns is not None or not hasattr(x, "columns") else [str(name) for name in x.columns]
        x = torch.as_tensor(np.array(x, dtype=np.float64))
    check_table(x, columns)
    scaling = scaling_for(x, alpha, compress, per_column, columns)
    process = LevyProcess(alpha, isotropic=isotropic)
    if network is None:
        with torch.random.fork_rng(devices=[]):  # the seed decides the initial weights, and the caller's state is kept
            torch.manual_seed(seed)
            network = TailMLP(x.shape[1])
    scaled = scaling.apply(x).float()  # in this order: data far from 0 keep their digits
    denoiser = Denoiser(network, process, StablePreconditioning.for_data(scaled))
    config = TrainConfig(steps=steps, batch_size=batch_size, rate=rate or CosineDecay(), seed=seed)
    loss = loss or (OneVariableLoss(eta=2.0, rescaled=True) if compress else SelfWeightedLoss())
    trainer = Trainer(denoiser, loss, scaled, config, folder, scaling=scaling, columns=columns)
    return trainer.fit(progress=progress)
