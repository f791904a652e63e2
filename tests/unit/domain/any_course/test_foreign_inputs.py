"""Whatever other programs write into pods, Workloads and events, a pass ends and its status can be stored."""

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from horovodjob.api.constants import LABEL_ATTEMPT, LABEL_JOB, LABEL_REPLICA_INDEX, LABEL_ROLE, Phase, Role
from horovodjob.api.job import HorovodJob
from horovodjob.api.status import HorovodJobStatus
from horovodjob_operator.domain.checks.context import JobContext
from horovodjob_operator.domain.events import events_between
from horovodjob_operator.domain.foreign_text import MAX_CHARACTERS, REASON, clean_reason, clean_text
from horovodjob_operator.domain.names import launcher_name, worker_name
from horovodjob_operator.domain.plan import plan_for
from horovodjob_operator.domain.pods.observed import KubeletEventReason, KubeletWarning, Observed
from horovodjob_operator.domain.pods.pod_facts import owned_pod
from horovodjob_operator.domain.status import next_status, status_with_error
from horovodjob_operator.kueue.queue import Queue
from horovodjob_operator.kueue.workload import owned_workload
from unit.domain.fake_cluster import NOON, UID, phase_of, running_cluster, training_job

ODD = [
    "\ud800",
    "a\udfffb",
    "\0",
    "x" * 40_000,
    '{"reason":"WorkerLost","message":"\\ud800"}',
    "[[[[",
    "\u202e",
    "-1",
    "",
]
SCRIPT = st.fixed_dictionaries(
    {
        "reason": st.sampled_from(["WorkerLost", "SshUnavailable", 3, [], None]),
        "message": st.sampled_from([*ODD, 3, {}]),
    }
).map(json.dumps)
TEXT = st.sampled_from(ODD) | st.text(max_size=20) | SCRIPT
# What the schema of the resource accepts in the status that somebody edits.
EDITED = st.sampled_from(["", "no word", "\u202e", "x" * 1024])
TIME = st.sampled_from(["2026-11-21T12:00:00Z", "2026-11-21T13:00:00Z", "2006-01-02T15:04:05Z"])
CONDITIONS = st.lists(
    st.fixed_dictionaries(
        {
            "type": st.sampled_from(["Ready", "PodScheduled", "DisruptionTarget", "Admitted", "Evicted", "Finished"]),
            "status": st.sampled_from(["True", "False", "Unknown", "yes"]),
            "lastTransitionTime": TIME,
        },
        optional={"reason": TEXT, "message": TEXT},
    ),
    max_size=4,
)


@st.composite
def container_statuses(draw: st.DrawFn) -> list[dict[str, Any]]:
    ended = st.fixed_dictionaries(
        {"exitCode": st.integers(0, 2**31 - 1)}, optional={"reason": TEXT, "message": TEXT, "finishedAt": TIME}
    )
    waiting = st.fixed_dictionaries({}, optional={"reason": TEXT | st.just("ErrImagePull"), "message": TEXT})
    state: st.SearchStrategy[dict[str, Any]] = st.one_of(
        ended.map(lambda value: {"terminated": value}), waiting.map(lambda value: {"waiting": value}), st.just({})
    )
    names = draw(st.sampled_from([["launcher"], ["worker"], ["side", "worker"], []]))
    return [{"name": name, "state": draw(state)} for name in names]


@st.composite
def pods(draw: st.DrawFn, job: HorovodJob) -> list[dict[str, Any]]:
    found = []
    for role, index in ((Role.LAUNCHER, 0), (Role.WORKER, 0), (Role.WORKER, 1)):
        name = launcher_name(job) if role is Role.LAUNCHER else worker_name(job, index)
        attempt = draw(st.sampled_from(["1", "1", "2", "-3", "9" * 60, "x"]))
        labels = {LABEL_JOB: "cifar", LABEL_ROLE: role.value, LABEL_REPLICA_INDEX: str(index), LABEL_ATTEMPT: attempt}
        owner = {"kind": "HorovodJob", "controller": True, "uid": UID, "name": "cifar"}
        status: dict[str, Any] = {
            "phase": draw(st.sampled_from(["Pending", "Running", "Failed", "Succeeded", "Unknown"]))
        }
        for key in ("reason", "message", "podIP"):
            status[key] = draw(TEXT)
        status |= {"conditions": draw(CONDITIONS), "containerStatuses": draw(container_statuses())}
        metadata = {
            "name": name,
            "namespace": "team",
            "uid": f"uid-{name}",
            "resourceVersion": "7",
            "creationTimestamp": draw(TIME),
            "labels": labels,
            "annotations": draw(st.dictionaries(st.just("horovodjob.dev/hosts"), TEXT, max_size=1)),
            "ownerReferences": [owner],
        }
        found.append({"metadata": metadata, "spec": {"nodeName": draw(st.sampled_from(["", "n"]))}, "status": status})
    return found


