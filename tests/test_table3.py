"""levydiff.experiments.table3 and image_run: the table of images; on scikit-learn's digits where one is trained."""

import itertools
import re
from dataclasses import replace

import pytest
import torch

from levydiff.experiments import load, table3
from levydiff.experiments.image_run import ImageRun
from levydiff.experiments.table3_pictures import pictures
from levydiff.experiments.trial import Draw, execute
from levydiff.images import ImageSet, to_unit

TINY = ImageRun(
    "tiny",
    "digits",
    1.7,
    "self-weighted",
    (Draw("dlim", 2, 2, "quadratic"), Draw("dlpm", 2)),
    "classifier",
    preconditioning="stable",
    steps=2,
    batch_size=8,
    evaluated=20,
)
MNIST = table3.SETTINGS["mnist", "cpu"]


def _fake(run, value):
    """A record of a run whose scores all follow from ``value``, one thousandth more for each draw."""
    names = ("frechet", "precision", "recall", "density", "coverage")
    results = {}
    for number, draw in enumerate(run.draws):
        score = dict.fromkeys(names, value + number / 100)
        results[draw.name] = score | {"features": "F", "reference": "R", "count": 9, "class_recall": [value] * 10}
        results[draw.name]["class_share"] = [value / 1000] * 10
    return {"key": run.key, "run": run.to_record(), "results": results, "seconds": {}}


@pytest.fixture
def _no_images(monkeypatch):
    """Tables are made from records alone."""

    def missing(run):
        raise FileNotFoundError("no data")

    monkeypatch.setattr(table3, "score_of_images", missing)
    table3._floor.cache_clear()


@pytest.mark.usefixtures("_no_images")
@pytest.mark.parametrize("dataset", ["mnist", "mnist_lt", "cifar10_lt"])
def test_every_score_is_in_the_table(dataset):
    setting = table3.SETTINGS[dataset, "cpu"]
    runs = table3.runs(setting, [0])
    values = itertools.count(10)
    records = [_fake(run, float(next(values))) for run in runs]
    text = table3.table(setting, records)
    shown = {round(float(number), 2) for number in re.findall(r"\| (\d+\.\d\d) \(1\)", text)}
    few = {draw.name for run in runs for draw in run.draws if draw.steps in (5, 10)}
    expected = {
        round(score["frechet"], 2) for record in records for name, score in record["results"].items() if name not in few
    }
    assert shown == expected
    assert "Features: F. Reference: R." in text
    assert ("Recall of each class" in text) == (dataset == "mnist_lt")
    assert ("Samples that the classifier takes for each digit" in text) == (dataset == "mnist_lt")
    if dataset == "mnist_lt":  # 10/1000 is 1.0 %, in all ten columns of the first run's rows
        assert "| " + " | ".join(["1.0"] * 10) + " |" in text
    assert table3.table(setting, records[:1])  # a sweep that has only begun


@pytest.mark.usefixtures("_no_images")
def test_a_method_that_failed_is_counted():
    record = _fake(table3.runs(MNIST, [0])[0], 1.0)
    record["results"]["dlpm 100"] = {"failed": "sampling: not finite"}
    assert "(0, 1 failed)" in table3.table(MNIST, [record])


def test_all_rows_are_trained_alike():
    """The same network, data and budget for every row: only the noise, the loss and the preconditioning differ."""
    for setting in table3.SETTINGS.values():
        runs = table3.runs(setting, [0])
        free = {"label", "draws", "alpha", "loss", "preconditioning", "isotropic", "groups", "grid"}
        shared = [{k: v for k, v in run.to_record().items() if k not in free} for run in runs]
        assert all(options == shared[0] for options in shared)
        assert len({run.key for run in runs}) == len(runs)


def test_the_papers_budget_is_the_papers():
    run = table3.runs(table3.SETTINGS["cifar10_lt", "paper"], [0])[2]
    assert (run.label, run.network, run.steps, run.batch_size) == ("DLPM", "paper-unet", 400_000, 100)
    assert (run.rate, run.decay, run.decay_every, run.ema, run.grid) == (2e-4, "step", 1000, 0.9999, 4000)
    assert run.draws[0] == Draw("dlpm", 4000) and run.flips and run.evaluated == 5000
    run = table3.runs(table3.SETTINGS["mnist", "paper"], [0])[2]
    assert (run.steps, run.batch_size, run.rate, run.decay_every, run.ema) == (120_000, 256, 1e-3, 400, 0.99)


def test_a_run_is_made_and_kept(tmp_path, monkeypatch):
    """Two steps of training on digits, both samplers, all scores; the network is reused and drawn."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    # the shipped classifier looks at 28 x 28 pixels
    monkeypatch.setattr("levydiff.experiments.image_run.build_images", _large_digits)
    record = execute(TINY, tmp_path / "networks")
    for name in ("dlim2 2 quadratic", "dlpm 2"):
        result = record["results"][name]
        assert result["frechet"] > 1.0 and 0.0 <= result["recall"] <= 1.0 and len(result["class_recall"]) == 10
        assert result["reference"].startswith("digits enlarged") and "classifier" in result["features"]
    assert ImageRun.from_record(record["run"]) == TINY
    monkeypatch.setattr("levydiff.train.Trainer.train_step", None)  # nothing is trained again
    assert execute(replace(TINY, evaluated=21), tmp_path / "networks")["results"]["dlpm 2"]["count"] == 21
    assert (tmp_path / "networks" / TINY.training_key / "model").is_dir()
    paths = pictures([record], tmp_path / "networks", tmp_path / "table3")
    assert [path.name for path in paths] == ["table3-steps.png", "table3-samples.png"]
    assert all(path.stat().st_size > 1000 for path in paths)


def _large_digits(options, train=True):
    from levydiff.sources import load_images

    images = load_images("digits", train=train)
    pixels = images.pixels.repeat_interleave(3, 2).repeat_interleave(3, 3)
    padded = torch.nn.functional.pad(pixels, (2, 2, 2, 2))
    return ImageSet(padded, images.labels, images.classes, "digits enlarged")


def test_recall_is_that_of_the_classes_by_their_sizes(tmp_path, monkeypatch):
    """The balls belong to the generated points, so recall over all is the mean of the classes', by their sizes."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("levydiff.experiments.image_run.build_images", _large_digits)
    training, test = _large_digits(None), _large_digits(None, train=False)
    result = TINY.judge()(to_unit(training.pixels[:100]))
    sizes = test.labels.bincount()
    mean = sum(float(n) * recall for n, recall in zip(sizes, result["class_recall"], strict=True)) / len(test)
    assert 0.0 < result["recall"] < 1.0 and mean == pytest.approx(result["recall"])
    assert sum(result["class_share"]) == pytest.approx(1.0)
    # The classifier of MNIST reads most of these enlarged digits as what they are.
    for k in (0, 1, 6):
        share = TINY.judge()(to_unit(training.pixels[training.labels == k][:50]))["class_share"]
        assert share[k] > 0.5, (k, share)


def test_unknown_settings_are_refused():
    with pytest.raises(ValueError, match="dataset must be one of mnist, mnist_lt, cifar10_lt, and budget cpu or paper"):
        load("table3", "imagenet")
    with pytest.raises(ValueError, match="dataset and budget are of table3, got mnist and None for table1"):
        load("table1", "mnist")
    assert load("table3").title == "Table 3: images, mnist"
