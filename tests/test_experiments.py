"""Experiments: what decides a run's name, a sweep that repeats nothing, tables re-derived from records."""

import inspect
import itertools
import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import fields, replace

import joblib
import numpy as np
import pytest
import torch

from levydiff import DLPM, LevyProcess, MedianOfMeans, SelfWeightedLoss, StablePreconditioning, fit
from levydiff.cli import main
from levydiff.cli.build import build_data, build_denoiser, build_loss, build_mlp
from levydiff.data import Funnel, GaussianGrid
from levydiff.experiments import NAMES, load, ours, paper, report, table1, table2, tails
from levydiff.experiments.experiment import Experiment, small
from levydiff.experiments.likelihood import fit_funnel
from levydiff.experiments.reproduce import Sheet, _data_folder, reproduce
from levydiff.experiments.run import (
    CLUSTERS,
    FRESH,
    METRICS,
    Run,
    fitted_points,
    other_points,
    score_without_training,
    training_points,
)
from levydiff.experiments.sweep import finished, sweep
from levydiff.experiments.trial import Draw, execute, sample, train
from levydiff.metrics import msle, prd
from levydiff.nn import PaperMLP, TailMLP

IN_THE_PLANE = [name for name in NAMES if name != "table3"]  # test_table3.py is about images
TINY = Run("tiny", "stable:alpha=1.7", 1.7, "one-variable", (Draw("dlpm", 4),), "msle", steps=3, batch_size=16)
TINY = replace(TINY, points=200, evaluated=1000)


def test_the_key_is_everything_but_the_label():
    assert replace(TINY, label="another").key == TINY.key
    changes = {
        "data": "grid",
        "alpha": 1.5,
        "loss": "lim",
        "draws": (Draw("dlpm", 5),),
        "metric": "f1",
        "seed": 1,
        "network": "tail",
        "width": 32,
        "preconditioning": "stable",
        "inner": 2,
        "groups": 3,
        "grid": 10,
        "scaled": True,
        "points": 201,
        "evaluated": 1001,
        "steps": 4,
        "batch_size": 32,
        "rate": 1e-3,
        "decay": "cosine",
        "ema": 0.9,
        "isotropic": False,
    }
    assert set(changes) == {field.name for field in fields(Run)} - {"label", "compress"}
    keys = {name: replace(TINY, **{name: value}).key for name, value in changes.items()}
    assert len({*keys.values(), TINY.key}) == len(changes) + 1
    shared = {
        name for name, value in changes.items() if replace(TINY, **{name: value}).training_key == TINY.training_key
    }
    assert shared == {"draws", "metric", "evaluated"}
    assert Run.from_record(json.loads(json.dumps(TINY.to_record()))) == TINY
    scaled = replace(TINY, scaled=True)
    assert replace(scaled, compress=True).training_key != scaled.training_key
    with pytest.raises(ValueError, match="scaled must be True with compress, got False"):
        replace(TINY, compress=True)


def test_the_protocol_is_the_papers():
    run = paper.dlpm(paper.GRID, "f1", 1.7, 0)
    assert (run.points, run.evaluated, run.batch_size, run.steps, run.rate) == (32_000, 25_000, 1024, 10_000, 5e-3)
    assert (run.scaled, run.preconditioning, run.decay, run.ema) == (False, "plain", "constant", 0.0)
    assert run.draws == (Draw("dlpm", 100, 1, "linear", "independent", end=0.99),)
    options = run.options()
    denoiser = build_denoiser(options, torch.zeros(4, 2))
    assert isinstance(denoiser.backbone, PaperMLP) and denoiser.process.alpha == 1.7
    loss = build_loss(options, denoiser.process)
    assert (loss.p, loss.eta, loss.rescaled, len(loss.grid)) == (2.0, 1.0, False, 101)
    robust = build_loss(paper.dlpm_5(paper.GRID, "f1", 1.7, 0).options(), denoiser.process)
    assert isinstance(robust, MedianOfMeans) and robust.groups == 5


