"""What the watch process of a rank knows of it."""

import os
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from horovodjob_trainer.reporting.watch_process import Settings, Watch
from horovodjob_trainer.watch.activity import Activity, Field
from horovodjob_trainer.watch.judgement import SILENT_SECONDS


@pytest.fixture
def rank() -> Activity:
    return Activity()


@pytest.fixture
def watch(rank: Activity) -> Iterator[Watch]:
    """The watch of this process as rank 1."""
    stacks = os.memfd_create("stacks")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        own: dict[str, Any] = {
            "activity": rank.descriptor,
            "stacks": stacks,
            "listener": listener.fileno(),
            "lifeline": -1,
        }
        yield Watch(Settings(rank=1, host="worker-1", pid=os.getpid(), attempt=1, **own), "token")
    os.close(stacks)


def test_a_rank_is_silent_only_after_so_long_that_it_is_certain(
    rank: Activity, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("horovodjob_trainer.reporting.watch_process.stacks.process_state", lambda pid: "")
    monkeypatch.setattr(Watch, "stacks", lambda self: "")
    rank[Field.SAMPLED] = time.monotonic() - SILENT_SECONDS + 0.3
    assert watch.state().is_blocked
    rank[Field.SAMPLED] = time.monotonic() - SILENT_SECONDS + 1
    threading.Timer(0.2, lambda: rank.__setitem__(Field.SAMPLED, time.monotonic())).start()
    assert not watch.state().is_blocked
