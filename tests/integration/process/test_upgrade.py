"""Upgrades and rollbacks of the operator while jobs run."""

import base64
import functools
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from horovodjob.api import frozen_spec
from horovodjob_operator.start_scripts import SCRIPTS
from integration.conftest import Watches, reset_gaps
from support.api_client import JOBS, Api, ApiError, Object, job, wait_for, wait_for_admission_policy
from support.control_plane.operator_control_plane import LEASE, OPERATOR_NAMESPACE, make_namespace
from support.control_plane.watch_threads import Recorder
from support.job_driver import Job, submit, timestamp
from support.operator_process import Operator
from support.previous_release import extract_operator

Start = Callable[[Path | None], Operator]
THIS_RELEASE = None
DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/horovodjobs.horovodjob.dev"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
SCHEMA = "/spec/versions/0/schema/openAPIV3Schema/properties"
# What a newer release has more values of.
NEWER = (
    "spec/properties/mpi/properties/implementation/enum",
    "status/properties/phase/enum",
    "status/properties/conditions/items/properties/type/enum",
)
CONDITION = {"type": "Checkpointed", "status": "True", "reason": "Saved", "message": "", "observedGeneration": 1}
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


def mounted_scripts(api: Api, pod: Object) -> Object:
    """The start scripts that a pod mounts, by name."""
    sources = [source for volume in pod["spec"]["volumes"] for source in volume.get("projected", {}).get("sources", ())]
    names = {source["secret"]["name"] for source in sources if "secret" in source}
    secrets = f"/api/v1/namespaces/{pod['metadata']['namespace']}/secrets"
    data = {key: value for name in names for key, value in api.get(f"{secrets}/{name}")["data"].items()}
    return {key: base64.b64decode(data[key]).decode() for key in SCRIPTS}


def test_running_jobs_are_undisturbed_by_an_update_and_its_rollback(
    api: Api, namespace: str, recorder: Recorder, start: Start, previous: Path
) -> None:
    operators = [start(previous), start(previous)]
    jobs = [submit(api, namespace, f"job-{number}", worker={"replicas": 1, "gpus": 0}) for number in range(6)]
    for phase in STEPS:
        for each in jobs:
            each.advance_to(phase, since=STEPS[phase])
    pods = {each.name: each.uids() for each in jobs}
    failing = submit(api, namespace, "failing").advance_to("Running")
    workers = {uid for role, uid in failing.uids().items() if role != "launcher"}
    finish(jobs[:2], pods)
    operators = roll_out(THIS_RELEASE, operators, start)
    finish(jobs[2:4], pods)
    jobs.append(submit(api, namespace, "job-6", worker={"replicas": 1, "gpus": 0}).advance_to("Running"))
    pods["job-6"] = jobs[-1].uids()

    failing.end("launcher", 1)
    failing.skip_backoff()
    wait_for("the pods of attempt 2", lambda: attempts(failing) == {"2": 3})
    assert workers.isdisjoint(failing.uids().values()), "workers with the old keys and scripts"
    assert [pod for pod in failing.pods().values() if mounted_scripts(api, pod) != SCRIPTS] == []
    failing.advance_to("Succeeded", since="Queued")
    assert (failing.status["attempt"], failing.status["restarts"], failing.status["preemptions"]) == (2, 1, 0)

    roll_out(previous, operators, start)
    finish(jobs[4:], pods)
    assert [bool(api.find(each.secret_path)) for each in jobs[-2:]] == [False, True], "each release created its jobs"
    recorder.catch_up(namespace)
    for each in jobs:
        wait_for("its last event", lambda: each.events()["Succeeded"])  # noqa: B023
        assert set(each.events().values()) == {1}, "no event twice"
        statuses = [version["status"] for version in recorder.versions[each.uid]]
        phases = [phase for phase, _ in groupby(status.get("phase") for status in statuses)]
        assert [phase for phase in phases if phase not in STEPS.values()] == [None, "Running", "Succeeded"]
        assert (each.status["attempt"], each.status["restarts"], each.status["preemptions"]) == (1, 0, 0)