def test_tables_have_the_cells_they_promise():
    for module, extra in ((table1, set()), (table2, {("DLPM_5", alpha) for alpha in (1.5, 1.7, 1.9)})):
        runs = [run for run in module.runs(range(5)) if run.metric in ("msle", "f1")]
        cells = {
            (run.label, run.alpha): {r.seed for r in runs if (r.label, r.alpha) == (run.label, run.alpha)}
            for run in runs
        }
        main_cells = {(label, alpha) for label in ("DLPM", "LIM") for alpha in paper.ALPHAS} | {("DDPM", 2.0)}
        assert set(cells) == main_cells | extra
        assert all(cells[cell] == set(range(5)) for cell in main_cells)
        assert all(cells[cell] == {0, 1} for cell in extra)
        assert len({run.key for run in runs}) == len(runs)


def test_a_run_is_train_sample_measure():
    record = execute(TINY)
    assert execute(TINY)["results"] == record["results"]
    model = train(TINY)
    samples = model.sample(1000, DLPM(model.denoiser, 4), seed=0)
    fresh = build_data(TINY.data, None, 1000, FRESH).values.float()
    assert record["results"]["dlpm 4"]["msle"] == pytest.approx(msle(fresh, samples).mean, rel=1e-6)
    torch.testing.assert_close(sample(TINY, TINY.draws[0], model), samples)


def test_a_diverging_sampler_is_a_result(monkeypatch):
    def explode(*args, **kwargs):
        raise FloatingPointError("LIM met a non-finite value")

    monkeypatch.setattr("levydiff.experiments.trial.sample", explode)
    assert execute(TINY)["results"] == {"dlpm 4": {"failed": "sampling: LIM met a non-finite value"}}
    monkeypatch.setattr("levydiff.experiments.trial.train", explode)
    assert execute(TINY)["results"] == {"dlpm 4": {"failed": "training: LIM met a non-finite value"}}


def test_the_score_of_data_is_the_floor():
    # Two samples of 25000 of the same law: the metric's floor on stable data is near 0.0015 (design notes), and it is
    # never 0.
    floor = score_without_training(replace(TINY, evaluated=25_000), other_points)["msle"]
    assert 1e-4 < floor < 1e-2


def test_points_without_training():
    run = replace(TINY, data="funnel", points=300, evaluated=500, seed=4)
    drawn = [Funnel()(n, torch.Generator().manual_seed(seed)) for n, seed in ((300, 4), (500, 4 + 2 * FRESH))]
    assert torch.equal(training_points(run), drawn[0]) and torch.equal(other_points(run), drawn[1])
    law = fit_funnel(drawn[0])
    assert torch.equal(fitted_points(run), law(500, torch.Generator().manual_seed(4 + 3 * FRESH)))


def test_a_sweep_makes_each_run_once(tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr("levydiff.experiments.sweep.execute", lambda run, networks: made.append(run) or _record(run))
    runs = [replace(TINY, seed=seed) for seed in range(3)]
    threads = torch.get_num_threads()
    records = list(sweep([*runs, runs[0]], tmp_path, jobs=1, progress=False))
    assert made == runs and [record["key"] for record in records] == [run.key for run in runs]
    assert finished(runs, tmp_path) == {run.key: _record(run) for run in runs}
    assert torch.get_num_threads() == threads
    # A file that cannot be read, or is not of this run, is as good as none.
    (tmp_path / f"{runs[0].key}.json").write_text("")
    (tmp_path / f"{runs[1].key}.json").write_text(json.dumps(_record(runs[2])))
    assert set(finished(runs, tmp_path)) == {runs[2].key}


def test_a_backend_without_generators_will_do(tmp_path):
    # joblib's "multiprocessing", on which Ray's backend is built, returns lists only.
    runs = [replace(TINY, seed=seed) for seed in range(2)]
    with joblib.parallel_config(backend="multiprocessing"):
        records = list(sweep(runs, tmp_path, jobs=2, progress=False))
    assert [record["key"] for record in records] == [run.key for run in runs]


def test_two_that_need_the_same_network_train_it_once(tmp_path):
    runs = [TINY, replace(TINY, draws=(Draw("dlim", 3),))]
    assert runs[0].training_key == runs[1].training_key and runs[0].key != runs[1].key
    records = list(sweep(runs, tmp_path, jobs=2, progress=False))
    assert len(records) == 2 and not any("failed" in r for record in records for r in record["results"].values())
    folders = [path for path in (tmp_path / "networks").iterdir() if path.is_dir()]
    assert [folder.name for folder in folders] == [TINY.training_key]


def _record(run, **result):
    return {"key": run.key, "run": run.to_record(), "results": {run.draws[0].name: result}, "seconds": {"train": 1.0}}


SCRIPT = """
import sys
from dataclasses import replace
from pathlib import Path
from levydiff.experiments.run import Run
from levydiff.experiments.trial import Draw
from levydiff.experiments.sweep import finished, sweep

if __name__ == "__main__":
    run = Run("tiny", "stable:alpha=1.7", 1.7, "one-variable", (Draw("dlpm", 4),), "msle", steps=150, batch_size=512)
    run = replace(run, points=1000, evaluated=1000)
    runs, cache = [replace(run, seed=s) for s in range(4)], Path(sys.argv[1])
    made = finished(runs, cache)
    for record in sweep([run for run in runs if run.key not in made], cache, jobs=2, progress=False):
        print(record["key"], flush=True)
"""


def test_a_killed_sweep_goes_on_where_it_was(tmp_path):
    script, cache = tmp_path / "script.py", tmp_path / "cache"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), str(cache)]
    first = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    first.stdout.readline()  # one run is finished, others are under way
    workers = _children(first.pid)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    deadline = time.monotonic() + 20
    while any(map(_alive, workers)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(map(_alive, workers))  # nothing goes on behind the back of who killed it
    before = {path: path.stat().st_mtime_ns for path in cache.glob("[!.]*.json")}
    assert 1 <= len(before) < 4
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert len(done.stdout.split()) == 4 - len(before) and len(list(cache.glob("[!.]*.json"))) == 4
    assert {path: path.stat().st_mtime_ns for path in before} == before


def _children(pid):
    out = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False).stdout
    return [int(word) for word in out.split()]


