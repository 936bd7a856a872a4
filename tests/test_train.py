"""Training: exact resume, several processes, and what happens when something goes wrong."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from levydiff import (
    Clipping,
    Denoiser,
    LevyModel,
    LevyProcess,
    LIMLoss,
    MedianOfMeans,
    OneVariableLoss,
    SelfWeightedLoss,
    StablePreconditioning,
    TrainConfig,
    Trainer,
)
from levydiff.batches import Batches
from levydiff.checkpoint import Folder
from levydiff.nn import TailMLP
from levydiff.rates import ConstantRate, LearningRate
from levydiff.runs import RunFolder
from levydiff.training_state import loss_record

DATA = torch.randn(300, 2, generator=torch.Generator().manual_seed(0))


def denoiser(alpha=1.7):
    torch.manual_seed(1)
    return Denoiser(TailMLP(2, width=16, blocks=1), LevyProcess(alpha), StablePreconditioning())


def trainer(folder=None, steps=12, data=DATA, loss=None, net=None, **options):
    defaults = {
        "batch_size": 64,
        "checkpoint_every": 4,
        "log_every": 2,
        "validate_every": 4,
        "rate": ConstantRate(1e-2),
    }
    config = TrainConfig(steps=steps, **(defaults | options))
    return Trainer(net or denoiser(), loss or SelfWeightedLoss(), data, config, folder, validation=DATA[:50])


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.denoiser.parameters()])


def test_it_learns():
    # A point mass at (3, 3) in units where preconditioning expects 0: the loss must fall well below its start.
    lines = []
    data = torch.full((200, 2), 3.0) + 0.1 * torch.randn(200, 2, generator=torch.Generator().manual_seed(2))
    trainer(steps=300, data=data, log_every=50).fit(progress=False, callback=lines.append)
    assert lines[-1]["loss"] < 0.3 * lines[0]["loss"]


def test_resume_is_bit_identical(tmp_path):
    whole = trainer(tmp_path / "whole").fit(progress=False)
    first = trainer(tmp_path / "parts")
    while first.step < 6:  # stop between two checkpoints
        first.train_step()
        if first.step == 4:
            first.save_checkpoint()
    resumed = trainer(tmp_path / "parts")
    model = resumed.fit(progress=False)
    assert torch.equal(weights(whole), weights(model))
    a, b = (Folder(RunFolder(tmp_path / name).newest()) for name in ("whole", "parts"))
    for name in ("weights", "model", "optimizer"):
        left, right = a.tensors(name), b.tensors(name)
        assert left.keys() == right.keys() and all(torch.equal(left[k], right[k]) for k in left)


class _Dropout(torch.nn.Module):
    """Draws from torch's own generator at every step of training."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.Dropout(0.5), torch.nn.Linear(32, 2))

    def forward(self, x, t):
        return self.layers(x)


def test_dropout_resumes_where_it_was(tmp_path):
    def run(folder, steps):
        torch.manual_seed(3)  # a fresh process begins with another state than the run had when it was stopped
        return trainer(folder, steps, net=Denoiser(_Dropout(), LevyProcess(1.7)))

    whole = run(tmp_path / "whole", 8).fit(progress=False)
    run(tmp_path / "parts", 4).fit(progress=False)
    assert torch.equal(weights(run(tmp_path / "parts", 8).fit(progress=False)), weights(whole))


