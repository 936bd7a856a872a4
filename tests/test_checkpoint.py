"""Folders are written whole or not at all, and refused if a byte differs."""

import errno
import json
import os
import pickle
from pathlib import Path

import pytest
import torch

from levydiff import CosineSchedule, Denoiser, ExplodingSchedule, LevyProcess, LinearSchedule, StablePreconditioning
from levydiff import checkpoint as module
from levydiff.checkpoint import (
    CheckpointError,
    Folder,
    build_denoiser,
    denoiser_config,
    from_config,
    optimizer_tensors,
    restore_optimizer,
    to_config,
    write_folder,
)
from levydiff.nn import PaperMLP, TailMLP
from levydiff.timesteps import BetaSchedule

TENSORS = {"model": {"w": torch.arange(6.0), "n": torch.tensor(3)}}
RECORDS = {"config": {"alpha": 1.7}}


def test_round_trip(tmp_path):
    write_folder(tmp_path / "a", TENSORS, RECORDS)
    folder = Folder(tmp_path / "a")
    assert folder.record("config") == {"alpha": 1.7}
    loaded = folder.tensors("model")
    assert torch.equal(loaded["w"], torch.arange(6.0)) and int(loaded["n"]) == 3
    assert sorted(os.listdir(tmp_path)) == ["a"]
    write_folder(tmp_path / "a", TENSORS, {"config": {"alpha": 1.5}})  # replaced, once complete
    assert Folder(tmp_path / "a").record("config") == {"alpha": 1.5}


def test_truncation_at_any_byte_is_refused(tmp_path):
    write_folder(tmp_path / "a", TENSORS, RECORDS)
    for path in (tmp_path / "a").iterdir():
        whole = path.read_bytes()
        for cut in range(len(whole)):
            path.write_bytes(whole[:cut])
            with pytest.raises(CheckpointError, match=r"truncated, damaged|missing or damaged|damaged or was edited"):
                Folder(tmp_path / "a")
        path.write_bytes(whole)
    Folder(tmp_path / "a")


def test_edited_json_is_refused(tmp_path):
    write_folder(tmp_path / "a", TENSORS, RECORDS)
    config = tmp_path / "a" / "config.json"
    config.write_text(config.read_text().replace("1.7", "1.9"))
    with pytest.raises(CheckpointError, match="config.json is not what was saved"):
        Folder(tmp_path / "a")
    write_folder(tmp_path / "b", TENSORS, RECORDS)
    manifest = tmp_path / "b" / "manifest.json"
    edited = json.loads(manifest.read_text())
    edited["files"].pop("config.json")
    manifest.write_text(json.dumps(edited))
    with pytest.raises(CheckpointError, match="manifest.json is not what was saved"):
        Folder(tmp_path / "b")


class Bomb:
    def __reduce__(self):
        return (os.mkdir, (self.path,))


