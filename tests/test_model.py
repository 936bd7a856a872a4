"""A model travels with everything that sampling needs."""

import json
from functools import partial

import pytest
import torch

import levydiff
from levydiff import DLPM, Denoiser, LevyModel, LevyProcess, OneVariableLoss, SelfWeightedLoss, StablePreconditioning
from levydiff.checkpoint import CheckpointError
from levydiff.nn import TailMLP
from levydiff.scaling import Scaling


def model(alpha=1.6):
    torch.manual_seed(0)
    net = TailMLP(2, width=8, blocks=1)
    torch.nn.init.normal_(net.exit.weight, std=0.1)
    scaling = Scaling(torch.tensor([10.0, -5.0]), torch.tensor([2.0, 0.5]))
    return LevyModel(
        Denoiser(net, LevyProcess(alpha, isotropic=False), StablePreconditioning(0.7)), (2,), scaling, ("a", "b")
    )


def test_round_trip(tmp_path):
    one = model()
    one.save_pretrained(tmp_path / "m")
    two = LevyModel.from_pretrained(tmp_path / "m")
    assert two.denoiser.process == one.denoiser.process and two.columns == ("a", "b") and two.shape == (2,)
    assert torch.equal(one.sample(7, seed=3), two.sample(7, seed=3))
    card = (tmp_path / "m" / "README.md").read_text()
    assert "α = 1.6" in card and "library_name: levydiff" in card
    one.save_pretrained(tmp_path / "m")  # again, over itself


def test_sample_is_in_the_units_of_the_data():
    one = model()
    plain = DLPM(one.denoiser, 20)((5, 2), torch.Generator().manual_seed(1))
    expected = plain * torch.tensor([2.0, 0.5]) + torch.tensor([10.0, -5.0])
    torch.testing.assert_close(one.sample(5, DLPM(one.denoiser, 20), seed=1), expected)
    assert torch.equal(one.sample(9, seed=2), one.sample(9, seed=2, batch_size=4))


def test_alpha_travels_and_overriding_it_is_said(tmp_path):
    one = model(1.6)
    one.save_pretrained(tmp_path / "m")
    two = LevyModel.from_pretrained(tmp_path / "m")
    assert two.alpha == 1.6
    with pytest.warns(UserWarning, match="sampling at alpha = 1.9 with a network that was trained at alpha = 1.6"):
        other = two.with_alpha(1.9)
    assert other.alpha == other.denoiser.process.schedule.alpha == 1.9 and two.alpha == 1.6
    config = tmp_path / "m" / "config.json"
    record = json.loads(config.read_text())
    record["levydiff"]["denoiser"]["alpha"] = 2.0
    config.write_text(json.dumps(record))
    with pytest.raises(CheckpointError, match="config.json is not what was saved"):
        LevyModel.from_pretrained(tmp_path / "m")


