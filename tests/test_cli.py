"""The command line, as a person would use it."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

import levydiff
from levydiff import Denoiser, LevyModel, LevyProcess, StablePreconditioning
from levydiff.cli import main
from levydiff.cli.build import build_sampler
from levydiff.cli.config import SampleOptions
from levydiff.nn import TailMLP

TABLE = ["--steps", "6", "--batch-size", "64", "--width", "8", "--blocks", "1"]
TABLE += ["--checkpoint-every", "2", "--log-every", "2", "--samples", "0"]
SMALL = [*TABLE, "--points", "400"]


def run(capsys, *arguments):
    code = main(list(arguments))
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture
def trained(tmp_path, capsys):
    code, _, err = run(capsys, "train", "--json", "--data", "stable", "--out", str(tmp_path / "run"), *SMALL)
    assert code == 0, err
    return tmp_path / "run"


def test_train_writes_a_run(tmp_path, capsys):
    arguments = [
        "train",
        "--json",
        "--data",
        "student-t:df=1.5",
        "--out",
        str(tmp_path / "run"),
        *SMALL,
        "--samples",
        "1500",
    ]
    code, out, err = run(capsys, *arguments)
    assert code == 0, err
    result = json.loads(out)
    assert result["alpha"] == 1.7 and result["steps"] == 6
    names = {p.name for p in (tmp_path / "run").iterdir()}
    assert names >= {"config.json", "metrics.jsonl", "checkpoints", "model", "samples.npy"}
    assert names >= {"loss.png", "samples.png", "tails.png"}
    # the same command again: nothing left to do; another one in the same folder: refused
    assert run(capsys, *arguments)[0] == 0
    code, _, err = run(capsys, *arguments, "--alpha", "1.5")
    assert code == 2 and "out must be a new folder" in err and "alpha = 1.7" in err


def test_sample_streams_and_does_not_depend_on_the_batch(trained, tmp_path, capsys):
    for name, batch in (("a.npy", "1000"), ("b.npy", "300")):
        code, out, err = run(
            capsys, "sample", str(trained), "--json", "--number", "1000", "--steps", "3", "--out", str(tmp_path / name),
            "--batch-size", batch,
        )  # fmt: skip
        assert code == 0, err
        assert json.loads(out)["number"] == 1000
    a, b = np.load(tmp_path / "a.npy"), np.load(tmp_path / "b.npy")
    assert a.shape == (1000, 2)
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    code, out, _ = run(
        capsys, "sample", str(trained), "--number", "5", "--out", str(tmp_path / "c.csv"), "--method", "dlpm"
    )
    assert code == 0 and (tmp_path / "c.csv").read_text().startswith("x0,x1\n")


def test_overriding_alpha_is_said(trained, tmp_path, capsys):
    code, out, _ = run(
        capsys, "sample", str(trained), "--json", "--number", "5", "--alpha", "1.9", "--out", str(tmp_path / "a.npy")
    )
    assert code == 0 and json.loads(out)["trained_at_alpha"] == 1.7 and json.loads(out)["alpha"] == 1.9


def test_an_unfinished_run_is_said(trained, tmp_path, capsys):
    shutil.rmtree(trained / "model")
    for checkpoint in sorted((trained / "checkpoints").iterdir())[1:]:
        shutil.rmtree(checkpoint)
    code, out, _ = run(capsys, "sample", str(trained), "--json", "--number", "5", "--out", str(tmp_path / "a.npy"))
    assert code == 0 and "step 4 of 6" in json.loads(out)["unfinished"]


def test_evaluate_and_info(trained, tmp_path, capsys):
    code, out, err = run(capsys, "evaluate", str(trained), "--json", "--points", "2000")
    assert code == 0, err
    assert json.loads(out)["tail_error"] > 0 and json.loads(out)["data"] == "stable"
    run(capsys, "sample", str(trained), "--number", "2000", "--out", str(tmp_path / "s.npy"))
    code, out, _ = run(capsys, "evaluate", str(tmp_path / "s.npy"), "--data", "stable", "--points", "2000")
    assert code == 0 and "tail_error" in out
    code, out, _ = run(capsys, "info", str(trained), "--json")
    assert json.loads(out)["denoiser"]["alpha"] == 1.7
    code, out, _ = run(capsys, "info", str(trained))
    assert code == 0 and "CosineSchedule" in out


def test_config_file_and_overrides(tmp_path, capsys):
    file = tmp_path / "run.yaml"
    file.write_text("alpha: 1.5\nsteps: 77\n")
    code, out, _ = run(capsys, "train", "--config", str(file), "--steps", "88", "--print-config")
    printed = yaml.safe_load(out)
    assert code == 0 and printed["alpha"] == 1.5 and printed["steps"] == 88
    file.write_text(out)  # what was printed can be given back
    assert run(capsys, "train", "--config", str(file), "--print-config")[1] == out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("alfa: 1.5", "config has no option 'alfa'; the options are data,"),
        ("alpha: high", "config's alpha must be of type float, got 'high'"),
        ("steps: true", "config's steps must be of type int, got True"),
        ("loss: best", "config's loss must be one of self-weighted,"),
        ("- 1", "config must be a mapping of option to value"),
        ("a: [", "config must be a YAML file"),
    ],
)
def test_bad_config(tmp_path, capsys, text, message):
    (tmp_path / "c.yaml").write_text(text)
    code, _, err = run(capsys, "train", "--config", str(tmp_path / "c.yaml"))
    assert code == 2 and message in err and err.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,b\n1,2\n3,nan\n4,5\n", "row 1, column 1 ('b')"),
        ("a,b\n1,2\n3,inf\n4,5\n", "row 1, column 1 ('b')"),
        ("a,b\n", "rows"),
        ("", "empty"),
        ("a,b\n1,2\n", "rows"),
        ("a,b\n1,7\n2,7\n3,7\n", "column 1 ('b')"),
        ("a,b\n1,2\n3,rain\n", "row 1, column 1 ('b')"),
        ("a;b\n1;2\n3;4\n", "separated by commas"),
    ],
)
def test_bad_tables(tmp_path, capsys, content, message):
    path = tmp_path / "t.csv"
    path.write_text(content)
    code, _, err = run(capsys, "train", "--data", str(path), "--out", str(tmp_path / "run"), *TABLE)
    assert code == 2 and message in err and err.count("\n") == 1, err
    assert not (tmp_path / "run").exists()


def test_one_column(tmp_path, capsys):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).standard_t(2, size=300).astype(np.float32))
    code, _, err = run(
        capsys, "train", "--json", "--data", str(tmp_path / "x.npy"), "--out", str(tmp_path / "run"), *TABLE
    )
    assert code == 0, err
    code, _, err = run(
        capsys, "sample", str(tmp_path / "run"), "--json", "--number", "5", "--out", str(tmp_path / "s.npy")
    )
    assert code == 0 and np.load(tmp_path / "s.npy").shape == (5, 1), err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "--alpha", "2.1"], "alpha must lie in (0, 2], got 2.1"),
        (["train", "--data", "moon"], "data must be a file or one of stable,"),
        (["train", "--data", "student-t:df=-1"], "cannot be made"),
        (["train", "--data", "nowhere.csv"], "nowhere.csv"),
        (["train", "--loss", "ddpm"], "process.alpha must be 2 for DDPMLoss, got 1.7"),
        (["train", "--validation", "1.5"], "validation must lie in [0, 1), got 1.5"),
        (["sample", "nowhere"], "there is no model folder nowhere"),
        (["info", "nowhere"], "nowhere is not a levydiff folder"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path, capsys, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    code, _, err = run(capsys, *arguments)
    assert code == 2 and message in err and err.count("\n") == 1, err


def test_help_reads_well(capsys):
    for command in ([], ["train"], ["sample"], ["evaluate"], ["demo"], ["info"]):
        with pytest.raises(SystemExit) as stop:
            main([*command, "--help"])
        assert stop.value.code == 0
    assert "stability index" in capsys.readouterr().out


def test_demo(tmp_path, capsys):
    code, out, err = run(capsys, "demo", "--json", "--steps", "3", "--points", "2000", "--out", str(tmp_path / "demo"))
    assert code == 0, err
    assert (tmp_path / "demo" / "demo.png").stat().st_size > 10_000
    assert len(json.loads(out)["tail_error"]) == 4


def test_where_and_how_sampling_starts():
    model = LevyModel(Denoiser(TailMLP(2, width=8), LevyProcess(1.7)), (2,))
    grid = build_sampler(SampleOptions(method="dlpm", steps=10, spacing="linear", end=0.9), model).grid
    torch.testing.assert_close(grid, torch.linspace(0.0, 0.9, 11, dtype=torch.float64))
    assert float(build_sampler(SampleOptions(steps=10), model).grid[-1]) == pytest.approx(0.9946)
    starts = [build_sampler(SampleOptions(method="dlpm", start=s), model) for s in ("independent", "consistent")]
    assert [sampler.consistent_start for sampler in starts] == [False, True]
    with pytest.raises(ValueError, match="t_max"):
        build_sampler(SampleOptions(end=1.5), model)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("train --data stable --decay-every 5", "decay_every is of decay = step, got 5 with decay = cosine"),
        ("train --data stable --compress", "alpha must be 2 for compressed columns, got 1.7"),
        ("train --data stable --loss squared", "alpha must be 2 for the loss squared, got 1.7"),
        ("train --data stable --alpha 2 --loss squared --inner 2", "inner must be 1 for the loss squared, got 2"),
        ("train --data digits --compress", "compress is of points and tables"),
        ("train --data stable --groups 0", "groups must be a whole number of at least 1, got 0"),
        ("train --data stable --inner -2", "inner must be a whole number of at least 1, got -2"),
        ("train --data stable --checkpoint-every -1", "checkpoint_every must be a whole number of at least 1, got -1"),
        ("train --data x.npy --points 5", "points is of synthetic data sets, got 5 with data = x.npy"),
        ("train --data stable:dim=2.5", "data 'stable:dim=2.5' cannot be made: dim must be a whole number"),
        ("demo --data x.csv", "data must be one of stable, grid"),
        ("demo --data stable:dim=3", "data must have two dimensions for the demo, got 3 of stable:dim=3"),
        ("reproduce table1 --data-dir x", "data_dir is of table3, got x for table1"),
        ("reproduce table3 --data-dir x --dask tcp://y:1", "data_dir does not reach a cluster: set LEVYDIFF_DATA"),
    ],
)
def test_options_without_effect_are_refused(tmp_path, monkeypatch, capsys, line, message):
    monkeypatch.chdir(tmp_path)
    code, _, err = run(capsys, *line.split())
    assert code == 2 and message in err and err.count("\n") == 1, err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "dlim", "start": "consistent"}, "start is of dlpm, got consistent with method = dlim"),
        ({"method": "dlpm", "order": 7}, "order must be 1 or 2, got 7"),
    ],
)
def test_options_of_other_samplers_are_refused(options, message):
    model = LevyModel(Denoiser(TailMLP(2, width=8), LevyProcess(1.7)), (2,))
    with pytest.raises(ValueError, match=message):
        build_sampler(SampleOptions(**options), model)


def test_whole_floats_are_dimensions(tmp_path, capsys):
    command = ["train", "--json", "--data", "stable:dim=2.0", "--out", str(tmp_path / "run"), *SMALL]
    assert run(capsys, *command)[0] == 0


def test_a_folder_of_something_else_is_no_model(capsys):
    weights = str(Path(levydiff.__file__).parent / "weights" / "mnist")
    for command in (["info", weights], ["sample", weights]):
        code, _, err = run(capsys, *command)
        assert code == 2 and "holds no model of levydiff, but something else" in err


def test_rain_is_mostly_zero(tmp_path, capsys):
    rain = np.random.default_rng(0).pareto(1.5, size=(300, 2)) * (np.random.default_rng(1).random((300, 2)) < 0.3)
    np.save(tmp_path / "rain.npy", rain)
    command = ["train", "--json", "--data", str(tmp_path / "rain.npy"), "--out", str(tmp_path / "run"), *TABLE]
    code, _, err = run(capsys, *command, "--samples", "200")
    assert code == 0 and (tmp_path / "run" / "samples.png").exists(), err


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_models_of_other_precisions_are_sampled_and_evaluated(tmp_path, capsys, dtype):
    denoiser = Denoiser(TailMLP(2, width=8).to(dtype), LevyProcess(1.7), StablePreconditioning())
    LevyModel(denoiser, (2,), columns=("a", "b")).save_pretrained(tmp_path / "m")
    out = str(tmp_path / "s.npy")
    assert run(capsys, "sample", str(tmp_path / "m"), "--number", "7", "--out", out)[0] == 0
    wide = np.float64 if dtype == torch.float64 else np.float32
    assert np.load(out).dtype == wide
    data = ["--data", "student-t:df=2", "--points", "2000"]
    code, printed, err = run(capsys, "evaluate", "--json", str(tmp_path / "m"), *data)
    assert code == 0, err
    assert json.loads(printed)["tail_error"] > 0


def test_the_default_loss_has_a_name(tmp_path, capsys):
    """A run says which loss trained it, and the same loss by name goes on with it."""
    line = ["train", "--json", "--data", "stable", "--alpha", "2", *SMALL, "--out"]
    for name, options, other in (("bent", ["--compress"], "squared"), ("straight", [], "self-weighted")):
        folder = str(tmp_path / name)
        assert run(capsys, *line, folder, *options)[0] == 0
        assert json.loads((tmp_path / name / "config.json").read_text())["loss"] == other
        code, _, err = run(capsys, *line, folder, *options, "--loss", other)
        assert code == 0, err
    code, _, err = run(capsys, *line, str(tmp_path / "bent"))
    assert code == 2 and "loss = 'squared' (now 'self-weighted'), compress = True (now False)" in err
    # a run of before there was the option goes on, and does not become another
    config = tmp_path / "straight" / "config.json"
    config.write_text(json.dumps({k: v for k, v in json.loads(config.read_text()).items() if k != "compress"}))
    assert run(capsys, *line, str(tmp_path / "straight"))[0] == 0
    config.write_text(json.dumps({k: v for k, v in json.loads(config.read_text()).items() if k != "compress"}))
    code, _, err = run(capsys, *line, str(tmp_path / "straight"), "--compress", "--loss", "self-weighted")
    assert code == 2 and "compressed = False (now True)" in err, err
    code, _, err = run(capsys, "sample", str(tmp_path / "bent"), "--alpha", "1.7")
    assert code == 2 and "alpha must be 2 for compressed columns, got 1.7" in err