def _alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().split()[2] != "Z"
    except OSError:
        return False


def test_a_dask_cluster_makes_the_same(tmp_path):
    pytest.importorskip("distributed")
    runs = [replace(TINY, seed=seed) for seed in range(3)]
    records = list(sweep(runs, tmp_path, jobs=2, dask="local", progress=False))
    expected = {run.key: execute(run)["results"] for run in runs}
    assert {record["key"]: record["results"] for record in records} == expected


def test_cells_and_their_text():
    values = [0.9, 0.93, 0.96]
    records = [_record(replace(TINY, seed=2 - seed), f1=value) for seed, value in enumerate(values)]
    assert report.scores(records, "dlpm 4", "f1", alpha=1.7, label="tiny") == values[::-1]
    assert report.scores(records, "dlim 4", "f1") == [] == report.scores(records, "dlpm 4", "f1", alpha=1.5)
    failed = [*records, _record(replace(TINY, seed=3), failed="training: a reason")]
    assert report.mean_and_spread(report.scores(failed, "dlpm 4", "f1")) == "0.930 ± 0.030 (3, 1 failed)"
    assert report.mean_and_spread(values) == "0.930 ± 0.030 (3)"
    assert report.p_value([0.9], values) == "" == report.p_value([0.5, 0.5], [0.6, 0.6])
    # Welch by hand: equal sizes and variances, t = 0.3/√(2·0.03²/3) = 12.25, ν = 4.
    assert report.p_value(values, [value + 0.3 for value in values]) == "p = 2.6e-04"
    assert report.p_value([*values, math.nan], [value + 0.3 for value in values]) == "p = 2.6e-04"


