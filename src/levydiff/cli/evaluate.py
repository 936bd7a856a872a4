"""``levydiff evaluate``: a model's samples, or a file of samples, beside data.

All columns are brought to one scale first (the model's own scaling, else one fitted to the data), so that a column in
large units does not hide the others. A score that cannot be computed is None, with a note that says why; the others
are given all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..checks import check_count
from ..metrics import global_l1, hill, msle, prd, tail_bias, tail_error
from ..model import LevyModel
from ..scaling import Scaling, fit_scaling
from ..table import Table, default_names, read_table
from .build import DATA_SETS, build_data
from .config import EvaluateOptions
from .images import evaluate_images
from .models import column_names, load_model, unfinished

#: Columns that get scores of their own; of wider tables only the whole is scored.
MOST_COLUMNS = 20


def evaluate(subject: str, options: EvaluateOptions, quiet: bool = False) -> dict[str, Any]:
    """Compare a model's samples, or a file of samples, with data."""
    result: dict[str, Any] = {}
    scaling: Scaling | None = None
    if Path(subject).is_file():
        _refuse_image_options(options, "a file of samples")
        spec = options.data
        if spec is None:
            raise ValueError("data must be given to evaluate a file of samples, got none")
        samples, data = read_table(subject), _reference(options, spec, options.columns)
    else:
        model = load_model(subject)
        if len(model.shape) == 3:
            return unfinished(model) | evaluate_images(model, options, quiet)
        _refuse_image_options(options, "a model of points")
        scaling, result = model.scaling, unfinished(model)
        trained = model.info.get("options", {})
        spec = options.data or trained.get("data")
        if spec is None:
            raise ValueError("data must be given: the model does not say what it was trained on")
        data = _reference(options, spec, options.columns or (None if options.data else trained.get("columns")))
        if spec == trained.get("data") and spec.partition(":")[0] not in DATA_SETS:
            result["reference"] = "the table that the model was trained on"
        samples = _draw(model, options)
    names = samples.columns
    real, generated = _aligned(data, names), samples.values.double()
    scaling = scaling or fit_scaling(real, columns=names)
    real, generated = scaling.affine.apply(real), scaling.affine.apply(generated)
    result |= {"data": spec, "rows": len(real), "samples": len(generated)}
    result |= _scores(real, generated, options.seed)
    if 1 < len(names) <= MOST_COLUMNS:
        result["columns"] = {name: _column_scores(real, generated, i) for i, name in enumerate(names)}
    elif len(names) == 1:
        result |= _score("msle", lambda: msle(real, generated).mean)
    return result


def held_up_to(data: Tensor) -> float:
    """The largest quantile, up to 99.9 %, that so many data can tell."""
    return min(0.999, 1.0 - 1.0 / len(data))


def _refuse_image_options(options: EvaluateOptions, what: str) -> None:
    usual = EvaluateOptions()
    for name in ("weights", "data_dir", "features"):
        if getattr(options, name) != getattr(usual, name):
            raise ValueError(f"{name} is of models of images, got {what}")


def _points(options: EvaluateOptions) -> int:
    return 25_000 if options.points is None else check_count("points", options.points)


def _reference(options: EvaluateOptions, spec: str, columns: str | None) -> Table:
    # Another seed than the training data's, so that a synthetic reference is fresh.
    return build_data(spec, columns, _points(options), options.seed + 1_000_000)


def _draw(model: LevyModel, options: EvaluateOptions) -> Table:
    samples = model.sample(_points(options), seed=options.seed, batch_size=50_000).cpu()
    return Table(samples.to(torch.promote_types(samples.dtype, torch.float32)), column_names(model))


def _aligned(data: Table, names: Sequence[str]) -> Tensor:
    """The data's columns in the order of the samples': by name, or by position where one side has no names."""
    if set(names) <= set(data.columns):
        return data.values[:, [data.columns.index(name) for name in names]].double()
    unnamed = any(tuple(side) == default_names(len(side)) for side in (names, data.columns))
    if not unnamed or len(names) != len(data.columns):
        raise ValueError(
            f"data must have the columns of the samples, {', '.join(names)}, got {', '.join(data.columns)}: "
            "choose with columns"
        )
    return data.values.double()


def _score(name: str, compute: Callable[[], float]) -> dict[str, Any]:
    try:
        return {name: compute()}
    except ValueError as error:  # no upper tail, too few rows, many equal values: the other scores still tell something
        return {name: None, f"{name}_note": str(error)}


def _scores(real: Tensor, generated: Tensor, seed: int) -> dict[str, Any]:
    """Scores of whole rows."""
    result = _tail_scores(real, generated)
    result |= _score("global_l1", lambda: global_l1(real, generated))
    result |= _score("tail_index_data", lambda: hill(real).alpha.value)
    result |= _score("tail_index_samples", lambda: hill(generated).alpha.value)
    size = min(len(real), len(generated))  # precision and recall want as many points of one as of the other
    try:
        score = prd(_pick(real, size, seed), _pick(generated, size, seed), clusters=min(100, size), repeats=3)
        return result | {"precision": score.precision, "recall": score.recall, "f1": score.f1}
    except ValueError as error:
        return result | {"f1": None, "f1_note": str(error)}


def _tail_scores(real: Tensor, generated: Tensor, coordinate: int | None = None) -> dict[str, Any]:
    """How far the extremes are off, and in which direction."""
    upper = held_up_to(real)
    if upper <= 0.95:
        note = f"data must have more than 20 rows, got {len(real)}"
        return {"tail_error": None, "tail_error_note": note, "tail_bias": None}
    result = _score("tail_error", lambda: tail_error(real, generated, coordinate, upper=upper))
    return result | _score("tail_bias", lambda: tail_bias(real, generated, coordinate, upper=upper))


def _column_scores(real: Tensor, generated: Tensor, i: int) -> dict[str, Any]:
    """Scores of one column; tails are those of its absolute value, but for the MSLE, of its upper end."""
    result = _tail_scores(real, generated, i)
    result |= _score("tail_index_data", lambda: hill(real, coordinate=i).alpha.value)
    result |= _score("tail_index_samples", lambda: hill(generated, coordinate=i).alpha.value)
    return result | _score("msle", lambda: msle(real, generated, coordinate=i).mean)


def _pick(x: Tensor, size: int, seed: int) -> Tensor:
    return x[torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))[:size]]
