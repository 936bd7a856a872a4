"""The folder of a training run: its checkpoints and its log.

::

    config.json            what was asked for
    metrics.jsonl          one line per logged step
    checkpoints/step-…/    complete states, written atomically; the newest few are kept
    model/                 the finished model, for LevyModel.from_pretrained
"""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from .files import atomic_file


class RunFolder:
    """Where a run lives.

    Arguments:
        path: The folder; it is made when something is written.

    Example:
        >>> import tempfile
        >>> run = RunFolder(tempfile.mkdtemp())
        >>> run.log({"step": 1, "loss": 0.5})
        >>> run.lines(), run.newest()
        ([{'step': 1, 'loss': 0.5}], None)
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @property
    def model(self) -> Path:
        """Where the finished model is."""
        return self.path / "model"

    def checkpoint(self, step: int) -> Path:
        """Where the state after a step is."""
        return self.path / "checkpoints" / f"step-{step:09d}"

    def checkpoints(self) -> list[Path]:
        """The complete checkpoints, oldest first."""
        found = (self.path / "checkpoints").glob("step-*")
        return sorted(path for path in found if re.fullmatch(r"step-\d{9}", path.name))

    def newest(self) -> Path | None:
        """The newest checkpoint, if there is one."""
        found = self.checkpoints()
        return found[-1] if found else None

    def remember(self, options: Mapping[str, Any], free: Collection[str] = ()) -> None:
        """Keep what was asked for in ``config.json``; refuse to go on with a run that was asked for otherwise.

        Arguments:
            options: What is asked for now, as JSON.
            free: The names of options that may change while a run is stopped.
        """
        if self.path.is_file():
            raise ValueError(f"out must be a folder, got the file {self.path}")
        with self.locked():
            self._remember(options, free)

    def _remember(self, options: Mapping[str, Any], free: Collection[str]) -> None:
        path = self.path / "config.json"
        if path.exists():
            before = json.loads(path.read_text())
            # what the run does not say, since it is older than the option, the trainer compares
            compared = [name for name in options if name in before and name not in free]
            changed = [
                f"{name} = {before[name]!r} (now {options[name]!r})"
                for name in compared
                if before[name] != options[name]
            ]
            if changed and (self.newest() is not None or self.model.is_dir()):
                raise ValueError(f"out must be a new folder, got {self.path} with a run of {', '.join(changed)}")
        with atomic_file(path) as temporary:
            temporary.write_text(json.dumps(dict(options), indent=2) + "\n")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep the folder to this process; an error if another one trains in it. A killed process frees it."""
        self.path.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.path / ".lock")
        try:
            lock.acquire(timeout=0)
        except Timeout as error:
            raise ValueError(f"folder must not be in use, but another process trains in {self.path}") from error
        try:
            yield
        finally:
            lock.release()

    def prepare(self, step: int) -> None:
        """Make the folder ready to go on after ``step``: drop what a killed process left, and later log lines."""
        (self.path / "checkpoints").mkdir(parents=True, exist_ok=True)
        for old in self.path.glob(".model.*.old"):  # killed while the model was being replaced
            if not self.model.exists():
                old.rename(self.model)
        for stale in (*(self.path / "checkpoints").glob(".*"), *self.path.glob(".model.*")):
            shutil.rmtree(stale, ignore_errors=True)
        log = self.path / "metrics.jsonl"
        if log.exists():
            lines = [line for line in log.read_text().splitlines() if _step_of(line) <= step]
            with atomic_file(log) as temporary:
                temporary.write_text("".join(f"{line}\n" for line in lines))

    def prune(self, keep: int) -> None:
        """Remove all but the newest ``keep`` checkpoints."""
        for old in self.checkpoints()[:-keep]:
            # Hidden first: a kill in the middle of the removal must not leave half a checkpoint under its name.
            shutil.rmtree(old.rename(old.with_name(f".{old.name}.old")))

    def log(self, line: Mapping[str, float]) -> None:
        """Append a line to the log."""
        with open(self.path / "metrics.jsonl", "a") as file:
            file.write(json.dumps(line) + "\n")

    def lines(self) -> list[dict[str, Any]]:
        """The log."""
        path = self.path / "metrics.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line) for line in lines if math.isfinite(_step_of(line))]


def _step_of(line: str) -> float:
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):  # a line cut short by a kill
        return math.inf
