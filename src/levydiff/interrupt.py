"""Stopping on request: Ctrl-C and a scheduler's SIGTERM are noted, and obeyed where nothing is lost by it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def stop_requests() -> Iterator[list[int]]:
    """Collect SIGINT and SIGTERM, so that work can stop between two steps; a second one stops at once."""
    requests: list[int] = []
    if threading.current_thread() is not threading.main_thread():  # only the main thread may handle signals
        yield requests
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def remember(number: int, frame: Any) -> None:
        if requests:
            raise KeyboardInterrupt
        requests.append(number)

    for number in before:
        signal.signal(number, remember)
    try:
        yield requests
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
