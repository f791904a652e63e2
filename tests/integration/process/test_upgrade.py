"""Upgrades and rollbacks of the operator while jobs run."""

import base64
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path

import pytest

from horovodjob.api import frozen_spec
from horovodjob_operator.start_scripts import SCRIPTS
from integration.conftest import Watches, reset_gaps
from support.api_client import JOBS, Api, ApiError, Object, job, wait_for, wait_for_admission_policy
from support.control_plane.operator_control_plane import LEASE, OPERATOR_NAMESPACE
from support.control_plane.watch_threads import Recorder
from support.job_driver import Job, submit
from support.operator_process import Operator
from support.previous_release import extract_operator

Start = Callable[[Path | None], Operator]
THIS_RELEASE = None
DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/horovodjobs.horovodjob.dev"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
SPEC = "/spec/versions/0/schema/openAPIV3Schema/properties/spec"
STEPS = {"Starting": "Queued", "Running": "Starting"}


@pytest.fixture(scope="module")
def without_policy(api: Api, operator_access: Path) -> Iterator[None]:
    """No admission policy for the operator: that of this release comes with it, and refuses what others create."""
    binding = api.get(f"{BINDINGS}/horovodjob-operator")
    api.delete(f"{BINDINGS}/horovodjob-operator")
    secrets, body = "/api/v1/namespaces/default/secrets?dryRun=All", {"metadata": {"name": "probe"}}

    def is_limited() -> bool:
        try:
            Api(operator_access).create(secrets, body)
        except ApiError:
            return True
        return False

    wait_for("the end of the policy", lambda: not is_limited())
    yield
    api.create(BINDINGS, {"metadata": {"name": "horovodjob-operator"}, "spec": binding["spec"]})
    wait_for("the policy", is_limited)


@pytest.fixture(scope="module")
def previous(tmp_path_factory: pytest.TempPathFactory, without_policy: None) -> Path:
    """The operator of the previous release, with a changed start script."""
    source = extract_operator(tmp_path_factory.mktemp("previous"))
    with (source / "horovodjob_operator" / "start_scripts" / "launcher.sh").open("a") as script:
        script.write("# of the previous release\n")
    return source


@pytest.fixture
def start(operator_process: Operator, operator_access: Path, api: Api, tmp_path: Path) -> Iterator[Start]:
    """Starts a process of a release that takes part in leader election."""
    operator_process.kill()
    if api.find(LEASE):
        api.delete(LEASE)
    started: list[Operator] = []

    def begin(source: Path | None) -> Operator:
        name = f"upgrade-{len(started)}"
        log = tmp_path / name
        started.append(Operator(operator_access, log, source, identity=name, lease_namespace=OPERATOR_NAMESPACE))
        return started[-1].start()

    yield begin
    for operator in started:
        operator.kill()


def roll_out(release: Path | None, operators: list[Operator], start: Start) -> list[Operator]:
    """Replaces processes as a Deployment does, the leader first: a new one is ready before an old one ends."""
    new = []
    for old in operators:
        new.append(start(release))
        assert old.stop() == 0
    wait_for("a leader", lambda: any(operator.is_leader for operator in new))
    return new


def finish(jobs: list[Job], pods: dict[str, dict[str, str]]) -> None:
    """Lets jobs succeed; their pods must be unchanged."""
    for each in jobs:
        assert (each.phase, each.uids()) == ("Running", pods[each.name])
        each.end("launcher", 0)
    for each in jobs:
        each.wait("Succeeded")


def test_twenty_running_jobs_are_undisturbed_by_an_update_and_its_rollback(
    api: Api, namespace: str, recorder: Recorder, start: Start, previous: Path
) -> None:
    operators = [start(previous), start(previous)]
    jobs = [submit(api, namespace, f"job-{number}", worker={"replicas": 1, "gpus": 0}) for number in range(20)]
    for phase in STEPS:
        for each in jobs:
            each.advance_to(phase, since=STEPS[phase])
    pods = {each.name: each.uids() for each in jobs}
    finish(jobs[:5], pods)
    operators = roll_out(THIS_RELEASE, operators, start)
    finish(jobs[5:10], pods)
    jobs.append(submit(api, namespace, "job-20", worker={"replicas": 1, "gpus": 0}).advance_to("Running"))
    pods["job-20"] = jobs[-1].uids()
    roll_out(previous, operators, start)
    finish(jobs[10:], pods)

    assert [bool(api.find(each.secret_path)) for each in jobs[-2:]] == [False, True], "each release created its jobs"
    recorder.catch_up(namespace)
    for each in jobs:
        wait_for("its last event", lambda: each.events()["Succeeded"])  # noqa: B023
        assert set(each.events().values()) == {1}, "no event twice"
        statuses = [version["status"] for version in recorder.versions[each.uid]]
        phases = [phase for phase, _ in groupby(status.get("phase") for status in statuses)]
        assert [phase for phase in phases if phase not in STEPS.values()] == [None, "Running", "Succeeded"]
        assert (each.status["attempt"], each.status["restarts"], each.status["preemptions"]) == (1, 0, 0)


