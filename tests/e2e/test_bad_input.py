"""Jobs that cannot run as they are: each ends in a condition with a reason and a sentence. All are applied together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from e2e.access import Object, wait_for
from e2e.install import Target, load_root_image
from e2e.space import RESTRICTED, Space

ABSENT = "registry.invalid/team/absent:1"
GOOD = "echo fine"


@pytest.fixture(scope="module")
def space(module_space: Space) -> Space:
    """A namespace with all the jobs in it."""
    module_space.apply(_foreign_pod(module_space, "taken-worker-0"), _foreign_secret(module_space, "kept-mpi"))
    module_space.apply(
        module_space.job("good", GOOD),
        module_space.job("absent", GOOD, image=ABSENT, imagePullPolicy="Never"),
        module_space.job("unreachable", GOOD, image=ABSENT),
        module_space.job("no-secret", GOOD, envFrom=[{"secretRef": {"name": "forgotten"}}]),
        module_space.job(
            "no-volume",
            GOOD,
            volumes=[{"name": "keys", "secret": {"secretName": "lost"}}],
            volumeMounts=[{"name": "keys", "mountPath": "/keys"}],
        ),
        module_space.job("taken", GOOD),
        module_space.job("kept", GOOD),
        module_space.job("as-root", GOOD, worker=_template({"securityContext": {"runAsUser": 0}})),
        module_space.job("privileged", GOOD, worker=_container({"securityContext": {"privileged": True}})),
        module_space.job("shapeless", GOOD, worker=_template({"containers": "many"})),
        module_space.job("mistyped", GOOD, worker=_template({"terminationGracePeriodSeconds": "soon"})),
        module_space.job("stubborn", GOOD, worker=_template({"restartPolicy": "Always"})),
        module_space.job("wide", GOOD, nodeSelector={"disktype": "floppy"}),
        module_space.job("pooled", GOOD, pool="gpunp"),
        module_space.job("large", GOOD, worker={"resources": {"requests": {"memory": "900Ti"}}}),
        module_space.job("late", GOOD, nodeSelector={"disktype": "floppy"}, scheduling={"timeoutSeconds": 5}),
        module_space.job("script", script={"path": "/data/absent.py"}),
    )
    return module_space


def _template(spec: Object) -> Object:
    return {"template": {"spec": spec}}


def _container(fields: Object) -> Object:
    return _template({"containers": [{"name": "worker", **fields}]})


def _foreign_pod(space: Space, name: str) -> Object:
    container = {
        "name": "foreign",
        "image": space.image,
        "command": ["sleep", "3600"],
        "securityContext": RESTRICTED,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": space.name},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
        },
    }


def _foreign_secret(space: Space, name: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": space.name},
        "stringData": {"mine": "yes"},
    }


def _stalled(space: Space, name: str, reason: str) -> str:
    """The sentence of a job that is stalled for this reason."""
    ready = space.wait_reason(name, reason)
    assert ready["status"] == "False"
    assert space.condition(name, "Stalled")["status"] == "True"
    assert space.condition(name, "Reconciling")["status"] == "False"
    return str(ready["message"])


def _waiting(space: Space, name: str, reason: str, words: str) -> None:
    """Waits for a job that waits for this reason, in these words."""
    space.wait(name, words, lambda _: words in space.condition(name, "Ready").get("message", ""))
    assert space.condition(name, "Ready")["reason"] == reason
    assert space.condition(name, "Reconciling")["status"] == "True"


def test_a_good_job_among_bad_ones_succeeds(space: Space) -> None:
    space.wait_phase("good", "Succeeded", seconds=90)


@pytest.mark.parametrize("name", ["absent", "unreachable"])
def test_an_image_that_cannot_be_had_is_named(space: Space, name: str) -> None:
    ready = space.wait_reason(name, "ImagePullFailed")
    assert ABSENT in ready["message"]
    status = space.status(name)
    assert status["phase"] == "Starting"
    assert [error["reason"] for error in status["errors"]] == ["ImagePullFailed"]


def test_a_secret_that_is_missing_is_named_and_the_job_runs_when_it_is_there(space: Space) -> None:
    message = _stalled(space, "no-secret", "InvalidSpec")
    assert 'secret "forgotten" not found' in message
    space.apply(_foreign_secret(space, "forgotten"))
    space.wait_phase("no-secret", "Succeeded", seconds=90)
    assert space.condition("no-secret", "Stalled")["status"] == "False"


def test_a_volume_that_cannot_be_mounted_is_named_and_the_job_runs_when_it_can(space: Space) -> None:
    assert 'secret "lost" not found' in _stalled(space, "no-volume", "StorageUnavailable")
    space.apply(_foreign_secret(space, "lost"))
    # The kubelet tries again with a delay that grows to two minutes.
    space.wait_phase("no-volume", "Succeeded", seconds=180)


@pytest.mark.parametrize(
    ("name", "reason", "container", "words"),
    [
        ("absent", "ImagePullFailed", True, ABSENT),
        ("no-secret", "InvalidSpec", True, 'secret "forgotten" not found'),
        ("no-volume", "StorageUnavailable", False, 'secret "lost" not found'),
        ("late", "SchedulingTimeout", False, "node(s) didn't match Pod's node affinity/selector"),
    ],
)
def test_an_error_says_which_pod_cannot_start_where_and_why(
    space: Space, name: str, reason: str, container: bool, words: str
) -> None:
    error = space.wait(name, "an error", lambda status: status.get("errors"))["errors"][0]
    assert (error["reason"], error["attempt"]) == (reason, 1)
    assert words in error["message"]
    assert error["pod"] in (f"{name}-launcher", f"{name}-worker-0")
    assert error["node"] == ("" if name == "late" else "node1")
    role = "launcher" if error["pod"].endswith("-launcher") else "worker"
    assert error["container"] == (role if container else "")


def test_a_foreign_pod_with_a_name_of_the_job_is_never_touched(space: Space) -> None:
    message = _stalled(space, "taken", "NameConflict")
    assert "taken-worker-0" in message
    foreign = space.api.get(f"{space.core}/pods/taken-worker-0")
    assert foreign
    assert "labels" not in foreign["metadata"]
    assert "deletionTimestamp" not in foreign["metadata"]
    space.delete_pod("taken-worker-0", seconds=0)
    space.wait_phase("taken", "Succeeded", seconds=90)


def test_a_foreign_secret_with_the_name_of_the_jobs_is_never_touched(space: Space) -> None:
    assert "kept-mpi" in _stalled(space, "kept", "NameConflict")
    found = space.api.get(f"{space.core}/secrets/kept-mpi")
    assert found
    assert list(found["data"]) == ["mine"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("as-root", "runAsUser=0"),
        ("privileged", "privileged"),
        ("shapeless", "spec.worker.template.spec.containers must be a list"),
        ("mistyped", "terminationGracePeriodSeconds"),
        ("stubborn", "restartPolicy must not be set"),
    ],
)
def test_a_template_that_makes_no_pod_is_explained(space: Space, name: str, words: str) -> None:
    assert words in _stalled(space, name, "InvalidSpec")
    assert not space.pods(name)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("wide", "didn't match Pod's node affinity/selector"),
        ("pooled", "didn't match Pod's node affinity/selector"),
        ("large", "Insufficient memory"),
    ],
)
def test_a_job_that_no_node_suits_waits_with_the_schedulers_words(space: Space, name: str, words: str) -> None:
    _waiting(space, name, "WaitingForNodes", words)
    assert space.status(name)["phase"] == "Queued"
    assert space.condition(name, "Queued")["status"] == "True"


def test_a_pool_is_a_node_selector_on_the_label_of_aks(space: Space) -> None:
    wait_for("the pods", lambda: len(space.pods("pooled")) == 2)
    selectors = [pod["spec"]["nodeSelector"] for pod in space.pods("pooled").values()]
    assert selectors == [{"kubernetes.azure.com/agentpool": "gpunp"}] * 2


def test_a_script_that_is_not_there_is_named(space: Space) -> None:
    status = space.wait("script", "an error", lambda status: status.get("errors"))
    assert status["errors"][0]["reason"] == "ScriptNotFound"
    assert "/data/absent.py" in status["errors"][0]["message"]


def test_an_image_that_runs_as_root_leads_to_the_field_that_allows_it(
    module_space: Space, target: Target, tmp_path: Path
) -> None:
    if not target.local:
        pytest.skip("an image can be put into the local cluster only")
    image = load_root_image(target, tmp_path)
    module_space.apply(module_space.job("root-image", GOOD, image=image, imagePullPolicy="Never"))
    message = _stalled(module_space, "root-image", "InvalidSpec")
    assert "runAsNonRoot" in message
    assert "spec.podSecurity" in message
    assert "Baseline" in message


def test_jobs_that_never_ran_leave_nothing_when_they_are_deleted(space: Space, target: Target) -> None:
    names = ["absent", "unreachable", "kept", "as-root", "privileged", "shapeless", "mistyped", "stubborn"]
    names += ["wide", "pooled", "large", "script"]
    for name in names:
        space.delete(name)
    wait_for("no job", lambda: not any(space.find(name) for name in names))
    wait_for("no pods", lambda: not any(space.pods(name) for name in names))
    wait_for("no secrets", lambda: not {f"{name}-mpi" for name in names if name != "kept"} & set(space.secrets()))
    assert "kept-mpi" in space.secrets()


def test_baseline_runs_as_root_in_a_namespace_that_allows_it(new_space: Any) -> None:
    space: Space = new_space("baseline", "baseline")
    try:
        root = _template({"securityContext": {"runAsUser": 0}})
        prepare = {"command": "id -u >/usr/local/share/prepared"}
        show = "id -u; cat /usr/local/share/prepared"
        job = space.job(
            "root", show, podSecurity="Baseline", worker={"replicas": 2, **root}, launcher=root, preparation=prepare
        )
        space.apply(job)
        space.wait_phase("root", "Succeeded", seconds=90)
        assert space.output("root") == ["0"] * 4
    finally:
        space.remove()