class Own(torch.nn.Module):
    """A network that is not levydiff's."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)

    def forward(self, x, t):
        return self.layer(x)


def test_names_of_columns_are_different():
    with pytest.raises(ValueError, match="columns must be different, got '1' more than once"):
        LevyModel(Denoiser(Own(), LevyProcess(1.5)), (2,), columns=("1", "1"))


def test_a_network_of_ones_own(tmp_path):
    one = LevyModel(Denoiser(Own(), LevyProcess(1.5)), (2,))
    one.save_pretrained(tmp_path / "m")
    two = LevyModel.from_pretrained(tmp_path / "m", backbone=Own())
    assert torch.equal(one.sample(3, seed=0), two.sample(3, seed=0))
    with pytest.raises(CheckpointError, match="backbone must be given"):
        LevyModel.from_pretrained(tmp_path / "m")
    with pytest.raises(CheckpointError, match="the weights do not fit the network"):
        LevyModel.from_pretrained(tmp_path / "m", backbone=torch.nn.Linear(3, 3))


def test_upload(tmp_path, monkeypatch):
    calls = {}

    class Api:
        def __init__(self, **options):
            pass

        def create_repo(self, repo_id, **options):
            calls["repo"] = repo_id
            return type("Url", (), {"repo_id": repo_id})()

        def upload_folder(self, *, folder_path, **options):
            calls["files"] = sorted(p.name for p in folder_path.iterdir())
            return "address"

    monkeypatch.setattr("huggingface_hub.hub_mixin.HfApi", Api)
    assert model().save_pretrained(tmp_path / "m", push_to_hub=True, repo_id="me/tails") == "address"
    assert calls["repo"] == "me/tails"
    assert calls["files"] == ["README.md", "config.json", "manifest.json", "model.safetensors"]


def test_what_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no model folder ./nowhere"):
        LevyModel.from_pretrained("./nowhere")
    (tmp_path / "file").write_text("x")
    with pytest.raises(OSError, match="save_directory must be a folder"):
        model().save_pretrained(tmp_path / "file")


def test_fit_by_name_and_import_cost():
    x = 5.0 + torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    fitted = levydiff.fit(x, alpha=1.8, steps=3, batch_size=32, columns=["u", "v", "w"])
    assert fitted.alpha == 1.8 and fitted.columns == ("u", "v", "w")
    torch.testing.assert_close(fitted.scaling.center.float(), x.median(0).values, atol=0.05, rtol=0)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        levydiff.nonsense  # noqa: B018
    with pytest.raises(ValueError, match="column 1"):
        levydiff.fit(torch.stack([x[:, 0], torch.ones(200)], dim=1), steps=3)


def test_fit_takes_arrays_and_frames():
    import numpy as np
    import pandas as pd

    x = np.random.default_rng(0).standard_t(3, size=(200, 2))
    frame = pd.DataFrame(x, columns=["rain", "wind"])
    a, b = (levydiff.fit(v, steps=2, batch_size=32) for v in (x, frame))
    assert a.columns is None and b.columns == ("rain", "wind")
    assert torch.equal(a.sample(3, seed=0), b.sample(3, seed=0))
    assert "fit" in dir(levydiff) and levydiff.metrics.hill(x).alpha.value > 0


def test_importing_levydiff_imports_torch_and_nothing_heavier():
    import subprocess
    import sys

    heavy = "accelerate huggingface_hub sklearn scipy.stats pandas matplotlib diffusers yaml"
    code = f"import sys, levydiff; print([m for m in {heavy.split()} if m in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_fit_resolves_data_far_from_zero():
    x = 1e9 + torch.randn(300, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    samples = levydiff.fit(x, steps=2, batch_size=32).sample(200, seed=0)
    assert samples.dtype == torch.float64 and len(samples.unique()) == 200
    assert 0.1 < (samples - 1e9).abs().median() < 10


def test_fit_of_compressed_columns(tmp_path):
    # asinh makes 100 + sinh(g) nearly Gaussian, and the untrained network is exact for Gaussian data: one step of the
    # training is enough for the far quantiles, which Gaussian noise alone does not reach.
    g = torch.randn(20_000, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x = 100.0 + torch.sinh(g)
    fitted, plain = (levydiff.fit(x, alpha=2.0, steps=1, compress=compress) for compress in (True, False))
    fitted.save_pretrained(tmp_path / "model")
    loaded = LevyModel.from_pretrained(tmp_path / "model")
    samples = loaded.sample(20_000, seed=0)
    assert torch.equal(samples, fitted.sample(20_000, seed=0))

    def log_quantile(y):
        return torch.quantile((y - 100.0).abs().flatten().double(), 0.999).log()

    # log(sinh(3.29)) = 2.60. The sampling error is 1/√20 over a hazard of 3.3, 0.07; the width of y is right to a sixth
    # before the training, half a unit here. A Gaussian of such a width ends at log 3.29 = 1.2.
    assert abs(log_quantile(x) - 2.60) < 0.2 and abs(log_quantile(samples) - 2.60) < 0.6
    assert log_quantile(plain.sample(20_000, seed=0)) < 1.5
    with pytest.raises(ValueError, match="alpha must be 2 for compressed columns, got 1.7"):
        levydiff.fit(x, compress=True)
    with pytest.warns(UserWarning, match="1.7"), pytest.raises(ValueError, match="compressed columns, got 1.7"):
        fitted.with_alpha(1.7)
    assert "compressed by asinh" in (tmp_path / "model" / "README.md").read_text()


def test_compressed_columns_have_the_squared_loss_and_go_on_in_their_folder(tmp_path, monkeypatch):
    from levydiff import fitting, train

    losses = []
    monkeypatch.setattr(
        fitting,
        "Trainer",
        lambda denoiser, loss, *a, **k: losses.append(loss) or train.Trainer(denoiser, loss, *a, **k),
    )
    x = 10**9 + torch.randint(0, 50, (300, 2), generator=torch.Generator().manual_seed(0))
    fit = partial(levydiff.fit, x.double(), alpha=2, batch_size=32, folder=tmp_path)
    samples = fit(steps=3, compress=True).sample(50, seed=0)
    assert type(losses[0]) is OneVariableLoss and (losses[0].eta, losses[0].p, losses[0].rescaled) == (2.0, 2.0, True)
    assert samples.dtype == torch.float64 and 1.0 < (samples - 1e9).abs().median() < 100.0
    assert fit(steps=6, compress=True).info["step"] == 6
    with pytest.raises(ValueError, match=r"same scaling, got .* with compressed = True \(now False\)"):
        fit(steps=9)
    fit(steps=1, folder=tmp_path / "plain")
    assert type(losses[-1]) is SelfWeightedLoss
    table = fitting.scaling_for(x.double(), 2, compress=True)
    with pytest.raises(ValueError, match="alpha must be 2 for compressed columns, got 1.6"):
        train.Trainer(model().denoiser, SelfWeightedLoss(), table.apply(x.double()).float(), scaling=table)


def test_samples_are_made_in_bounded_batches(monkeypatch):
    one = model()
    seen = []
    forward = one.denoiser.backbone.forward
    monkeypatch.setattr(one.denoiser.backbone, "forward", lambda x, t: (seen.append(len(x)), forward(x, t))[1])
    whole = one.sample(120_000, one.sampler(1), seed=0)
    assert seen == [50_000, 50_000, 20_000]  # two values each
    assert torch.allclose(whole, one.sample(120_000, one.sampler(1), seed=0, batch_size=120_000), rtol=1e-4)


def test_contradictory_and_unknown_arguments_are_refused(tmp_path):
    with pytest.raises(ValueError, match="seed or generator must be given, not both, got seed = 1 and a generator"):
        model().sample(2, seed=1, generator=torch.Generator())
    model().save_pretrained(tmp_path / "m")
    with pytest.raises(TypeError, match="options must be backbone alone for a folder, got device, backbon"):
        LevyModel.from_pretrained(tmp_path / "m", device="cuda", backbon=3)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_the_precision_survives(tmp_path, dtype):
    one = model()
    one.denoiser.to(dtype)
    one.save_pretrained(tmp_path / "m")
    two = LevyModel.from_pretrained(tmp_path / "m")
    assert two.denoiser.dtype == dtype
    assert torch.equal(one.sample(5, seed=0), two.sample(5, seed=0))
    if dtype == torch.float64:  # a network that is not ours comes in float32, and is brought to what was saved
        own = LevyModel(Denoiser(Own().double(), LevyProcess(1.7)), (2,))
        own.save_pretrained(tmp_path / "own")
        three = LevyModel.from_pretrained(tmp_path / "own", backbone=Own())
        assert torch.equal(three.sample(5, seed=0), own.sample(5, seed=0))
    explicit = Denoiser(lambda x, t: 0 * x, LevyProcess(1.7), dtype=dtype)
    with pytest.warns(UserWarning, match="alpha"):
        assert LevyModel(explicit, (2,)).with_alpha(1.9).denoiser.dtype == dtype
