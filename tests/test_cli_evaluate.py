"""levydiff evaluate: what is compared with what, in which units, and what is said of it."""

import json
import shutil

import numpy as np
import pytest
import torch
from test_cli import TABLE, run

from levydiff import LevyModel
from levydiff.metrics import global_l1

N = 3000


def write(path, columns, **values):
    rows = np.stack([values[name] for name in columns], axis=1)
    np.savetxt(path, rows, delimiter=",", header=",".join(columns), comments="")
    return str(path)


def columns(seed):
    rng = np.random.default_rng(seed)
    return {"a": 1000.0 * rng.standard_t(2, N), "b": rng.standard_normal(N)}


@pytest.fixture
def trained(tmp_path, capsys):
    path = write(tmp_path / "t.csv", ("a", "b"), **columns(0))
    code, _, err = run(capsys, "train", "--json", "--data", path, "--out", str(tmp_path / "run"), *TABLE)
    assert code == 0, err
    return tmp_path / "run"


def evaluate(capsys, *arguments):
    code, out, err = run(capsys, "evaluate", "--json", *map(str, arguments))
    assert code == 0, err
    return json.loads(out)


def test_every_column_counts_whatever_its_units(tmp_path, capsys):
    """b is a thousand times smaller than a; samples with a constant b must not pass."""
    data = write(tmp_path / "t.csv", ("a", "b"), **columns(0))
    good = evaluate(capsys, write(tmp_path / "good.csv", ("a", "b"), **columns(1)), "--data", data)
    wrong = columns(1) | {"b": 5.0 + 1e-3 * np.random.default_rng(2).random(N)}
    bad = evaluate(capsys, write(tmp_path / "bad.csv", ("a", "b"), **wrong), "--data", data)
    assert good["f1"] > 0.9 and bad["f1"] < 0.2
    assert bad["columns"]["b"]["tail_error"] > 5 * good["columns"]["b"]["tail_error"]
    # a is t with 2 degrees of freedom, b Gaussian: Hill's interval around 2 is ±0.5 at k = √3000
    assert 1.3 < good["columns"]["a"]["tail_index_data"] < 2.7 < good["columns"]["b"]["tail_index_data"]


def test_the_bias_says_whether_extremes_are_too_many_or_too_few(tmp_path, capsys):
    data = write(tmp_path / "t.csv", ("a", "b"), **columns(0))
    for factor in (0.5, 2.0):
        wrong = columns(0) | {"b": factor * columns(0)["b"]}
        result = evaluate(capsys, write(tmp_path / "s.csv", ("a", "b"), **wrong), "--data", data)
        a, b = (result["columns"][name] for name in "ab")
        assert a["tail_bias"] == 0.0 and abs(b["tail_bias"]) == pytest.approx(b["tail_error"])
        assert (b["tail_bias"] > 0.5) == (factor > 1) and (result["tail_bias"] > 0) == (factor > 1)


def test_columns_are_matched_by_name(tmp_path, capsys):
    data = write(tmp_path / "t.csv", ("a", "b"), **columns(0))
    straight = evaluate(capsys, write(tmp_path / "ab.csv", ("a", "b"), **columns(1)), "--data", data)
    swapped = evaluate(capsys, write(tmp_path / "ba.csv", ("b", "a"), **columns(1)), "--data", data)
    assert straight["tail_error"] == pytest.approx(swapped["tail_error"]) and list(swapped["columns"]) == ["b", "a"]
    assert straight["columns"]["a"] == pytest.approx(swapped["columns"]["a"])
    other = write(tmp_path / "c.csv", ("a", "c"), a=columns(1)["a"], c=columns(1)["b"])
    code, _, err = run(capsys, "evaluate", other, "--data", data)
    assert code == 2 and "data must have the columns of the samples, a, c, got a, b: choose with columns" in err
    np.save(tmp_path / "s.npy", np.stack(list(columns(1).values()), axis=1))  # no names: by position
    unnamed = evaluate(capsys, tmp_path / "s.npy", "--data", data)
    assert unnamed["tail_error"] == pytest.approx(straight["tail_error"])


