"""A run on images: a training on a set of images, measured against its test set in the features of a network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..cli.images import build_images, feature_network, image_trainer
from ..features import ClassifierFeatures, reference_features, score_features
from ..fidelity import prdc
from ..files import cache_folder
from ..images import to_pixels, to_unit
from ..model import LevyModel
from .trial import Draw, Trial


@dataclass(frozen=True)
class ImageRun(Trial):
    """A training on images and what is done with it.

    Arguments:
        label, draws, evaluated, seed: See :class:`~levydiff.experiments.trial.Trial`.
        data, imbalance, flips, network, alpha, isotropic, preconditioning, loss, groups, grid, steps, batch_size, rate,
            decay, decay_every, ema: As the options of ``levydiff train``.
        features: As the option of ``levydiff evaluate``.
        held_out: Compare with the test set; else with the training set, where there is no other.
    """

    label: str
    data: str
    alpha: float
    loss: str
    draws: tuple[Draw, ...]
    features: str
    preconditioning: str = "plain"
    network: str = "unet"
    imbalance: float | None = None
    flips: bool = False
    isotropic: bool = True
    groups: int = 1
    grid: int = 0
    steps: int = 1800
    batch_size: int = 64
    rate: float = 2e-3
    decay: str = "cosine"
    decay_every: int = 400
    ema: float = 0.995
    evaluated: int = 1000
    held_out: bool = True
    seed: int = 0

    MEASURED = ("label", "draws", "features", "evaluated", "held_out")
    BATCH = 250

    def fit(self, folder: Path | None, progress: bool = False) -> LevyModel:
        options = replace(self.options(), checkpoint_every=250)
        return image_trainer(options, build_images(options), folder).fit(progress=progress)

    def judge(self) -> Callable[[Tensor], dict[str, Any]]:
        network = feature_network(self.features)
        reference = build_images(self.options(), train=not self.held_out)
        real = reference_features(network, reference.pixels, cache_folder() / "features")

        def scores(samples: Tensor) -> dict[str, Any]:
            generated = network(to_pixels(samples))
            result = asdict(score_features(network, real, generated, reference=reference.source))
            if reference.labels is not None:
                # The balls are the generated points': recall of one class is recall on its real points alone.
                parts = [real[reference.labels == k] for k in range(len(reference.classes))]
                result["class_recall"] = [prdc(part, generated).recall for part in parts]
                if isinstance(network, ClassifierFeatures):
                    found = network.classify(generated).bincount(minlength=len(parts))
                    result["class_share"] = (found / len(generated)).tolist()
            return result

        return scores


def score_of_images(run: ImageRun) -> dict[str, Any]:
    """The scores of real images, as many as a run evaluates: what a model that only remembers would get."""
    images = build_images(run.options())
    chosen = torch.randperm(len(images), generator=torch.Generator().manual_seed(run.seed))[: run.evaluated]
    return run.judge()(to_unit(images.pixels[chosen]))
