"""Jobs that cannot run: each has a condition with a reason and a message. All are applied together.

Rejections by the API server and name conflicts are in `tests/integration/lifecycle/test_conflicts.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.install import Target, load_root_image
from e2e.namespace import Namespace
from support.api_client import Object

ABSENT = "registry.invalid/team/absent:1"
GOOD = "echo fine"


@pytest.fixture(scope="module")
def namespace(module_namespace: Namespace) -> Namespace:
    """A namespace with all the jobs in it."""
    module_namespace.apply(
        module_namespace.job("absent", GOOD, image=ABSENT, imagePullPolicy="Never"),
        module_namespace.job("unreachable", GOOD, image=ABSENT),
        module_namespace.job("no-credentials", GOOD, image=ABSENT, imagePullSecrets=[{"name": "registry"}]),
        module_namespace.job("no-secret", GOOD, envFrom=[{"secretRef": {"name": "forgotten"}}]),
        module_namespace.job(
            "no-volume",
            GOOD,
            volumes=[{"name": "keys", "secret": {"secretName": "lost"}}],
            volumeMounts=[{"name": "keys", "mountPath": "/keys"}],
        ),
        module_namespace.job("script", script={"path": "/data/absent.py"}),
    )
    return module_namespace


def _secret(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": {"mine": "yes"}}


def _stalled(namespace: Namespace, name: str, reason: str) -> str:
    """The message of a job that is stalled for this reason."""
    ready = namespace.wait_reason(name, reason)
    assert ready["status"] == "False"
    assert namespace.condition(name, "Stalled")["status"] == "True"
    assert namespace.condition(name, "Reconciling")["status"] == "False"
    return str(ready["message"])


def _assert_error(namespace: Namespace, name: str, reason: str, container: bool, words: str) -> None:
    """Asserts that the job's only error has the pod that cannot start, its node and the cause."""
    (error,) = namespace.wait(name, "an error", lambda status: status.get("errors"))["errors"]
    assert (error["reason"], error["attempt"]) == (reason, 1)
    assert words in error["message"]
    pod = namespace.pod(error["pod"])
    assert pod, error
    assert error["node"] == pod["spec"]["nodeName"]
    assert error["container"] == (pod["metadata"]["labels"]["horovodjob.dev/role"] if container else "")


def test_an_image_that_cannot_be_pulled_is_reported_and_a_missing_pull_secret_is_named(namespace: Namespace) -> None:
    for name in ("absent", "unreachable"):
        assert ABSENT in namespace.wait_reason(name, "ImagePullFailed")["message"]
        assert namespace.status(name)["phase"] == "Starting"
        _assert_error(namespace, name, "ImagePullFailed", True, ABSENT)
    name = "no-credentials"
    namespace.wait(name, "Stalled", lambda _: namespace.condition(name, "Stalled").get("status") == "True")
    message = namespace.condition(name, "Stalled")["message"]
    assert f"Secret registry of imagePullSecrets is not in namespace {namespace.name};" in message


@pytest.mark.parametrize(
    ("name", "reason", "secret"),
    [("no-secret", "InvalidSpec", "forgotten"), ("no-volume", "StorageUnavailable", "lost")],
)
def test_a_missing_secret_is_reported_and_the_job_runs_once_it_exists(
    namespace: Namespace, name: str, reason: str, secret: str
) -> None:
    words = f'secret "{secret}" not found'
    assert words in _stalled(namespace, name, reason)
    _assert_error(namespace, name, reason, reason == "InvalidSpec", words)
    namespace.apply(_secret(secret))
    namespace.wait_phase(name, "Succeeded")
    assert namespace.condition(name, "Stalled")["status"] == "False"


def test_a_missing_script_is_reported(namespace: Namespace) -> None:
    status = namespace.wait("script", "an error", lambda status: status.get("errors"))
    assert status["errors"][0]["reason"] == "ScriptNotFound"
    message = status["errors"][0]["message"]
    assert "there is no file /data/absent.py" in message
    assert "/data does not exist, and / contains " in message


def test_an_image_that_runs_as_root_is_reported_with_the_field_that_allows_it(
    module_namespace: Namespace, target: Target, tmp_path: Path
) -> None:
    image = load_root_image(target, tmp_path)
    module_namespace.apply(module_namespace.job("root-image", GOOD, image=image, imagePullPolicy="Never"))
    message = _stalled(module_namespace, "root-image", "InvalidSpec")
    assert "runAsNonRoot" in message
    assert "spec.podSecurity" in message
    assert "Baseline" in message


def test_baseline_runs_as_root_in_a_namespace_that_allows_it(new_namespace: Callable[..., Namespace]) -> None:
    namespace = new_namespace("baseline", "baseline")
    try:
        root = {"template": {"spec": {"securityContext": {"runAsUser": 0}}}}
        prepare = {"command": "id -u >/usr/local/share/prepared"}
        show = "id -u; cat /usr/local/share/prepared"
        job = namespace.job(
            "root", show, podSecurity="Baseline", worker={"replicas": 2, **root}, launcher=root, preparation=prepare
        )
        namespace.apply(job)
        namespace.wait_phase("root", "Succeeded")
        assert namespace.output("root") == ["0"] * 4
    finally:
        namespace.remove()
