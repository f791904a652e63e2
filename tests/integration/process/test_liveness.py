"""Detection of dead watches."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.process.half_open_proxy import HalfOpenProxy
from support.api_client import Api, wait_for
from support.job_driver import submit
from support.operator_process import Operator

# The timeout of a watch is 8 s, so one that is silent for 13 s is dead. By then no idle
# connection is left that has become half-open with it.
WATCH_SECONDS = "8"
DETECTED_WITHIN = 60


@pytest.fixture
def proxy(operator_access: Path) -> Iterator[HalfOpenProxy]:
    started = HalfOpenProxy(operator_access)
    yield started
    started.close()


@pytest.fixture
def proxied_operator(operator_process: Operator, proxy: HalfOpenProxy, tmp_path: Path) -> Iterator[Operator]:
    """An operator that reaches the API server through the proxy."""
    operator_process.kill()
    kubeconfig = proxy.kubeconfig(tmp_path / "kubeconfig")
    operator = Operator(kubeconfig, tmp_path / "log", watch_timeout_seconds=WATCH_SECONDS)
    yield operator.start()
    operator.kill()


def oldest_watch_event(operator: Operator) -> float:
    """When the watch with the oldest last event received it, or a little earlier."""
    now = time.monotonic()
    return now - max(operator.samples("horovodjob_operator_watch_age_seconds", "resource").values())


def test_half_open_connections_are_detected_on_both_watches(
    proxied_operator: Operator, proxy: HalfOpenProxy, api: Api, namespace: str
) -> None:
    proxy.go_silent()
    begin = time.monotonic()
    wait_for("both watches on new connections", lambda: oldest_watch_event(proxied_operator) > begin + 1)
    assert time.monotonic() - begin < DETECTED_WITHIN
    submit(api, namespace).advance_to("Succeeded")
