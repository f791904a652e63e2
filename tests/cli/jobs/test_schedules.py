"""Runs of the CronJob of manifests/schedule, with the controllers of Kubernetes, and with `hvj` as their pods."""

import contextlib
import functools
import itertools
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.cluster_state import TIME, ClusterState, condition
from cli.program import Hvj, Process, hvj_process
from cli.service_account import token_kubeconfig
from horovodjob.client.cluster import kube
from horovodjob.client.jobs import owned_jobs
from support.api_client import ROOT, Api, Object, wait_for

FILES = ROOT / "manifests" / "schedule"
NAME = "nightly"
BATCH = "/apis/batch/v1/namespaces/{}"
RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/{}"
COLLECTIONS = {
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "ConfigMap": "/api/v1/namespaces/{}/configmaps",
    "Role": f"{RBAC}/roles",
    "RoleBinding": f"{RBAC}/rolebindings",
    "CronJob": f"{BATCH}/cronjobs",
}
DISRUPTION = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
LOSS = {"loss": 0.5}
TRAINING = {"epoch": 3, "epochs": 3, "progress": 1, "percent": "100%", "metrics": LOSS}
TRAINING |= {"history": [{"epoch": 3, "metrics": LOSS, "time": TIME}]}


class Schedule:
    """The CronJob of a test's namespace. The test is its clock and its kubelet."""

    def __init__(self, api: Api, namespace: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.api, self.namespace, self.directory = api, namespace, directory
        self.path = f"{BATCH.format(namespace)}/cronjobs/{NAME}"
        self.file = directory / "job.yaml"
        self._minutes = itertools.count(datetime.now(UTC).minute + 10)  # none of them comes soon
        for each in yaml.safe_load_all(kustomized(api)):
            if each["kind"] == "CronJob":
                each["spec"] |= {"timeZone": "Etc/UTC", "startingDeadlineSeconds": None}
            if each["kind"] == "ConfigMap":
                self.file.write_text(each["data"]["job.yaml"])
            each["metadata"]["namespace"] = namespace
            for subject in each.get("subjects", ()):
                subject["namespace"] = namespace
            api.create(COLLECTIONS[each["kind"]].format(namespace), each)
        claim = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Mi"}}}
        api.create(
            f"/api/v1/namespaces/{namespace}/persistentvolumeclaims", {"metadata": {"name": "data"}, "spec": claim}
        )
        # `hvj` has the rights of the service account.
        monkeypatch.setenv("KUBECONFIG", str(token_kubeconfig(api, namespace, NAME, directory)))

    def change(self, **spec: Any) -> None:
        """Change fields of the CronJob."""
        self.api.patch(self.path, {"spec": spec})

    def miss(self) -> None:
        """A time of a new schedule has come since the controller ran last: the Job of each minute has another name."""
        self.change(schedule=f"{next(self._minutes) % 60} * * * *")
        last = (datetime.now(UTC) - timedelta(minutes=61)).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.api.patch(f"{self.path}/status", {"status": {"lastScheduleTime": last}})

    def jobs(self) -> list[Object]:
        """The Jobs of the CronJob, the oldest first."""
        found = self.api.items(f"{BATCH.format(self.namespace)}/jobs")
        return sorted(found, key=lambda each: str(each["metadata"]["name"]))

    def next_job(self, *before: Object) -> Object:
        """The Job that the controller creates when a time has come, beside those that exist."""
        self.miss()
        return self.new_job(*before)

    def new_job(self, *before: Object) -> Object:
        """The Job that the controller creates, beside those that exist."""
        known = {each["metadata"]["uid"] for each in before}

        def new() -> list[Object]:
            return [each for each in self.jobs() if each["metadata"]["uid"] not in known]

        (job,) = wait_for("the Job", new)
        return job

    def pods(self, job: Object) -> list[Object]:
        """The pods of a Job that have not ended."""
        selector = f"labelSelector=batch.kubernetes.io/controller-uid%3D{job['metadata']['uid']}"
        found = self.api.items(f"/api/v1/namespaces/{self.namespace}/pods?{selector}")
        return [each for each in found if each["status"]["phase"] == "Pending"]

    def pod(self, job: Object) -> Object:
        """The pod of a Job."""
        (pod,) = wait_for("the pod", lambda: self.pods(job))
        return pod

    def arguments(self, pod: Object) -> list[str]:
        """The command line of a pod, with the values of the downward API and with the file of this test."""
        (container,) = pod["spec"]["containers"]
        words = container["args"]
        for variable in container["env"]:
            label = variable["valueFrom"]["fieldRef"]["fieldPath"].split("'")[1]
            words = [word.replace(f"$({variable['name']})", pod["metadata"]["labels"][label]) for word in words]
        return [word.replace("/etc/horovodjob/job.yaml", str(self.file)) for word in words]

    def end_pod(self, pod: Object, exit_code: int, **status: Any) -> None:
        """The state of an ended pod, as the kubelet writes it."""
        times = {"startedAt": "2026-11-22T12:00:00Z", "finishedAt": "2026-11-22T12:00:01Z"}
        container = {"name": "hvj", "image": "hvj", "imageID": "", "ready": False, "restartCount": 0}
        container |= {"state": {"terminated": {"exitCode": exit_code, **times}}}
        phase = "Failed" if exit_code else "Succeeded"
        body = {"status": {"phase": phase, "containerStatuses": [container], **status}}
        self.api.patch(f"/api/v1/namespaces/{self.namespace}/pods/{pod['metadata']['name']}/status", body)

    def finished(self, job: Object, condition: str) -> Object:
        """The Job when it has this condition."""
        path = f"{BATCH.format(self.namespace)}/jobs/{job['metadata']['name']}"

        def has_it() -> Object | None:
            found = self.api.get(path)
            kinds = [each["type"] for each in found["status"].get("conditions", ()) if each["status"] == "True"]
            return found if condition in kinds else None

        ended = wait_for(f"the Job to be {condition}", has_it)
        assert ended
        return ended

    def reasons(self) -> set[str]:
        """The reasons of the events of the CronJob."""
        events = self.api.items(f"/api/v1/namespaces/{self.namespace}/events")
        return {each["reason"] for each in events if each["involvedObject"]["kind"] == "CronJob"}


@functools.cache
def kustomized(api: Api) -> str:
    """The objects of manifests/schedule."""
    return api.kubectl("kustomize", str(FILES)).stdout


@pytest.fixture
def schedule(api: Api, workspace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Schedule:
    return Schedule(api, workspace, tmp_path, monkeypatch)


@contextlib.contextmanager
def started(schedule: Schedule, job: Object) -> Iterator[tuple[Process, Object, str]]:
    """The process of a Job's pod, the pod, and the name of the training that it has created."""
    pod = schedule.pod(job)
    name = job["metadata"]["name"]
    with hvj_process(*schedule.arguments(pod)) as process:
        wait_for("the training", lambda: process.poll() is not None or trainings(schedule, name))
        yield process, pod, name


def trainings(schedule: Schedule, *names: str) -> list[Object]:
    """The HorovodJobs of the namespace, or those with these names."""
    found = schedule.api.items(f"/apis/horovodjob.dev/v1beta1/namespaces/{schedule.namespace}/horovodjobs")
    return [each for each in found if not names or each["metadata"]["name"] in names]


def output(process: Process) -> tuple[int, str]:
    """Exit code and standard error of a process that ends."""
    error = process.communicate()[1]
    return process.returncode, error


def test_a_run_lasts_as_long_as_its_training_and_succeeds_with_it(
    schedule: Schedule, cluster: ClusterState, hvj: Hvj
) -> None:
    job = schedule.next_job()
    with started(schedule, job) as (process, pod, name):
        (training,) = trainings(schedule)
        (owner,) = training["metadata"]["ownerReferences"]
        assert (name, owner["uid"]) == (training["metadata"]["name"], job["metadata"]["uid"])
        cluster.run(name, training=TRAINING)
        assert process.poll() is None
        cluster.succeed(name)
        code, error = output(process)
    assert code == 0, error
    schedule.end_pod(pod, code)
    schedule.finished(job, "Complete")
    assert [each["name"] for each in hvj("job", "list", "-e", NAME).data] == [name]
    header, _, row = hvj("job", "list", "-o", "table").stdout.splitlines()
    assert (header.split()[-1], row.split()[-1]) == ("Experiment", NAME)
    assert [each["job"] for each in hvj("experiment", "compare", "-n", NAME).data] == [name]


def failed(schedule: Schedule, job: Object, pod: Object, process: Process) -> tuple[int, str]:
    """Exit code and standard error of a run that fails once."""
    code, error = output(process)
    schedule.end_pod(pod, code)
    assert schedule.finished(job, "Failed")["status"]["failed"] == 1
    return code, error


def test_a_run_whose_training_fails_is_refused_or_is_deleted_fails_and_is_not_repeated(
    schedule: Schedule, cluster: ClusterState
) -> None:
    jobs = [schedule.next_job()]
    with started(schedule, jobs[-1]) as (process, pod, name):
        cluster.fail(name, exit_code=1)
        code, error = failed(schedule, jobs[-1], pod, process)
    assert (code, f"job {name} failed" in error) == (1, True)

    jobs.append(schedule.next_job(*jobs))
    with started(schedule, jobs[-1]) as (process, pod, name):
        cluster.api.delete(f"{cluster.jobs}/{name}")
        assert failed(schedule, jobs[-1], pod, process)[0] == 3
    assert not trainings(schedule, name)

    jobs.append(schedule.next_job(*jobs))
    name = jobs[-1]["metadata"]["name"]
    stranger = cluster.create(name)
    with started(schedule, jobs[-1]) as (process, pod, _):
        code, error = failed(schedule, jobs[-1], pod, process)
    assert code == 1
    assert f"job {name} exists in namespace {schedule.namespace} and does not belong to Job {name}" in error
    assert [each["metadata"]["uid"] for each in trainings(schedule, name)] == [stranger["metadata"]["uid"]]

    schedule.file.write_text(schedule.file.read_text().replace("replicas: 2", "replicas: 0"))
    jobs.append(schedule.next_job(*jobs))
    with started(schedule, jobs[-1]) as (process, pod, name):
        code, error = failed(schedule, jobs[-1], pod, process)
    assert ("worker.replicas" in error, error.count("\n")) == (True, 1)
    assert not trainings(schedule, name)


def test_a_training_that_is_stalled_is_terminated_and_the_run_fails_with_the_reason(
    schedule: Schedule, cluster: ClusterState, hvj: Hvj, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owned_jobs, "STALLED_SECONDS", 0)
    job = schedule.next_job()
    name, pod = job["metadata"]["name"], schedule.pod(job)

    def stall() -> None:
        wait_for("the training", lambda: trainings(schedule))
        cluster.report(name, phase="Starting", conditions=[condition("Stalled", "SecretMissing", "no secret keys")])

    with ThreadPoolExecutor(1) as thread:
        thread.submit(stall)
        ended = hvj(*schedule.arguments(pod))
    assert ended.code == 4
    assert "SecretMissing: no secret keys; the job is terminated" in ended.stderr
    assert trainings(schedule)[0]["spec"]["runPolicy"]["terminate"]


def test_pods_of_one_run_follow_one_training_after_an_eviction_a_kill_and_side_by_side(
    schedule: Schedule, cluster: ClusterState
) -> None:
    job = schedule.next_job()
    for conditions in ([DISRUPTION], []):
        with started(schedule, job) as (process, pod, name):
            process.kill()
        schedule.end_pod(pod, 137, conditions=conditions)
        schedule.file.write_text("what a later commit left")
    pod = schedule.pod(job)
    with contextlib.ExitStack() as stack:
        processes = [stack.enter_context(hvj_process(*schedule.arguments(pod))) for _ in range(2)]
        processes[0].until(f"job {name} exists already")
        cluster.succeed(name)
        assert [output(each)[0] for each in processes] == [0, 0]
    schedule.end_pod(pod, 0)
    assert schedule.finished(job, "Complete")["status"]["succeeded"] == 1
    assert len(trainings(schedule)) == 1


def test_a_run_begins_beside_the_one_before_only_if_it_may_and_replaces_it_with_its_training(
    schedule: Schedule,
) -> None:
    first = schedule.next_job()
    with started(schedule, first) as (_, _, name):
        schedule.miss()
        wait_for("the skipped run", lambda: "JobAlreadyActive" in schedule.reasons())
        assert len(schedule.jobs()) == len(trainings(schedule)) == 1
        schedule.change(concurrencyPolicy="Replace")
        second = schedule.new_job(first)  # the run that was skipped
        wait_for("the deletion of the training", lambda: not trainings(schedule, name))
    with started(schedule, second):
        assert len(trainings(schedule)) == 1


def test_a_response_that_is_lost_is_no_second_training(
    schedule: Schedule, hvj: Hvj, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = kube.create_job
    lost: list[Object] = []

    def lose(job: Object, *, dry_run: bool = False) -> Object:
        from urllib3.exceptions import ProtocolError

        made = create(job, dry_run=dry_run)
        if not dry_run and not lost:
            lost.append(made)
            raise ProtocolError("connection reset")
        return made

    monkeypatch.setattr(kube, "create_job", lose)
    job = schedule.next_job()
    owner = f"{job['metadata']['name']}/{job['metadata']['uid']}"
    made = hvj("job", "create", "-f", str(schedule.file), "--owner-job", owner).data
    assert made["name"] == job["metadata"]["name"]
    assert len(trainings(schedule)) == len(lost) == 1


def test_a_run_that_would_be_deleted_or_repeated_is_refused(hvj: Hvj, tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    for metadata, policy, options, words in (
        ({}, {"ttlSecondsAfterFinished": 0}, (), "set ttlSecondsAfterFinished of the owner"),
        ({"namespace": "default"}, {}, (), "remove metadata.namespace"),
        ({}, {}, ("--name", "a"), "--owner-job also names the job: remove --name"),
        ({}, {}, ("--owner-job", "nightly"), "'nightly' must be NAME/UID of a Job"),
    ):
        job = {"apiVersion": "horovodjob.dev/v1beta1", "kind": "HorovodJob", "metadata": metadata}
        file.write_text(json.dumps({**job, "spec": {"command": ["train"], "runPolicy": policy}}))
        refused = hvj("job", "create", "-f", str(file), "--owner-job", "nightly-1/uid", *options)
        assert (refused.code, words in refused.stderr) == (2, True)
