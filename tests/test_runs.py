"""The folder of a run."""

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


def test_checkpoints_are_found_in_order_and_pruned(tmp_path):
    run = RunFolder(tmp_path)
    for step in (200, 5, 1000):
        run.checkpoint(step).mkdir(parents=True)
    (tmp_path / "checkpoints" / "step-x").mkdir()
    assert [p.name for p in run.checkpoints()] == ["step-000000005", "step-000000200", "step-000001000"]
    run.prune(2)
    assert run.newest() == run.checkpoint(1000) and len(run.checkpoints()) == 2
    assert RunFolder(tmp_path / "nowhere").newest() is None
