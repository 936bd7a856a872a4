r"""A trained model: the denoiser, the units of the data, and how it came about; all that sampling needs.

Example:
    >>> import torch, levydiff
    >>> x = levydiff.data.StudentT(df=1.5)(2000, torch.Generator().manual_seed(0))
    >>> model = levydiff.fit(x, alpha=1.5, steps=20, batch_size=256)
    >>> model.sample(5, seed=0).shape
    torch.Size([5, 2])
"""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import ModelCard, ModelHubMixin, snapshot_download
from torch import Tensor, nn

from . import __version__
from .checkpoint import CheckpointError, Folder, build_denoiser, denoiser_config, load_weights, write_folder
from .denoise import Denoiser
from .sample import DLIM, Sampler
from .scaling import AsinhScaling, Scaling, check_gaussian
from .schedule import quadratic_time
from .table import check_names

_CARD = """---
library_name: levydiff
tags: [levydiff, diffusion, heavy-tails]
---
# A levydiff model

Noise: {noise}, α = {alpha}. Data: {shape} in each sample{scaling}. Trained with levydiff {version}.

```python
from levydiff import LevyModel

model = LevyModel.from_pretrained("this folder, or this repository: owner/name")
samples = model.sample(1000)
```

```json
{info}
```
"""


class LevyModel(ModelHubMixin):
    r"""Everything needed to sample, in one object that can be saved and shared.

    α, the schedule, the isotropy of the noise, the preconditioning and the scaling of the data travel with the weights.
    :meth:`sample` returns data in their own units. ``save_pretrained``, ``from_pretrained`` and ``push_to_hub``
    are those of huggingface_hub; a folder holds safetensors and JSON, and loading it executes nothing.

    Arguments:
        denoiser: The trained network, in scaled units.
        shape: The shape of one sample.
        scaling: From data to scaled units; none by default.
        columns: Names of the columns of a table.
        info: How it was trained; kept with the model, as JSON.

    Example:
        >>> import tempfile
        >>> from levydiff import LevyProcess, StablePreconditioning
        >>> from levydiff.nn import TailMLP
        >>> model = LevyModel(Denoiser(TailMLP(2), LevyProcess(1.7), StablePreconditioning()), shape=(2,))
        >>> folder = tempfile.mkdtemp() + "/model"
        >>> model.save_pretrained(folder)
        >>> torch.equal(LevyModel.from_pretrained(folder).sample(3, seed=0), model.sample(3, seed=0))
        True
    """

    def __init__(
        self,
        denoiser: Denoiser,
        shape: Sequence[int],
        scaling: Scaling | None = None,
        columns: Sequence[str] | None = None,
        info: dict[str, Any] | None = None,
    ) -> None:
        check_gaussian(isinstance(scaling, AsinhScaling), denoiser.process.alpha)
        self.denoiser = denoiser
        self.shape = tuple(int(n) for n in shape)
        self.scaling = scaling
        self.columns = None if columns is None else check_names(columns)
        self.info = info or {}

    @property
    def alpha(self) -> float:
        """The stability index that the model was trained with."""
        return self.denoiser.process.alpha

    def sampler(self, steps: int = 50) -> Sampler:
        """The default sampler: second-order DLIM, times even in √t."""
        return DLIM(self.denoiser, steps, spacing=quadratic_time, order=2)

    def sample(
        self,
        n: int,
        sampler: Sampler | None = None,
        *,
        seed: int | None = None,
        batch_size: int | None = None,
        progress: bool = False,
        generator: torch.Generator | None = None,
        **cond: Any,
    ) -> Tensor:
        """Draw n samples, in the units of the data; float64 where float32 does not resolve them.

        Arguments:
            n: How many.
            sampler: Any sampler around ``self.denoiser``; :meth:`sampler` by default.
            seed: The same seed gives the same samples, whatever ``batch_size``.
            batch_size: Work on so many at a time, to bound memory; as many as have 100000 values by default.
            progress: Show a progress bar.
            generator: The source of randomness, instead of a seed.
            cond: Handed to the network.
        """
        if seed is not None:
            if generator is not None:
                raise ValueError(f"seed or generator must be given, not both, got seed = {seed} and a generator")
            generator = torch.Generator().manual_seed(seed)
        batch_size = batch_size or max(1, 100_000 // math.prod(self.shape))
        x = (sampler or self.sampler())((n, *self.shape), generator, batch_size=batch_size, progress=progress, **cond)
        return x if self.scaling is None else self.scaling.invert(x)

    def with_alpha(self, alpha: float) -> LevyModel:
        """The same network driven by noise of another α than it was trained with, which is said in a warning."""
        warnings.warn(
            f"sampling at alpha = {alpha} with a network that was trained at alpha = {self.alpha}",
            UserWarning,
            stacklevel=2,
        )
        process = self.denoiser.process
        process = replace(process, alpha=alpha, schedule=replace(process.schedule, alpha=alpha))
        d = self.denoiser
        other = Denoiser(d.backbone, process, d.preconditioning, d.learned_variance, d._dtype)
        return LevyModel(other, self.shape, self.scaling, self.columns, self.info)

    def to_record(self) -> dict[str, Any]:
        """All but the weights, as JSON."""
        return {
            "levydiff": {
                "version": __version__,
                "denoiser": denoiser_config(self.denoiser),
                "shape": list(self.shape),
                "scaling": None if self.scaling is None else self.scaling.to_json(),
                "columns": None if self.columns is None else list(self.columns),
                "info": self.info,
            }
        }

    def save_pretrained(self, save_directory: str | Path, **options: Any) -> str | None:
        """Write the model into a folder, all or nothing; with ``push_to_hub=True`` upload it as well."""
        path = Path(save_directory)
        if path.is_file():
            raise OSError(f"save_directory must be a folder, got the file {path}")
        self._save_pretrained(path)
        if not options.pop("push_to_hub", False):
            return None
        return str(self.push_to_hub(options.pop("repo_id", None) or path.name, **options))

    def _save_pretrained(self, save_directory: Path) -> None:
        write_folder(save_directory, {"model": self.denoiser.state_dict()}, {"config": self.to_record()})
        self.generate_model_card().save(save_directory / "README.md")

    def generate_model_card(self, *_: Any, **__: Any) -> ModelCard:
        """The README of the model's folder."""
        noise = "isotropic" if self.denoiser.process.isotropic else "independent components"
        info = json.dumps(self.info, indent=2)
        scaling = ", compressed by asinh" if isinstance(self.scaling, AsinhScaling) else ""
        values = {"scaling": scaling, "noise": noise, "alpha": self.alpha, "shape": self.shape, "version": __version__}
        return ModelCard(_CARD.format(info=info, **values))

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: str | Path, **options: Any) -> LevyModel:
        """Load a model from a folder or from the Hub; every byte of a folder is checked against its manifest.

        Arguments:
            pretrained_model_name_or_path: A folder (a model's or a checkpoint's), or the name of a repository.
            options: ``backbone`` for a network that is not levydiff's own; the rest as in huggingface_hub.
        """
        backbone: nn.Module | None = options.pop("backbone", None)
        path = str(pretrained_model_name_or_path)
        if not os.path.exists(path):
            if path.count("/") != 1 or path.startswith((".", "/")):
                raise FileNotFoundError(f"there is no model folder {path}")
            path, options = snapshot_download(path, **options), {}
        if options:
            raise TypeError(f"options must be backbone alone for a folder, got {', '.join(options)}")
        return cls.from_folder(Folder(path), backbone)

    @classmethod
    def from_folder(cls, folder: Folder, backbone: nn.Module | None = None) -> LevyModel:
        """The model of a folder that was checked."""
        record = folder.record("config").get("levydiff")
        if record is None:
            raise CheckpointError(f"{folder.path} holds no model of levydiff, but something else")
        denoiser = build_denoiser(record["denoiser"], backbone)
        load_weights(denoiser, folder.tensors("model"), folder.path)
        denoiser.eval()
        scaling = None if record["scaling"] is None else Scaling.from_json(record["scaling"])
        return cls(denoiser, record["shape"], scaling, record["columns"], record["info"])