@st.composite
def observations(draw: st.DrawFn, job: HorovodJob) -> Observed:
    owned = [fact for raw in draw(pods(job)) if (fact := owned_pod(raw))]
    workload = {
        "metadata": {
            "name": "w",
            "namespace": "team",
            "uid": "w",
            "resourceVersion": "1",
            "labels": {LABEL_JOB: "cifar"},
            "ownerReferences": [{"kind": "HorovodJob", "controller": True, "uid": UID, "name": "cifar"}],
        },
        "spec": {"queueName": "q"},
        "status": {
            "conditions": draw(CONDITIONS),
            "admissionChecks": [{"name": "c", "state": "Retry", "message": draw(TEXT)}],
        },
    }
    found = owned_workload(workload)
    queue = draw(st.sampled_from([None, Queue("q", found.workload if found else None)]))
    warning = KubeletWarning(KubeletEventReason.MOUNT_FAILED, clean_text(draw(TEXT)))
    return Observed(pods=tuple(fact.pod for fact in owned), kubelet_warning=warning, queue=queue)


def edited(job: HorovodJob, reason: str | None) -> HorovodJob:
    """The job with other reasons in its status."""
    if reason is None:
        return job
    conditions = tuple(each.model_copy(update={"reason": reason}) for each in job.status.conditions)
    errors = tuple(each.model_copy(update={"reason": reason}) for each in job.status.errors)
    return job.model_copy(update={"status": job.status.model_copy(update={"conditions": conditions, "errors": errors})})


def job_in(phase: Phase) -> HorovodJob:
    cluster = running_cluster()
    if phase is Phase.RESTARTING:
        cluster.end_container("cifar-launcher", 1)
        cluster.reconcile(after=15)
    if phase is Phase.TERMINATING:
        cluster.edit_run_policy(terminate=True)
        cluster.reconcile()
    assert phase_of(cluster) is phase
    return cluster.job


JOBS = [training_job(), *map(job_in, (Phase.RUNNING, Phase.RESTARTING, Phase.TERMINATING))]


@settings(max_examples=60, suppress_health_check=list(HealthCheck), deadline=None)
@given(st.data())
def test_a_pass_over_any_foreign_text_ends_and_its_status_can_be_stored(data: st.DataObject) -> None:
    job = data.draw(st.sampled_from(JOBS))
    for _ in range(3):
        job = edited(job, data.draw(st.none() | EDITED))
        context = JobContext(job, data.draw(observations(job)), NOON)
        status, outcome = next_status(context)
        stored = status.model_dump(mode="json", by_alias=True, exclude_none=True)
        text = json.dumps(stored, ensure_ascii=False)
        assert "\0" not in text
        text.encode()
        assert HorovodJobStatus.model_validate(stored) == status
        for event in events_between(job, job.status, status):
            event.note.encode()
        plan_for(context, outcome)
        job = job.model_copy(update={"status": status})


@given(TEXT)
def test_cleaned_text_can_be_stored(text: str) -> None:
    clean_text(text).encode()
    assert len(clean_text(text)) <= MAX_CHARACTERS
    assert not clean_reason(text) or REASON.fullmatch(clean_reason(text))
    assert clean_text("Grüße, 世界 🚀\n") == "Grüße, 世界 🚀\n"


@given(TEXT)
def test_any_error_can_be_reported(text: str) -> None:
    status = status_with_error(training_job().status, text, NOON)
    json.dumps(status.model_dump(mode="json"), ensure_ascii=False).encode()
