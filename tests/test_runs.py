"""The folder of a run."""

import pytest

from levydiff.runs import RunFolder


def test_prepare_drops_what_a_kill_left(tmp_path):
    run = RunFolder(tmp_path)
    run.prepare(0)
    for step in (1, 2, 3):
        run.log({"step": step, "loss": 1.0})
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"step": 4, "lo')
    (tmp_path / "checkpoints" / ".step-000000004.abc.tmp").mkdir()
    run.prepare(2)
    assert [line["step"] for line in run.lines()] == [1, 2]
    assert list((tmp_path / "checkpoints").iterdir()) == []


def test_prepare_puts_a_model_back_whose_replacement_was_killed(tmp_path):
    # Killed between the two renames of a replacement: the old model is hidden, and a half-written new one may be too.
    run = RunFolder(tmp_path)
    (tmp_path / ".model.1a2b3c4d.old").mkdir()
    (tmp_path / ".model.1a2b3c4d.old" / "config.json").write_text("{}")
    (tmp_path / ".model.5e6f7a8b.tmp").mkdir()
    run.prepare(0)
    assert (run.model / "config.json").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoints", "model"]


def test_checkpoints_are_found_in_order_and_pruned(tmp_path):
    run = RunFolder(tmp_path)
    for step in (200, 5, 1000):
        run.checkpoint(step).mkdir(parents=True)
    (tmp_path / "checkpoints" / "step-x").mkdir()
    assert [p.name for p in run.checkpoints()] == ["step-000000005", "step-000000200", "step-000001000"]
    run.prune(2)
    assert run.newest() == run.checkpoint(1000) and len(run.checkpoints()) == 2
    assert RunFolder(tmp_path / "nowhere").newest() is None


def test_a_line_cut_short_is_left_out(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "loss": 2.0}\n{"step": 2, "lo')
    assert RunFolder(tmp_path).lines() == [{"step": 1, "loss": 2.0}]


@pytest.mark.parametrize("left", ["checkpoints/step-000000005", "model"])
def test_other_options_do_not_overwrite_a_run(tmp_path, left):
    run = RunFolder(tmp_path)
    run.remember({"alpha": 1.7})
    (tmp_path / left).mkdir(parents=True)
    run.remember({"alpha": 1.7})
    with pytest.raises(ValueError, match=r"out must be a new folder, got .* with a run of alpha = 1.7 \(now 2.0\)"):
        run.remember({"alpha": 2.0})


def test_options_are_not_overwritten_beside_a_training(tmp_path):
    run = RunFolder(tmp_path)
    run.remember({"alpha": 1.7})
    with run.locked(), pytest.raises(ValueError, match="another process trains in"):
        RunFolder(tmp_path).remember({"alpha": 2.0})
    run.remember({"alpha": 1.7})
