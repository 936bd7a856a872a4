"""Models on the command line: where they are, what their columns are called, whether they are finished."""

from __future__ import annotations

from typing import Any

from accelerate import PartialState

from ..model import LevyModel
from ..runs import RunFolder
from ..table import default_names


def load_model(path: str) -> LevyModel:
    """A model's folder, a run's folder (its model, else its newest checkpoint), or a repository of the Hub.

    It is put where the trainer would put it, on a GPU if there is one.
    """
    run = RunFolder(path)
    model = LevyModel.from_pretrained(run.model if run.model.is_dir() else run.newest() or path)
    model.denoiser.to(PartialState().device)
    return model


def column_names(model: LevyModel) -> tuple[str, ...]:
    """The names of the columns of a model of points; x0, x1, … if it has none."""
    return model.columns or default_names(model.shape[0])


def unfinished(model: LevyModel) -> dict[str, Any]:
    """What to say of a checkpoint of a run that is not at its end; nothing of a finished model."""
    step, steps = model.info.get("step"), model.info.get("training", {}).get("steps")
    return {} if step == steps else {"unfinished": f"the model is a checkpoint of step {step} of {steps}"}