def attempts(job: Job) -> Counter[str]:
    """The number of pods of each attempt."""
    return Counter(pod["metadata"]["labels"]["horovodjob.dev/attempt"] for pod in job.pods().values())


@pytest.fixture
def newer_crd(api: Api, watch_threads: Watches, check_watches_and_operators: None, namespace: str) -> Iterator[str]:
    """The CRD of a newer release, with values that this release does not know, and a namespace for its jobs."""
    schema = api.get(DEFINITION)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    known = [functools.reduce(lambda found, key: found[key], path.split("/"), schema) for path in NEWER]
    binding = api.get(f"{BINDINGS}/{frozen_spec.POLICY}")
    api.delete(f"{BINDINGS}/{frozen_spec.POLICY}")
    api.patch(DEFINITION, [{"op": "remove", "path": f"{SCHEMA}/{path}"} for path in NEWER], "json")
    wait_for("the newer CRD", lambda: accepts(api, namespace))
    newer = f"{namespace}-newer"
    make_namespace(api, newer)
    yield newer
    api.delete(JOBS.format(newer))
    wait_for("its jobs to be deleted", lambda: not api.get(JOBS.format(newer))["items"])
    api.delete(f"/api/v1/namespaces/{newer}")
    restored = [{"op": "add", "path": f"{SCHEMA}/{path}", "value": old} for path, old in zip(NEWER, known, strict=True)]
    api.patch(DEFINITION, restored, "json")
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
    """Whether the API server accepts what this release does not know."""
    try:
        api.create(f"{JOBS.format(namespace)}?dryRun=All", job("future", mpi={"implementation": "Future"}))
    except ApiError as error:
        if error.status not in (422, 429):  # the CRD was just changed
            raise
        return False
    return True


def description(job: Job) -> dict[str, Any]:
    """What must not change, in whatever way the operator reports that it cannot parse the job."""
    status = job.status
    conditions = {one["type"]: one["status"] for one in status["conditions"]}
    keys = ("phase", "attempt", "restarts", "completionTime", "startTime")
    unchanged = {key: value for key, value in conditions.items() if key not in ("Stalled", "Reconciling")}
    return {"conditions": unchanged, **{key: status.get(key) for key in keys}, "pods": job.uids()}


def test_a_job_with_fields_of_a_newer_release_is_stalled_and_not_changed(
    newer_crd: str, operator: Operator, api: Api
) -> None:
    spec, phase, condition = (submit(api, newer_crd, name).advance_to("Running") for name in ("a", "b", "c"))
    finished = submit(api, newer_crd, "finished").advance_to("Succeeded")
    wait_for("the clean-up", lambda: set(finished.pods()) == {"launcher"})
    operator.kill()
    wait_for("a spec that can change", lambda: changes(api, spec.path, {"spec": {"mpi": {"implementation": "Future"}}}))
    api.patch(f"{phase.path}/status", {"status": {"phase": "Paused"}})
    for each in (condition, finished):
        conditions = [*each.status["conditions"], CONDITION | {"lastTransitionTime": timestamp()}]
        api.patch(f"{each.path}/status", {"status": {"conditions": conditions}})
    jobs = (spec, phase, condition, finished)
    before = [description(each) for each in jobs]
    operator.start()
    assert spec.wait_for_condition("Stalled", reason="InvalidSpec").startswith("spec.mpi.implementation: ")
    for each in (phase, condition):
        assert "status" in each.wait_for_condition("Stalled", reason="UnknownStatus")
    submit(api, newer_crd, "other").advance_to("Succeeded")
    assert [description(each) for each in jobs] == before
    spec.end("launcher", 0)
    api.patch(spec.path, {"spec": {"mpi": {"implementation": "OpenMPI"}}})
    assert spec.wait("Succeeded")["attempt"] == 1
