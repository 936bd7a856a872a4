"""Experiments: the paper's tables and figures, and ours, each by one command.

``levydiff reproduce NAME`` makes the runs of an experiment, on all cores, and writes ``NAME.json`` (every run),
``NAME.md`` (the table, the command, what it cost) and pictures. One file is one experiment:

===================  ===================================================================================================
``table1``           the paper's Table 1: MSLE on stable data, α × {DLPM, LIM, DDPM}
``table2``           the paper's Table 2: F1 on nine Gaussians, α × {DLPM, DLPM_5, LIM, DDPM}
``table3``           the paper's Table 3: images, and the recall of rare classes
``figure-steps``     few steps: DLIM and LIM-ODE at 5, 10, 25 on nine Gaussians
``figure-tails``     tails on stable data: α = 1.7 against α = 2
``ours``             preconditioning, losses, samplers, steps: what to choose
``tails``            Student-t and Neal's funnel from 5000 points: which α for which tail
===================  ===================================================================================================

What they share: :mod:`.trial` (one run: of points :mod:`.run`, of images :mod:`.image_run`), :mod:`.sweep` (many,
cached), :mod:`.report` (tables), :mod:`.paper` (the paper's protocol), :mod:`.reproduce` (the command).
"""

from __future__ import annotations

from importlib import import_module

from .experiment import Experiment

#: The experiments, by the names that ``levydiff reproduce`` takes.
NAMES = ("table1", "table2", "table3", "figure-steps", "figure-tails", "ours", "tails")


def load(name: str, dataset: str | None = None, budget: str | None = None) -> Experiment:
    """An experiment by its name.

    Arguments:
        name: One of :data:`NAMES`.
        dataset, budget: Of ``table3``; see there.

    Example:
        >>> load("table1").title
        'Table 1: MSLE on stable data'
    """
    if name not in NAMES:
        raise ValueError(f"name must be one of {', '.join(NAMES)}, got {name!r}")
    module = import_module(f".{name.replace('-', '_')}", __name__)
    if name == "table3":
        experiment = module.experiment(dataset or "mnist", budget or "cpu")
    elif dataset is not None or budget is not None:
        raise ValueError(f"dataset and budget are of table3, got {dataset} and {budget} for {name}")
    else:
        experiment = module.EXPERIMENT
    assert isinstance(experiment, Experiment)
    return experiment