def mounted_scripts(api: Api, pod: Object) -> Object:
    """The start scripts that a pod mounts, by name."""
    sources = [source for volume in pod["spec"]["volumes"] for source in volume.get("projected", {}).get("sources", ())]
    names = {source["secret"]["name"] for source in sources if "secret" in source}
    secrets = f"/api/v1/namespaces/{pod['metadata']['namespace']}/secrets"
    data = {key: value for name in names for key, value in api.get(f"{secrets}/{name}")["data"].items()}
    return {key: base64.b64decode(data[key]).decode() for key in SCRIPTS}


def test_a_job_that_restarts_after_an_update_has_scripts_of_one_release(
    api: Api, namespace: str, start: Start, previous: Path
) -> None:
    old = start(previous)
    train = submit(api, namespace).advance_to("Running")
    workers = {uid for role, uid in train.uids().items() if role != "launcher"}
    roll_out(THIS_RELEASE, [old], start)
    train.end("launcher", 1)
    train.skip_backoff()

    def replaced() -> bool:
        pods = train.pods().values()
        return Counter(pod["metadata"]["labels"]["horovodjob.dev/attempt"] for pod in pods) == {"2": 3}

    wait_for("the pods of attempt 2", replaced)
    assert workers.isdisjoint(train.uids().values()), "workers with the old keys and scripts"
    assert [pod for pod in train.pods().values() if mounted_scripts(api, pod) != SCRIPTS] == []
    train.advance_to("Succeeded", since="Queued")
    assert (train.status["attempt"], train.status["restarts"], train.status["preemptions"]) == (2, 1, 0)


@pytest.fixture
def newer_crd(api: Api, watch_threads: Watches, check_watches_and_operators: None, namespace: str) -> Iterator[None]:
    """The CRD of a newer release, with an MPI implementation that this release does not support."""
    schema = api.get(DEFINITION)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    field = f"{SPEC}/properties/mpi/properties/implementation"
    known = schema["properties"]["mpi"]["properties"]["implementation"]
    binding = api.get(f"{BINDINGS}/{frozen_spec.POLICY}")
    api.delete(f"{BINDINGS}/{frozen_spec.POLICY}")
    api.patch(DEFINITION, [{"op": "replace", "path": field, "value": {"type": "string"}}], "json")
    wait_for("the newer CRD", lambda: accepts(api, namespace))
    yield
    api.patch(DEFINITION, [{"op": "replace", "path": field, "value": known}], "json")
    api.create(BINDINGS, {**binding, "metadata": {"name": frozen_spec.POLICY}})
    wait_for("the CRD of this release", lambda: not accepts(api, namespace))
    wait_for_admission_policy(api)
    reset_gaps(api, watch_threads, namespace)


def changes(api: Api, path: str, body: Object) -> bool:
    """Whether the API server accepts the change: the deletion of the admission policy takes effect with a delay."""
    try:
        api.patch(path, body)
    except ApiError as error:
        if error.status != 403:
            raise
        return False
    return True


def accepts(api: Api, namespace: str) -> bool:
    """Whether the API server accepts the implementation that this release does not support."""
    try:
        api.create(f"{JOBS.format(namespace)}?dryRun=All", job("future", mpi={"implementation": "Future"}))
    except ApiError as error:
        if error.status not in (422, 429):  # the CRD was just changed
            raise
        return False
    return True


def test_a_running_job_with_a_spec_of_a_newer_release_is_not_changed(
    newer_crd: None, submit_job: Callable[..., Job], operator: Operator, api: Api
) -> None:
    running = submit_job().advance_to("Running")
    pods = running.uids()
    operator.kill()
    future = {"spec": {"mpi": {"implementation": "Future"}}}
    wait_for("a spec that can change", lambda: changes(api, running.path, future))
    operator.start()
    assert running.wait_for_condition("Stalled", reason="InvalidSpec").startswith("spec.mpi.implementation: ")
    assert (running.phase, running.uids()) == ("Running", pods)
    running.end("launcher", 0)
    api.patch(running.path, {"spec": {"mpi": {"implementation": "OpenMPI"}}})
    assert running.wait("Succeeded")["attempt"] == 1
