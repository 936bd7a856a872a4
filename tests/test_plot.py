"""Pictures: what they draw, not how it looks."""

import numpy as np
import pytest
import torch

from levydiff.plot import (
    draw_loss,
    draw_points,
    draw_tails,
    new_figure,
    save_figure,
    save_run_pictures,
    share_frame,
    typical_size,
)


def test_tails_are_the_empirical_ccdf():
    _, (ax,) = new_figure(1)
    x = torch.tensor([[3.0, 4.0], [0.0, 1.0], [0.0, 2.0], [6.0, 8.0]])
    draw_tails(ax, {"data": x, "samples": 2 * x})
    first, second = ax.get_lines()
    np.testing.assert_allclose(first.get_xdata(), [1, 2, 5, 10])
    np.testing.assert_allclose(first.get_ydata(), [1.0, 0.75, 0.5, 0.25])
    np.testing.assert_allclose(second.get_xdata(), [2, 4, 10, 20])
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["data", "samples"]


def test_loss_and_points():
    _, (left, right) = new_figure(2)
    draw_loss(left, [{"step": 1, "loss": 3.0}, {"step": 2, "loss": 2.0, "validation": 2.5}])
    np.testing.assert_allclose(left.get_lines()[1].get_ydata(), [2.5])
    draw_points(right, torch.tensor([[1.0], [500.0]]), "one column", 3.0)
    assert right.get_xlim()[1] > 500 and right.get_xscale() == "symlog"


def test_run_pictures(tmp_path):
    x = torch.randn(100, 2, generator=torch.Generator().manual_seed(0))
    paths = save_run_pictures(tmp_path, [{"step": 1, "loss": 3.0}], x, x)
    assert [p.name for p in paths] == ["loss.png", "samples.png", "tails.png"]
    assert all(p.read_bytes().startswith(b"\x89PNG") for p in paths)


def test_one_frame_for_all_shows_what_lies_far_out():
    _, axes = new_figure(2)
    near, far = torch.randn(100, 2, generator=torch.Generator().manual_seed(0)), torch.full((10, 2), 1e4)
    for ax, x in zip(axes, (near, far), strict=True):
        draw_points(ax, x, "x", 1.0)
    share_frame(axes)
    assert axes[0].get_xlim() == axes[1].get_xlim() and axes[0].get_xlim()[1] > 1e4


def test_the_typical_size_is_positive():
    assert typical_size(torch.tensor([-1.0, 2.0, 3.0])) == 2.0
    assert typical_size(torch.tensor([0.0, 0.0, 0.0, 4.0])) == 1.0  # the mean, where the median is 0
    assert typical_size(torch.zeros(3)) == 1.0


def test_a_picture_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "p.png"
    path.write_bytes(b"before")

    class Broken:
        def savefig(self, target, dpi):
            target.write_bytes(b"half")
            raise OSError("no")

    with pytest.raises(OSError, match="no"):
        save_figure(Broken(), path)
    assert path.read_bytes() == b"before" and list(tmp_path.iterdir()) == [path]