def test_the_papers_table_is_laid_out_as_in_the_paper():
    runs = [run for run in table2.runs(range(2)) if run.alpha in (1.7, 2.0) and run.metric == "f1"]
    score = {"DLPM": 0.9, "DLPM_5": 0.95, "LIM": 0.8, "DDPM": 0.7}
    less = {1000: 0.2, 2500: 0.1, 10_000: 0.0}
    records = [_record(run, f1=score[run.label] - less[run.steps] + 0.01 * run.seed) for run in runs]
    lines = [line for line in table2.table(records).splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    assert rows[0] == ["", "α = 1.7", "α = 2.0"]
    found = {row[0]: row[1:] for row in rows if row[0].startswith("**")}
    assert found == {
        "**DLPM**": ["0.905 ± 0.007 (2)", "0.905 ± 0.007 (2)"],
        "**DLPM_5**": ["0.955 ± 0.007 (2)", "–"],
        "**LIM**": ["0.805 ± 0.007 (2)", "0.805 ± 0.007 (2)"],
        "**DDPM**": ["–", "0.705 ± 0.007 (2)"],
    }
    assert ["paper", "0.933 ± 0.028", "0.862 ± 0.028"] in rows
    # (0.905 - 0.933)/√(0.00707²/2 + 0.028²/30) and (0.905 - 0.862)/…, which is below the paper's own row of DLPM
    assert rows[rows.index(["paper", "0.933 ± 0.028", "0.862 ± 0.028"]) + 1][1:] == ["-3.9", "+6.0"]
    # After fewer steps of training, beside what the main table has.
    assert rows[-6][1:] == ["1000", "2500", "10000"]
    assert [row[1:] for row in rows[-4:]] == [
        [f"{score[label] - part + 0.005:.3f} ± 0.007 (2)" for part in (0.2, 0.1, 0.0)]
        for label in ("DLPM", "DLPM", "LIM", "DDPM")
    ]


def test_table_2_by_clusters_and_starts():
    runs = table2.runs([0])
    measured = [run for run in runs if run.metric == "f1 by clusters"]
    # the same trainings, so that nothing is trained for them
    assert {run.training_key for run in measured} < {run.training_key for run in runs if run.metric == "f1"}
    records = [_record(run, f1=0.9) for run in runs if run.metric == "f1"]
    for i, run in enumerate(measured):
        results = {
            draw.name: {f"f1 of {k} clusters": i / 10 + (draw.end is None) / 100 + k / 1e6 for k in CLUSTERS}
            for draw in run.draws
        }
        records.append(_record(run) | {"results": results})
    lines = [line for line in table2.table(records).splitlines() if line.startswith("|")][-8:]
    names = ("DLPM, α = 1.7", "DLPM, α = 2.0", "LIM, α = 1.7", "DDPM, α = 2.0")
    expected = []
    for (i, name), (j, start) in itertools.product(enumerate(names), enumerate((0.99, 0.9946))):
        cells = (f"{i / 10 + j / 100 + k / 1e6:.3f} (1)" for k in CLUSTERS)
        expected.append(f"| {name} | {start} | {' | '.join(cells)} |")
    assert lines == expected
    x, y = (GaussianGrid()(1000, torch.Generator().manual_seed(seed)) for seed in (0, 1))
    scores = METRICS["f1 by clusters"](x, y[:, [1, 0]])
    assert scores == {f"f1 of {k} clusters": prd(x, y[:, [1, 0]], clusters=k, repeats=3).f1 for k in CLUSTERS}


def test_tails_beyond_the_data(monkeypatch, tmp_path):
    runs = tails.runs(range(5))
    chosen = [run for run in runs if run.metric == "beyond 99.9 %"]
    # three methods on six data sets, five seeds, of networks that the main table trains
    assert (
        len(chosen) == 90
        and {run.seed for run in chosen} == set(range(5))
        and all(len(run.draws) == 1 for run in chosen)
    )
    assert {run.training_key for run in chosen} <= {run.training_key for run in runs if run.metric == "tails"}
    assert all(run.alpha <= float(run.data.partition("=")[2] or 2) for run in chosen if run.label == "self-weighted")
    monkeypatch.setattr(
        tails, "score_without_training", lambda run, source: dict.fromkeys([*tails.COLUMNS, "tail_bias"], 0.5)
    )
    first = [run for run in chosen if run.seed == 0]
    records = [_record(run, tail_error=n / 100, tail_bias=-n / 100) for n, run in enumerate(first)]
    records.append(_record(runs[0], **dict.fromkeys(tails.COLUMNS, 0.7)))
    lines = tails.table(records).splitlines()
    for sign, shown in ((-1, lines[-6:]), (1, lines[-17:-11])):
        for i, (name, data) in enumerate(tails.DATA.items()):
            cells = " | ".join(f"{sign * (3 * i + j) / 100:.3f} (1)" for j in range(3))
            assert shown[i] == f"| {name} | {tails.BEYOND[data]} | {cells} |{2 * ' 0.500 (1) |'}"
    assert tails.pictures(records, tmp_path, tmp_path / "tails")[0].exists()  # of the others alone
    # the metric: a shift of log(2) of the logarithm of a power law with P(r) = 1/r halves or doubles the CCDF
    x = torch.from_numpy(1.0 / (1.0 - np.random.default_rng(0).random((400_000, 1))))
    # (off by a fifth where 20 and 40 points are left, by less before).
    for factor in (0.5, 2.0):
        scored = METRICS["beyond 99.9 %"](x, factor * x)
        assert scored["tail_bias"] == pytest.approx(math.log(factor), abs=0.1)
        assert scored["tail_error"] == pytest.approx(math.log(2.0), abs=0.1)
    assert METRICS["beyond 99.9 %"](x, torch.where(x > 900, x, 0.5 * x)) == {"tail_error": 0.0, "tail_bias": 0.0}


@pytest.mark.parametrize("name", IN_THE_PLANE)
def test_every_table_shows_every_score_of_its_metric(name):
    """Distinct scores for every run and draw: each must be found in the table, whatever else is missing."""
    experiment = load(name)
    quick = experiment.quick([0])
    assert 1 <= len(quick) <= 20 and all(run.steps <= 500 for run in quick)
    metric = {"table1": "msle", "figure-tails": "msle", "tails": "tail_error"}.get(name, "f1")
    shown = {"ours": ("msle", "f1")}.get(name, (metric,))
    metrics = ["msle", "f1", *(f"{m}{c}" for m in ("tail_error", "global_l1") for c in ("", "_x0", "_x1"))]
    numbers = itertools.count(101)
    records, expected = [], []
    for run in quick:
        results = {}
        for draw in run.draws:
            value = next(numbers) / 1000
            results[draw.name] = dict.fromkeys(metrics, 9.0) | dict.fromkeys(shown, value)
            expected.append(f"{value:.3f}")
        records.append({"key": run.key, "run": run.to_record(), "results": results, "seconds": {}})
    text = experiment.table(records)
    assert [value for value in expected if value not in text] == []
    assert experiment.table(records[:1])  # a sweep that has only begun


def test_reproduce_writes_and_goes_on(tmp_path, monkeypatch):
    experiment = Experiment(
        "A test",
        "A caption.",
        lambda seeds: [replace(TINY, seed=seed) for seed in seeds],
        lambda seeds: [small(TINY)],
        lambda records: f"{len(records)} rows",
        findings="Nothing.",
        seeds=2,
    )
    monkeypatch.setattr("levydiff.experiments.reproduce.load", lambda *chosen: experiment)
    folders = {"out": tmp_path / "results", "cache": tmp_path / "cache", "jobs": 1, "progress": False}
    result = reproduce("test", **folders)
    text = (tmp_path / "results" / "test.md").read_text()
    assert result["table"] == text
    assert (
        "# A test" in text
        and "A caption." in text
        and "2 rows" in text
        and "Nothing." in text
        and "`levydiff reproduce test`" in text
    )
    assert f"torch {torch.__version__}" in text
    saved = json.loads((tmp_path / "results" / "test.json").read_text())
    assert [record["run"]["seed"] for record in saved["runs"]] == [0, 1]
    assert "not how well" in reproduce("test", **folders, quick=True)["table"]
    assert (tmp_path / "results" / "test.md").read_text() == text  # a quick look does not overwrite the table
    # A third seed, with no cache: the first two are known from the results.
    monkeypatch.setattr("levydiff.experiments.sweep.execute", lambda run, networks: _record(run))
    reproduce("test", **folders | {"cache": tmp_path / "other"}, runs=3)
    again = json.loads((tmp_path / "results" / "test.json").read_text())
    assert again["runs"][:2] == saved["runs"] and len(again["runs"]) == 3
    assert len(list((tmp_path / "other").glob("*.json"))) == 1
    # Fewer seeds than before: the table is of those, but nothing is thrown away.
    assert "1 rows" in reproduce("test", **folders, runs=1)["table"]
    assert len(json.loads((tmp_path / "results" / "test.json").read_text())["runs"]) == 3
    # A run that has another name by now is found under its configuration, and has its new name in the file.
    renamed = replace(experiment, runs=lambda seeds: [replace(TINY, seed=seed, label="renamed") for seed in seeds])
    monkeypatch.setattr("levydiff.experiments.reproduce.load", lambda *chosen: renamed)
    reproduce("test", **folders, runs=2)
    labels = [r["run"]["label"] for r in json.loads((tmp_path / "results" / "test.json").read_text())["runs"]]
    assert labels == ["renamed", "renamed", TINY.label]
    (tmp_path / "results" / "test.json").write_text("<<<<<<< conflict")
    with pytest.raises(ValueError, match="test.json must be a file of results, but cannot be read"):
        reproduce("test", **folders)


def test_an_interrupt_loses_no_known_record(tmp_path, monkeypatch):
    runs = [replace(TINY, seed=seed) for seed in range(3)]
    experiment = Experiment("A test", "", lambda seeds: runs, lambda seeds: [], lambda records: "", seeds=3)
    sheet = Sheet(experiment, tmp_path / "test", "levydiff reproduce test", False, runs)
    sheet.write({run.key: _record(run) for run in runs[1:]}, "")

    def interrupted(*args, **kwargs):
        yield _record(runs[0])
        raise KeyboardInterrupt

    monkeypatch.setattr("levydiff.experiments.reproduce.load", lambda *chosen: experiment)
    monkeypatch.setattr("levydiff.experiments.reproduce.sweep", interrupted)
    with pytest.raises(KeyboardInterrupt):
        reproduce("test", out=tmp_path, cache=tmp_path / "cache", progress=False)
    assert [record["run"]["seed"] for record in json.loads((tmp_path / "test.json").read_text())["runs"]] == [0, 1, 2]


def test_the_command_line(tmp_path, capsys):
    assert main(["reproduce", "table9"]) == 2
    assert "name must be one of table1, table2" in capsys.readouterr().err
    assert main(["reproduce", "table1", "--jobs", "0"]) == 2
    assert "jobs must be" in capsys.readouterr().err


def test_the_winner_is_the_librarys_default():
    from levydiff.cli.config import SampleOptions, TrainOptions

    run, options, draw = ours.winner(paper.GRID, "f1", 1.7, 0), TrainOptions(), SampleOptions()
    assert run.network == "tail" and isinstance(build_mlp(options, 2), TailMLP)
    assert run.preconditioning == "stable"
    assert isinstance(build_denoiser(options, torch.ones(5, 2)).preconditioning, StablePreconditioning)
    assert run.loss == "self-weighted" and type(build_loss(options, LevyProcess(1.7))) is SelfWeightedLoss
    for name in ("inner", "groups", "grid", "batch_size", "rate", "decay", "ema"):
        assert getattr(run, name) == getattr(options, name), name
    assert all((d.method, d.order, d.spacing) == (draw.method, draw.order, draw.spacing) for d in run.draws)
    assert (run.steps, run.width) == (options.steps, TailMLP(2).config["width"]) and options.width is None
    signature = inspect.signature(fit).parameters
    assert (signature["steps"].default, signature["alpha"].default) == (run.steps, options.alpha)
    model = fit(torch.randn(64, 2, generator=torch.Generator().manual_seed(0)), steps=1, batch_size=8)
    assert (type(model.sampler()).__name__, model.sampler().order) == ("DLIM", 2)


@pytest.mark.parametrize("name", [name for name in IN_THE_PLANE if load(name).pictures is not None])
def test_every_picture_can_be_drawn(name, tmp_path):
    experiment = load(name)
    runs = [replace(run, steps=2, batch_size=16, points=200, evaluated=1000) for run in experiment.quick([0])]
    values = {"msle": 0.1, "f1": 0.9, "tail_error": 0.2}
    records = [_record(run) | {"results": {draw.name: values for draw in run.draws}} for run in runs]
    if name.startswith("figure"):  # of samples, so of networks in the cache: none is trained for a picture
        assert experiment.pictures(records, tmp_path / "networks", tmp_path / name) == []
        for run in runs:
            train(run, tmp_path / "networks")
    (path,) = experiment.pictures(records, tmp_path / "networks", tmp_path / name)
    assert path.name == f"{name}.png" and path.stat().st_size > 10_000


def test_a_data_folder_is_of_one_call(monkeypatch):
    for before in ("there", None):
        monkeypatch.delenv("LEVYDIFF_DATA", raising=False)
        if before is not None:
            monkeypatch.setenv("LEVYDIFF_DATA", before)
        with _data_folder("here"):
            assert os.environ["LEVYDIFF_DATA"] == "here"
        assert os.environ.get("LEVYDIFF_DATA") == before