def test_a_pickle_is_refused_without_being_executed(tmp_path):
    bomb = Bomb()
    bomb.path = str(tmp_path / "executed")
    payload = pickle.dumps(bomb)
    write_folder(tmp_path / "a", TENSORS, RECORDS)
    (tmp_path / "a" / "model.safetensors").write_bytes(payload)
    with pytest.raises(CheckpointError, match="model.safetensors is not what was saved"):
        Folder(tmp_path / "a")
    # even with a manifest to match
    files = {p.name: module._fingerprint(p) for p in (tmp_path / "a").iterdir() if p.name != "manifest.json"}
    manifest = {"format": 1, "files": files, "sha256": module._digest_of(files)}
    (tmp_path / "a" / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(CheckpointError, match="is not a safetensors file"):
        Folder(tmp_path / "a").tensors("model")
    (tmp_path / "model.pt").write_bytes(payload)
    with pytest.raises(CheckpointError, match="never a pickle"):
        Folder(tmp_path / "model.pt")
    assert not (tmp_path / "executed").exists()


def test_unknown_kinds_are_refused():
    with pytest.raises(CheckpointError, match="kind must be one of CosineSchedule, .* got 'os.system'"):
        from_config({"kind": "os.system", "command": "true"})
    with pytest.raises(CheckpointError, match="the stored CosineSchedule cannot be built"):
        from_config({"kind": "CosineSchedule", "offset": -1.0})
    with pytest.raises(TypeError, match="thing must be one of"):
        to_config(torch.nn.Linear(2, 2))


def test_a_folder_that_cannot_take_its_name_gives_the_old_one_back(tmp_path, monkeypatch):
    write_folder(tmp_path / "a", TENSORS, RECORDS)
    rename, calls = Path.rename, []

    def second_fails(self, target):
        calls.append(target)
        if len(calls) == 2:
            raise OSError(errno.EIO, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", second_fails)
    with pytest.raises(OSError, match="cannot write a into"):
        write_folder(tmp_path / "a", TENSORS, {"config": {"alpha": 0.1}})
    assert Folder(tmp_path / "a").record("config") == {"alpha": 1.7} and sorted(os.listdir(tmp_path)) == ["a"]


@pytest.mark.parametrize("fail", ["save_file", "fsync", "rename"])
def test_a_failed_write_leaves_the_last_good_folder(tmp_path, monkeypatch, fail):
    write_folder(tmp_path / "a", TENSORS, RECORDS)
    full = OSError(errno.ENOSPC, "No space left on device")

    def no_space(*args, **kwargs):
        raise full

    if fail == "save_file":
        monkeypatch.setattr(module.safetensors.torch, "save_file", no_space)
    elif fail == "fsync":
        monkeypatch.setattr(os, "fsync", no_space)
    else:
        monkeypatch.setattr(module.Path, "rename", no_space)
    with pytest.raises(OSError, match=r"cannot write a into .*: No space left on device"):
        write_folder(tmp_path / "a", TENSORS, {"config": {"alpha": 0.1}})
    monkeypatch.undo()
    assert Folder(tmp_path / "a").record("config") == {"alpha": 1.7}
    assert sorted(os.listdir(tmp_path)) == ["a"]


def test_a_foreign_folder_is_not_overwritten(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("precious")
    with pytest.raises(OSError, match="exists and is not a levydiff folder"):
        write_folder(tmp_path / "mine", TENSORS, RECORDS)
    assert (tmp_path / "mine" / "thesis.tex").read_text() == "precious"


SCHEDULES = [
    CosineSchedule(t_max=0.98),
    LinearSchedule(beta_max=15.0),
    ExplodingSchedule(),
    BetaSchedule(betas=(0.1, 0.2, 0.3)),
]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("network", [PaperMLP(2, width=8), TailMLP(2, width=8, classes=3)])
def test_denoisers_survive(schedule, network):
    denoiser = Denoiser(network, LevyProcess(1.4, schedule, isotropic=False), StablePreconditioning(0.3))
    again = build_denoiser(json.loads(json.dumps(denoiser_config(denoiser))))
    assert again.process == denoiser.process and again.preconditioning == denoiser.preconditioning
    again.load_state_dict(denoiser.state_dict())
    assert again.backbone.config == network.config


def test_a_foreign_backbone_must_be_given():
    net = torch.nn.Linear(2, 2)
    config = denoiser_config(Denoiser(net, LevyProcess(1.5)))
    with pytest.raises(CheckpointError, match="backbone must be given"):
        build_denoiser(config)
    assert build_denoiser(config, net).backbone is net


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.SGD, torch.optim.RMSprop])
def test_optimizers_survive(kind):
    def make():
        torch.manual_seed(0)
        net = torch.nn.Linear(3, 2)
        return net, kind(net.parameters(), lr=0.1, **({"momentum": 0.9} if kind is torch.optim.SGD else {}))

    def step(net, optimizer):
        optimizer.zero_grad()
        net(torch.ones(1, 3)).square().sum().backward()
        optimizer.step()

    net, optimizer = make()
    step(net, optimizer)
    tensors, record = optimizer_tensors(optimizer)
    other, other_optimizer = make()
    other.load_state_dict(net.state_dict())
    tensors = {key: value.clone() for key, value in tensors.items()}  # as a file would
    restore_optimizer(other_optimizer, tensors, json.loads(json.dumps(record)))
    step(net, optimizer), step(other, other_optimizer)
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), other.parameters(), strict=True))


def test_files_can_be_read_by_whom_the_umask_allows(tmp_path):
    """safetensors writes with mode 0600 whatever the umask; a shared folder of models would be closed to others."""
    write_folder(tmp_path / "model", {"model": {"weight": torch.ones(2)}}, {"config": {}})
    (tmp_path / "plain").touch()
    modes = {path.name: path.stat().st_mode for path in (tmp_path / "model").iterdir()}
    assert set(modes.values()) == {(tmp_path / "plain").stat().st_mode}, modes


def test_a_network_compiled_outside_is_refused():
    denoiser = Denoiser(torch.compile(TailMLP(2, width=8)), LevyProcess(1.7))
    with pytest.raises(TypeError, match=r"backbone must be compiled in place, backbone.compile\(\), to be stored"):
        denoiser_config(denoiser)
