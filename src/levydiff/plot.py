"""Pictures of a run: the loss curve, samples against data, tails on log-log axes. Needs matplotlib (extra ``plot``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from .files import atomic_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DATA_COLOR = "black"


def new_figure(
    columns: int, width: float = 5.0, height: float = 4.2, ratios: Sequence[float] | None = None
) -> tuple[Any, list[Axes]]:
    """A figure that needs no screen, with a row of axes."""
    figure, axes = new_grid(1, columns, width, height, ratios)
    return figure, axes[0]


def new_grid(
    rows: int, columns: int, width: float = 5.0, height: float = 4.2, ratios: Sequence[float] | None = None
) -> tuple[Any, list[list[Axes]]]:
    """A figure that needs no screen, with rows of axes, each of the given width and height in inches."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError('pictures need matplotlib: pip install "levydiff[plot]"') from error
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    return figure, [list(row) for row in figure.subplots(rows, columns, squeeze=False, width_ratios=ratios)]


def save_figure(figure: Any, path: Path, dpi: int = 120) -> Path:
    """Write a figure whole or not at all."""
    with atomic_file(path) as temporary:
        figure.savefig(temporary, dpi=dpi)
    return path


def typical_size(x: Tensor) -> float:
    """The median of |x|; where more than half of the values are 0, their mean, or 1 if all are."""
    return float(x.abs().median()) or float(x.abs().mean()) or 1.0


def share_frame(axes: Sequence[Axes]) -> None:
    """One frame for all axes of :func:`draw_points`, the largest: what lies far out is seen, and they compare."""
    largest = max(axes, key=lambda ax: ax.get_xlim()[1])
    ticks = list(largest.get_xticks())
    for ax in axes:
        ax.set(xticks=ticks, yticks=ticks, xlim=largest.get_xlim(), ylim=largest.get_ylim())


def draw_loss(ax: Axes, lines: Sequence[Mapping[str, float]]) -> None:
    """The training loss, and the validation loss where there is one, against the step."""
    style = "-" if len(lines) > 1 else "o"
    ax.plot([line["step"] for line in lines], [line["loss"] for line in lines], style, label="training")
    checked = [line for line in lines if "validation" in line]
    if checked:
        ax.plot([line["step"] for line in checked], [line["validation"] for line in checked], "o-", label="validation")
        ax.legend()
    ax.set(xlabel="step", ylabel="loss", title="Loss")
    ax.grid(alpha=0.3)


def draw_tails(
    ax: Axes, samples: Mapping[str, Tensor], title: str = "Tails", colors: Sequence[str] = ("C0", "C1", "C2", "C3")
) -> None:
    """P(‖x‖ > r) on log-log axes, where a power law is a straight line; the first set is drawn in black."""
    for number, (name, x) in enumerate(samples.items()):
        r = np.sort(np.linalg.norm(x.cpu().double().numpy().reshape(len(x), -1), axis=1))
        style = (
            {"color": DATA_COLOR, "lw": 3.0, "zorder": 0} if number == 0 else {"lw": 1.8, "color": colors[number - 1]}
        )
        ax.loglog(r, 1.0 - np.arange(len(r)) / len(r), label=name, **style)
    middle = typical_size(next(iter(samples.values())).cpu().double().norm(dim=1))
    ax.set(xlabel="r", ylabel="P(‖x‖ > r)", title=title, xlim=(middle / 3, None))
    ax.grid(alpha=0.3, which="both")
    ax.legend(loc="lower left")


def draw_points(
    ax: Axes, x: Tensor, title: str, limit: float, color: str = "C0", names: Sequence[str] = ("x0", "x1")
) -> None:
    """The first two coordinates, on axes that are linear near 0 and logarithmic beyond ``limit``."""
    points = x[:, :2].cpu().numpy()
    y = points[:, 1] if points.shape[1] > 1 else np.zeros(len(points))
    ax.plot(points[:, 0], y, ".", ms=2.0, alpha=0.4, color=color, rasterized=True)
    largest = 1.3 * max(limit, float(np.abs(points).max()))
    for scale, set_limits in ((ax.set_xscale, ax.set_xlim), (ax.set_yscale, ax.set_ylim)):
        scale("symlog", linthresh=limit)
        set_limits(-largest, largest)
    powers = [10.0**k for k in range(-300, 300) if limit < 10.0**k < largest]
    powers = powers[:: -(-len(powers) // 3) or 1]  # three of a side at most, or their labels run into each other
    ticks = [-p for p in reversed(powers)] + [0.0, *powers]
    ax.set(title=title, xticks=ticks, yticks=ticks, xlabel=names[0], ylabel=names[1] if len(names) > 1 else "")
    ax.minorticks_off()
    ax.tick_params(labelsize=7)


def save_run_pictures(
    folder: Path,
    lines: Sequence[Mapping[str, float]],
    data: Tensor,
    samples: Tensor,
    names: Sequence[str] = ("x0", "x1"),
) -> list[Path]:
    """The three pictures of a run's folder: ``loss.png``, ``samples.png``, ``tails.png``."""
    paths = []
    if lines:
        figure, (ax,) = new_figure(1, 6.0)
        draw_loss(ax, lines)
        paths.append(save_figure(figure, folder / "loss.png"))
    figure, axes = new_figure(2)
    limit = 3.0 * typical_size(data)
    shown = min(len(data), len(samples), 5000)
    draw_points(axes[0], data[:shown], "data", limit, DATA_COLOR, names)
    draw_points(axes[1], samples[:shown], "samples", limit, "C0", names)
    figure.suptitle("first two columns; axes linear near 0, logarithmic beyond", fontsize=9)
    share_frame(axes)
    paths.append(save_figure(figure, folder / "samples.png"))
    figure, (ax,) = new_figure(1, 6.0)
    draw_tails(ax, {"data": data, "samples": samples})
    paths.append(save_figure(figure, folder / "tails.png"))
    return paths