def test_the_models_own_columns_are_taken_from_a_wider_table(trained, tmp_path, capsys):
    wide = write(tmp_path / "wide.csv", ("c", "b", "a"), c=np.arange(N), **columns(3))
    assert list(evaluate(capsys, trained, "--data", wide)["columns"]) == ["a", "b"]


def test_a_reference_that_was_trained_on_is_said(trained, tmp_path, capsys):
    assert evaluate(capsys, trained)["reference"] == "the table that the model was trained on"
    assert "reference" in evaluate(capsys, trained, "--data", tmp_path / "t.csv")
    other = write(tmp_path / "other.csv", ("a", "b"), **columns(5))
    assert "reference" not in evaluate(capsys, trained, "--data", other)


def test_what_cannot_be_computed_does_not_take_the_rest_with_it(tmp_path, capsys):
    few = {name: values[:40] for name, values in columns(0).items()}
    data = write(tmp_path / "few.csv", ("a", "b"), **few)
    result = evaluate(capsys, write(tmp_path / "s.csv", ("a", "b"), **few), "--data", data)
    assert result["f1"] == pytest.approx(1.0, abs=1e-6) and result["tail_error"] == pytest.approx(0.0)
    few = write(tmp_path / "fewer.csv", ("a", "b"), **{name: values[:20] for name, values in columns(0).items()})
    result = evaluate(capsys, few, "--data", few)
    assert result["tail_error"] is None is result["tail_bias"]
    assert result["tail_error_note"] == "data must have more than 20 rows, got 20"
    dry = {"a": np.where(np.arange(N) < 5, 1.0, 0.0), "b": columns(0)["b"]}  # Hill needs more than 5 rainy days
    result = evaluate(capsys, write(tmp_path / "dry.csv", ("a", "b"), **dry), "--data", tmp_path / "dry.csv")
    assert result["columns"]["a"]["tail_index_data"] is None and result["f1"] > 0.9
    assert "tail_index_data_note" in result["columns"]["a"]


def test_a_checkpoint_is_said_to_be_one(trained, capsys):
    shutil.rmtree(trained / "model")
    for checkpoint in sorted((trained / "checkpoints").iterdir())[1:]:
        shutil.rmtree(checkpoint)
    assert "step 4 of 6" in evaluate(capsys, trained, "--points", 500)["unfinished"]


@pytest.mark.parametrize("option", ["weights", "data-dir", "features"])
def test_options_of_images_are_refused(trained, tmp_path, capsys, option):
    value = "inception" if option == "features" else "x"
    for subject in (trained, tmp_path / "t.csv"):
        code, _, err = run(capsys, "evaluate", str(subject), "--data", str(tmp_path / "t.csv"), f"--{option}", value)
        assert code == 2 and f"{option.replace('-', '_')} is of models of images" in err


def test_the_tails_of_a_compressed_model_count(tmp_path, capsys):
    """Columns are brought to one scale, but not bent as for the training: L1 is an area in units of their scales."""
    data = columns(0)
    command = ["train", "--json", "--data", write(tmp_path / "t.csv", ("a", "b"), **data), *TABLE, "--alpha", "2"]
    code, _, err = run(capsys, *command, "--compress", "--out", str(tmp_path / "run"))
    assert code == 0, err
    result = evaluate(capsys, tmp_path / "run", "--points", "2000")
    model = LevyModel.from_pretrained(tmp_path / "run" / "model")
    real, samples = (
        x.double().numpy() / model.scaling.scale.numpy()
        for x in (torch.tensor(np.stack([data["a"], data["b"]], axis=1)), model.sample(2000, seed=1))
    )
    center = (model.scaling.center / model.scaling.scale).numpy()
    assert result["global_l1"] == pytest.approx(global_l1(real - center, samples - center), rel=1e-4)