def test_the_log_goes_on_where_it_was(tmp_path):
    # Stopped between two lines of the log: the next one is the mean over all of its steps, and the clock goes on.
    def run(name):
        return trainer(tmp_path / name, log_every=6, validate_every=0)

    run("whole").fit(progress=False)
    first = run("parts")
    first.seconds_before = 1000.0
    while first.step < 4:
        first.since_log.add(first.train_step())
    first.save_checkpoint()
    run("parts").fit(progress=False)
    whole, parts = (RunFolder(tmp_path / name).lines() for name in ("whole", "parts"))
    assert [line["step"] for line in parts] == [6, 12]
    assert [line["loss"] for line in parts] == [line["loss"] for line in whole]
    assert 1000.0 < parts[0]["seconds"] < parts[1]["seconds"] < 1500.0


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"seed": 1}, r"same settings, got .* with seed = 0 \(now 1\)"),
        ({"rate": ConstantRate(1e-3)}, r"same settings, got .* with rate = .*0.01.*\(now .*0.001"),
        ({"batch_size": 32}, "same settings, got .* with batch_size = 64"),
        ({"loss": OneVariableLoss()}, "same loss, got .* with kind = 'SelfWeightedLoss'"),
        ({"steps": 3}, "steps must be at least the 4 of .*, got 3"),
    ],
)
def test_another_training_is_refused(tmp_path, change, what):
    trainer(tmp_path, 4).fit(progress=False)
    with pytest.raises(ValueError, match=what):
        trainer(tmp_path, **({"steps": 8} | change)).fit(progress=False)
    longer = trainer(tmp_path, 8, keep=1, log_every=4, accumulate=2)  # this may change
    assert longer.fit(progress=False).info["step"] == 8


def test_the_loss_is_compared_with_all_of_its_numbers(tmp_path):
    trainer(tmp_path, 4, loss=MedianOfMeans(OneVariableLoss(), groups=2)).fit(progress=False)
    with pytest.raises(ValueError, match="same loss, got .* with groups = 2"):
        trainer(tmp_path, 8, loss=MedianOfMeans(OneVariableLoss(), groups=3)).fit(progress=False)
    with pytest.raises(ValueError, match="same loss, got .* with loss = .*'eta': 1"):
        trainer(tmp_path, 8, loss=MedianOfMeans(OneVariableLoss(eta=0.5), groups=2)).fit(progress=False)


def test_what_cannot_be_stored_is_told_at_once(tmp_path):
    with pytest.raises(TypeError, match="info, columns and the denoiser must be storable as JSON: .*int64"):
        Trainer(denoiser(), SelfWeightedLoss(), DATA, folder=tmp_path, info={"n": np.int64(3)})
    # numpy's own numbers are no obstacle anywhere else
    net = TailMLP(np.int64(2), classes=np.int64(3), vector_dim=np.int64(0), width=np.int64(8))
    numbers = Denoiser(net, LevyProcess(np.float32(1.5)), StablePreconditioning(np.float32(0.5)))
    config = TrainConfig(np.int64(2), 8, ema=np.float32(0.5), seed=np.int64(3), clip_gradient=np.float32(1.0))
    batches = Batches(DATA, 8, 3, {"label": torch.zeros(300, dtype=torch.long)})
    Trainer(numbers, SelfWeightedLoss(), batches, config, tmp_path).fit(progress=False)
    assert LevyModel.from_pretrained(tmp_path / "model").info["training"]["seed"] == 3


def test_two_trainings_do_not_share_a_folder(tmp_path):
    with RunFolder(tmp_path).locked(), pytest.raises(ValueError, match="another process trains in"):
        trainer(tmp_path).fit(progress=False)
    assert RunFolder(tmp_path).newest() is None
    trainer(tmp_path, 4).fit(progress=False)


SCRIPT = """
import sys, torch
sys.path.insert(0, {tests!r})
from test_train import trainer
torch.set_num_threads(1)
trainer({folder!r}, steps=150, checkpoint_every=1, log_every=1).fit(progress=False)
"""


