"""Images on the command line, with scikit-learn's digits, which need no files."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from levydiff.cli import main
from levydiff.cli.build import build_config, build_denoiser, build_loss, build_sampler
from levydiff.cli.config import SampleOptions, TrainOptions, merge, shipped_configs
from levydiff.cli.images import build_images, image_trainer, is_images
from levydiff.guidance import LabelDropout
from levydiff.images import to_unit
from levydiff.loss import OneVariableLoss
from levydiff.model import LevyModel
from levydiff.rates import StepDecay

SMALL = ["--steps", "4", "--batch-size", "16", "--checkpoint-every", "2", "--log-every", "2", "--samples", "9"]


def run(capsys, *arguments):
    code = main(list(arguments))
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images") / "run"
    assert main(["train", "--json", "--data", "digits", "--labels", "--out", str(folder), *SMALL]) == 0
    return folder


def test_train_writes_a_run_with_a_grid(digits, capsys):
    names = {path.name for path in digits.iterdir()}
    assert names >= {"config.json", "metrics.jsonl", "checkpoints", "model", "samples.npy", "samples.png", "loss.png"}
    assert np.load(digits / "samples.npy").shape == (9, 1, 8, 8)
    assert Image.open(digits / "samples.png").size == (3 * 18 + 2, 3 * 18 + 2)  # 8 pixels twice as large, gaps of 2
    code, out, _ = run(capsys, "info", "--json", str(digits))
    info = json.loads(out)
    assert code == 0 and info["denoiser"]["network"]["classes"] == 10 and "digits" in info["info"]["data"].lower()
    # the validation loss was computed, on a tenth of the images
    lines = [json.loads(line) for line in (digits / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["validation"] > 0


def test_a_run_goes_on_and_refuses_other_options(digits, capsys):
    command = ["train", "--json", "--data", "digits", "--labels", "--out", str(digits), *SMALL]
    assert run(capsys, *command)[0] == 0
    code, _, err = run(capsys, *command, "--flips")
    assert code == 2 and "out must be a new folder" in err and "flips = False (now True)" in err


def test_sample_images(digits, tmp_path, capsys):
    grid, values = tmp_path / "grid.png", tmp_path / "values.npy"
    common = ["--steps", "2", "--number", "5"]
    assert run(capsys, "sample", "--json", str(digits), "--out", str(grid), "--guidance", "2", *common)[0] == 0
    assert Image.open(grid).size == (3 * 18 + 2, 2 * 18 + 2)
    for batch in ("2", "5"):
        out = str(tmp_path / f"{batch}.npy")
        command = ["sample", "--json", str(digits), "--out", out, "--label", "3", "--batch-size", batch, *common]
        assert run(capsys, *command)[0] == 0
    one, other = np.load(tmp_path / "2.npy"), np.load(tmp_path / "5.npy")
    assert one.shape == (5, 1, 8, 8) and np.allclose(one, other, atol=1e-4)
    code, _, err = run(capsys, "sample", "--json", str(digits), "--out", str(values), "--label", "10", *common)
    assert code == 2 and "label must lie in 0 ... 9, got 10" in err
    code, _, err = run(capsys, "sample", "--json", str(digits), "--out", str(tmp_path / "x.csv"), *common)
    assert code == 2 and "out must end in .npy or .png for images, got x.csv" in err


def test_guidance_needs_labels_that_were_dropped(digits):
    model = LevyModel.from_pretrained(digits / "model")
    assert build_sampler(SampleOptions(guidance=2.0), model).denoiser.scale == 2.0
    model.info["options"]["label_dropout"] = 0.0  # then the class of none was never trained
    with pytest.raises(ValueError, match="guidance needs a model that was trained with a label_dropout above 0"):
        build_sampler(SampleOptions(guidance=2.0), model)


def test_evaluate_needs_features_for_the_size(digits, tmp_path, monkeypatch, capsys):
    """The shipped classifier is of 28 x 28 pixels; one of digits is trained by one command and given as weights."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = str(tmp_path / "classifier")
    code, out, err = run(capsys, "classifier", "--json", "--data", "digits", "--epochs", "2", "--out", folder)
    assert code == 0, err
    accuracy = json.loads(out)["accuracy"]
    code, out, err = run(capsys, "evaluate", "--json", str(digits), "--points", "20", "--weights", folder)
    assert code == 0, err
    result = json.loads(out)
    assert accuracy > 0.5 and result["count"] == 20
    assert result["frechet"] > result["training images score"]["frechet"] > 0  # four steps of training
    assert "digits" in result["reference"].lower() and "sha256" in result["features"]
    code, _, err = run(capsys, "evaluate", "--json", str(digits), "--features", "inception", "--weights", "nowhere.pth")
    assert code == 2 and len(err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--data", "mnist", "--data-dir", "nowhere"], "folder must be a folder that exists, got nowhere"),
        (["--data", "digits", "--network", "tail"], "network must be unet or paper-unet for images, got tail"),
        (["--data", "digits", "--width", "8"], "width is of networks for points, but the data are images, got 8"),
        (["--data", "digits", "--columns", "a"], "columns is of points and tables, but the data are images, got a"),
        (["--data", "digits", "--points", "9"], "points is of points and tables, but the data are images, got 9"),
        (["--data", "digits", "--label-dropout", "0.2"], "label_dropout is of images with labels, but the data are"),
        (["--data", "digits", "--samples", "-3"], "samples must be at least 0, got -3"),
        (["--data", "digits", "--network", "paper-unet"], "size must be 32, 64 or 128 for the paper's network, got 8"),
        (["--data", "digits", "--imbalance", "0.5"], "imbalance must be finite and at least 1, got 0.5"),
        (["--data", "digits", "--label-dropout", "2", "--labels"], "probability must lie in [0, 1], got 2"),
        (["--data", "stable", "--flips"], "flips is of images, but the data are points, got True"),
        (["--data", "stable", "--network", "unet"], "network must be tail or paper for points and tables, got unet"),
        (["--data", "stable", "--config", "smal"], "one of paper-cifar10_lt, paper-mnist, small, got smal"),
    ],
)
def test_bad_options_are_one_sentence(arguments, sentence, tmp_path, capsys):
    code, _, err = run(capsys, "train", "--json", "--out", str(tmp_path / "run"), *arguments)
    assert code == 2 and sentence in err and len(err.strip().splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_a_folder_with_a_corrupt_image_is_one_sentence(tmp_path, capsys):
    folder = tmp_path / "pictures"
    folder.mkdir()
    Image.fromarray(np.zeros((8, 8), dtype=np.uint8)).save(folder / "good.png")
    (folder / "bad.png").write_bytes(b"not an image")
    code, _, err = run(capsys, "train", "--json", "--data", str(folder), "--out", str(tmp_path / "run"), *SMALL)
    assert code == 2 and "bad.png" in err and len(err.strip().splitlines()) == 1


def test_what_is_an_image(tmp_path):
    assert all(is_images(spec) for spec in ("mnist", "cifar10_lt", "hf:owner/name", "x.zip", str(tmp_path)))
    assert not any(is_images(spec) for spec in ("stable:alpha=1.7", "returns.csv", "x.npy"))


def test_a_run_in_a_folder_named_like_its_data_is_not_taken_for_images(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    command = ["train", "--json", "--data", "grid", "--out", "grid", "--steps", "2", "--points", "100"]
    for _ in range(2):
        code, _, err = run(capsys, *command, "--batch-size", "8", "--samples", "0")
        assert code == 0, err


def test_evaluate_refuses_images_of_another_shape(digits, capsys):
    options = ["--features", "efficientnet", "--data", "mnist", "--points", "9"]
    data = Path(__file__).parents[2] / "shared" / "data"
    if not data.is_dir():
        pytest.skip("needs MNIST")
    code, _, err = run(capsys, "evaluate", "--json", str(digits), "--data-dir", str(data), *options)
    assert code == 2 and "data must be images of shape (1, 8, 8) as the model's, got (1, 32, 32)" in err


def test_long_tailed_digits_are_trained_on_but_not_tested_on():
    options = TrainOptions(data="digits", imbalance=10.0)
    train, test = build_images(options), build_images(options, train=False)
    counts = train.labels.bincount()
    assert counts[0] == 10 * counts[-1] or abs(float(counts[0] / counts[-1]) - 10) < 1
    assert test.labels.bincount().min() > 20


def test_labels_are_dropped_in_training():
    options = TrainOptions(data="digits", labels=True, label_dropout=0.2, batch_size=8)
    loss = image_trainer(options, build_images(options), None).objective.loss
    assert isinstance(loss, LabelDropout) and (loss.null, loss.probability) == (10, 0.2)


@pytest.mark.parametrize("name", ["small", "paper-mnist", "paper-cifar10_lt"])
def test_shipped_configurations_are_valid(name):
    options = merge(TrainOptions, {}, name)
    assert yaml.safe_load(shipped_configs()[name].read_text()).items() <= vars(options).items()
    config = build_config(options)
    assert config.steps == options.steps
    if name == "small":
        images = build_images(TrainOptions(data="digits"))
        assert build_denoiser(options, to_unit(images.pixels[:10])).backbone.config["patch"] == 2
    else:
        assert isinstance(config.rate, StepDecay) and config.rate.every == options.decay_every
        denoiser = build_denoiser(TrainOptions(alpha=1.7), to_unit(build_images(TrainOptions(data="digits")).pixels))
        assert type(build_loss(options, denoiser.process)) is OneVariableLoss