def test_sigkill_twenty_times(tmp_path):
    # Checkpoints every step, killed at random moments: nothing unreadable, and the end is the uninterrupted run's.
    trainer(tmp_path / "whole", steps=150, checkpoint_every=1, log_every=1).fit(progress=False)
    folder = tmp_path / "killed"
    script = SCRIPT.format(tests=str(Path(__file__).parent), folder=str(folder))
    clock = random.Random(0)
    kills = 0
    while kills < 20:
        process = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE)
        before = RunFolder(folder).newest()
        while RunFolder(folder).newest() == before and process.poll() is None:
            time.sleep(0.002)
        time.sleep(clock.uniform(0.0, 0.03))
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        code = process.wait()
        for path in RunFolder(folder).checkpoints():
            Folder(path)  # every byte is checked
        if code == 0:
            break
        assert code == -signal.SIGKILL, process.stderr.read().decode()
    trainer(folder, steps=150, checkpoint_every=1, log_every=1).fit(progress=False)
    assert kills == 20
    a, b = (Folder(tmp_path / name / "checkpoints" / "step-000000150") for name in ("whole", "killed"))
    for name in ("weights", "model", "optimizer"):
        left, right = a.tensors(name), b.tensors(name)
        assert all(torch.equal(left[k], right[k]) for k in left)
    lines = [json.loads(line)["step"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert lines == list(range(1, 151))
    assert not list((folder / "checkpoints").glob(".*"))


def test_a_polite_stop_loses_nothing(tmp_path):
    whole = trainer(tmp_path / "whole").fit(progress=False)
    run = trainer(tmp_path / "stopped", checkpoint_every=100)
    step, handler = run.train_step, signal.getsignal(signal.SIGINT)  # a shell's background jobs ignore it

    def interrupted():
        if run.step == 6:
            os.kill(os.getpid(), signal.SIGINT)
        return step()

    run.train_step = interrupted
    with pytest.raises(KeyboardInterrupt, match="stopped after step 7"):
        run.fit(progress=False)
    assert RunFolder(tmp_path / "stopped").newest().name == "step-000000007"
    assert signal.getsignal(signal.SIGINT) is handler
    assert torch.equal(weights(trainer(tmp_path / "stopped").fit(progress=False)), weights(whole))


PARALLEL = """
import json, sys, torch
sys.path.insert(0, {tests!r})
from test_train import trainer, weights
torch.set_num_threads(1)
lines = []
t = trainer(steps=10, log_every=1, accumulate={accumulate})
assert t.accelerator.num_processes == {processes}
model = t.fit(progress=False, callback=lines.append)
if t.accelerator.is_main_process:
    json.dump({{"loss": [l["loss"] for l in lines], "weights": weights(model).tolist()}}, open({out!r}, "w"))
"""


def torchrun(script, processes):
    # torchrun sets up the processes as `accelerate launch` does; here on the gloo backend.
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    environment = os.environ | {"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*command, str(script)], capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]


def launch(tmp_path, processes, accumulate=1):
    out, script = tmp_path / f"{processes}-{accumulate}.json", tmp_path / f"run-{processes}-{accumulate}.py"
    tests = str(Path(__file__).parent)
    script.write_text(PARALLEL.format(tests=tests, accumulate=accumulate, processes=processes, out=str(out)))
    torchrun(script, processes)
    result = json.loads(out.read_text())
    return torch.tensor(result["loss"]), torch.tensor(result["weights"])


def test_two_processes_follow_the_curve_of_one(tmp_path):
    loss_1, weights_1 = launch(tmp_path, 1)
    loss_2, weights_2 = launch(tmp_path, 2)
    torch.testing.assert_close(loss_2, loss_1, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(weights_2, weights_1, rtol=1e-3, atol=1e-5)


def test_accumulation_is_the_same_batch():
    a, b = (trainer(steps=6, accumulate=n).fit(progress=False) for n in (1, 4))
    torch.testing.assert_close(weights(a), weights(b), rtol=1e-3, atol=1e-5)


def test_average_of_the_weights():
    # The first average is the first weights, then d·average + (1 - d)·weights with d = min(decay, (1 + n)/(10 + n)).
    run = trainer(ema=0.3)
    expected = None
    for n in range(8):
        run.train_step()
        now = torch.cat([p.detach().flatten() for p in run.denoiser.parameters()])
        decay = min(0.3, (1 + n) / (10 + n))
        expected = now if expected is None else decay * expected + (1 - decay) * now
    torch.testing.assert_close(weights(run.model()), expected)
    assert trainer(ema=0.0).averaged is not run.averaged
    alone = trainer(ema=0.0, steps=2)
    assert alone.fit(progress=False).denoiser is alone.denoiser  # without an average: the weights themselves


def test_folder(tmp_path):
    run = trainer(tmp_path, keep=2)
    run.fit(progress=False)
    assert [p.name for p in RunFolder(tmp_path).checkpoints()] == ["step-000000008", "step-000000012"]
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [2, 4, 6, 8, 10, 12]
    assert all("validation" in line for line in lines if line["step"] % 4 == 0)
    assert Folder(tmp_path / "model").record("config")["levydiff"]["denoiser"]["alpha"] == 1.7
    with pytest.raises(ValueError, match="folder must be new unless the run is resumed"):
        trainer(tmp_path).fit(resume=False)


def test_a_non_finite_loss_stops_the_run(tmp_path):
    class Exploding(TailMLP):
        calls = 0

        def forward(self, x, t, label=None, vector=None):
            Exploding.calls += 1
            return super().forward(x, t) * (float("nan") if Exploding.calls > 6 else 1.0)

    torch.manual_seed(0)
    net = Denoiser(Exploding(2, width=8), LevyProcess(1.5), StablePreconditioning())
    run = trainer(tmp_path, net=net, validate_every=0)
    pattern = (
        r"the loss is nan at step 6, alpha = 1.5: the largest A of the batch was [\d.e+]+; the last good checkpoint"
    )
    with pytest.raises(FloatingPointError, match=pattern):
        run.fit(progress=False)
    assert [p.name for p in RunFolder(tmp_path).checkpoints()] == ["step-000000004"]
    Folder(RunFolder(tmp_path).newest())


def test_a_read_only_folder_is_an_error(tmp_path, monkeypatch):
    run = trainer(tmp_path)
    for _ in range(4):
        run.train_step()
    run.save_checkpoint()
    if os.geteuid() == 0:  # root writes everywhere: let the system say no

        def refuse(*args, **kwargs):
            raise OSError(30, "Read-only file system")

        monkeypatch.setattr("pathlib.Path.mkdir", refuse)
    else:
        (tmp_path / "checkpoints").chmod(0o500)
    run.train_step()
    with pytest.raises(OSError, match="cannot write step-000000005 into .*checkpoints: (Read-only|Permission)"):
        run.save_checkpoint()
    monkeypatch.undo()
    (tmp_path / "checkpoints").chmod(0o700)
    assert Folder(RunFolder(tmp_path).newest()).record("training")["step"] == 4


def test_gradient_clipping():
    # With the norm clipped to c and plain SGD the step is at most rate·c; Adam is scale-free, so look at the gradient.
    run = trainer(clip_gradient=1e-3, loss=OneVariableLoss())
    seen = []
    original = run.optimizer.step
    run.optimizer.step = lambda: (
        seen.append(torch.cat([p.grad.flatten() for p in run.denoiser.parameters()]).norm()),
        original(),
    )
    run.train_step()
    assert float(seen[0]) == pytest.approx(1e-3, rel=1e-3)


def test_validation_with_conditions():
    torch.manual_seed(0)
    net = Denoiser(TailMLP(2, width=8, classes=2), LevyProcess(1.7), StablePreconditioning())
    label = torch.arange(300) % 2
    data = Batches(DATA, 64, 0, {"label": label})
    config = TrainConfig(steps=2, batch_size=64, log_every=1, validate_every=1)
    lines = []
    run = Trainer(net, SelfWeightedLoss(), data, config, validation=Batches(DATA[:50], 1, 0, {"label": label[:50]}))
    model = run.fit(progress=False, callback=lines.append)
    assert all(line["validation"] > 0 for line in lines)
    assert model.sample(4, label=torch.tensor([0, 1, 0, 1])).shape == (4, 2)
    with pytest.raises(ValueError, match="label must be a tensor with 4 rows, one for each sample, got int"):
        model.sample(4, label=1)


def test_a_run_goes_on_with_the_same_denoiser_only(tmp_path):
    trainer(tmp_path, steps=4).fit(progress=False)
    with pytest.raises(ValueError, match=r"same denoiser, got .* with alpha = 1.7 \(now 1.5\)"):
        trainer(tmp_path, steps=8, net=denoiser(1.5)).fit(progress=False)


def test_a_run_goes_on_with_the_same_data_only(tmp_path):
    trainer(tmp_path, steps=4, data=DATA).fit(progress=False)
    with pytest.raises(ValueError, match=f"data must be those the run began with, {len(DATA)} rows, got 299"):
        trainer(tmp_path, steps=8, data=DATA[1:]).fit(progress=False)
    for other in (DATA.flip(0), DATA.flip(1), -DATA, 2 * DATA):
        with pytest.raises(ValueError, match="got as many rows of other values, or another order of rows or columns"):
            trainer(tmp_path, steps=8, data=other).fit(progress=False)
    # Rounding is no change: a scaling fitted on another machine may differ in the last digit.
    assert trainer(tmp_path, steps=8, data=DATA * (1 + 1e-6)).fit(progress=False).info["step"] == 8


def test_a_run_goes_on_with_the_same_names_and_conditions_only(tmp_path):
    def run(columns, label, steps=4):
        net = Denoiser(TailMLP(2, width=8, blocks=1, classes=2), LevyProcess(1.7))
        data = Batches(DATA, 64, 0, {"label": (torch.arange(300) + label) % 2})
        config = TrainConfig(steps=steps, batch_size=64)
        return Trainer(net, SelfWeightedLoss(), data, config, tmp_path, columns=columns).fit(progress=False)

    run(("a", "b"), 0)
    with pytest.raises(ValueError, match=r"same columns, got .* with columns = \['a', 'b'\] \(now \['b', 'a'\]\)"):
        run(("b", "a"), 0)
    with pytest.raises(ValueError, match="conditions must be those the run began with"):
        run(("a", "b"), 1)
    assert run(("a", "b"), 0, steps=8).info["step"] == 8


def test_a_loss_is_told_by_its_clipping():
    plain, clipped, other = (loss_record(LIMLoss(clipping=c)) for c in (None, Clipping(), Clipping(norm=5.0)))
    assert plain["clipping"] is None and clipped["clipping"]["kind"] == "Clipping"
    assert len({json.dumps(record, sort_keys=True) for record in (plain, clipped, other)}) == 3


def test_rounding_is_no_other_denoiser(tmp_path):
    # A scale that was fitted by more threads may differ in the last digits.
    def run(steps, scale):
        net = Denoiser(TailMLP(2, width=8, blocks=1), LevyProcess(1.7), StablePreconditioning(scale))
        return trainer(tmp_path, steps, net=net).fit(progress=False)

    run(4, 0.7)
    with pytest.raises(ValueError, match="same denoiser"):
        run(8, 0.701)
    assert run(8, 0.7 * (1 + 1e-9)).info["step"] == 8


def test_bad_input():
    with pytest.raises(ValueError, match="data must come in batches of config.batch_size = 64, got 32"):
        trainer(data=Batches(DATA, 32, 0))
    with pytest.raises(ValueError, match="batch_size must be a multiple of processes x accumulate = 7, got 64"):
        trainer(accumulate=7)
    with pytest.raises(ValueError, match="steps must be a whole number of at least 1, got 0"):
        TrainConfig(steps=0)
    with pytest.raises(ValueError, match=r"ema must lie in \[0, 1\), got 1"):
        TrainConfig(ema=1.0)
    with pytest.raises(ValueError, match="precision must be no, bf16 or fp16, got 'fp8'"):
        TrainConfig(precision="fp8")
    with pytest.raises(ValueError, match="eta must be below alpha = 1 for the loss to be finite"):
        trainer(net=denoiser(1.0), loss=OneVariableLoss())


def test_missing_trackers_are_refused():
    with pytest.raises(ValueError, match="trackers must be installed, got nonsense, which is not"):
        trainer(trackers=("nonsense",))


def test_compiled_networks_keep_their_names(tmp_path, monkeypatch):
    compiled = []
    monkeypatch.setattr(torch.nn.Module, "compile", lambda self, *a, **k: compiled.append(self))
    run = trainer(tmp_path, steps=4, compile=True)
    run.fit(progress=False)
    assert compiled == [run.denoiser.backbone]
    assert LevyModel.from_pretrained(tmp_path / "model").alpha == 1.7


def test_mixed_precision_and_back():
    model = trainer(steps=3, precision="bf16").fit(progress=False)
    assert bool(torch.isfinite(weights(model)).all())
    assert trainer(steps=1).accelerator.mixed_precision == "no"


class _Dropping(torch.nn.Module):
    """A network with dropout, which is on in training and off in validation and sampling."""

    def __init__(self):
        super().__init__()
        self.layer, self.seen = torch.nn.Linear(2, 2), []

    def forward(self, x, t):
        self.seen.append(self.training)
        return self.layer(x)


@pytest.mark.parametrize("ema", [0.0, 0.9])
def test_checkpoints_and_validation_leave_the_network_in_training(tmp_path, ema):
    network = _Dropping()
    config = TrainConfig(steps=4, batch_size=8, ema=ema, checkpoint_every=2, validate_every=2, log_every=2)
    x = torch.randn(32, 2, generator=torch.Generator().manual_seed(0))
    trainer = Trainer(Denoiser(network, LevyProcess(1.7)), SelfWeightedLoss(), x, config, tmp_path, validation=x[:8])
    model = trainer.fit(progress=False)
    # the average is a copy with a list of its own; without one the network itself is validated, in between
    assert network.seen == ([True] * 4 if ema else [True, True, False, True, True, False])
    assert not model.denoiser.training
    model.sample(1)
    assert model.denoiser.backbone.seen[-1] is False


def test_a_loaded_model_is_trained_in_training_mode():
    net = denoiser()
    net.eval()
    run = trainer(net=net, steps=1)
    modes = []
    step = run.train_step
    run.train_step = lambda: (modes.append(run.denoiser.backbone.training), step())[1]
    assert not run.fit(progress=False).denoiser.training and modes == [True]


def test_what_cannot_be_stored_is_told_before_the_training(tmp_path):
    class Mine(LearningRate):
        def at(self, step, steps):
            return 1e-3

    assert trainer(steps=2, rate=Mine()).fit(progress=False).info["training"]["rate"] == {"kind": "Mine"}

    class Odd(StablePreconditioning):
        pass

    net = Denoiser(TailMLP(2, width=8), LevyProcess(1.7), Odd())
    with pytest.raises(TypeError, match="thing must be one of .* to be stored, got Odd"):
        trainer(tmp_path, net=net)
    assert trainer(net=net, steps=1).fit(progress=False).alpha == 1.7  # without a folder nothing is stored


STOPPED = """
import os, signal, sys, torch
sys.path.insert(0, {tests!r})
from test_train import trainer
torch.set_num_threads(1)
t = trainer({folder!r}, steps=50, checkpoint_every=100)
step = t.train_step
def interrupted():
    if t.step == 6 and t.accelerator.process_index == 1:
        os.kill(os.getpid(), signal.SIGTERM)
    return step()
t.train_step = interrupted
try:
    t.fit(progress=False)
except KeyboardInterrupt as stop:
    open({folder!r} + f"-{{t.accelerator.process_index}}.txt", "w").write(str(stop))  # lines of two would mix
"""


def test_all_processes_stop_when_one_is_asked_to(tmp_path):
    script = tmp_path / "run.py"
    script.write_text(STOPPED.format(tests=str(Path(__file__).parent), folder=str(tmp_path / "run")))
    torchrun(script, 2)
    assert [(tmp_path / f"run-{i}.txt").read_text() for i in range(2)] == ["stopped after step 7"] * 2
    assert RunFolder(tmp_path / "run").newest().name == "step-000000007"
