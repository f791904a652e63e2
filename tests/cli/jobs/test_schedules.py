"""Runs of the CronJob of manifests/schedule, with the controllers of Kubernetes, and with `hvj` as their pods."""

import contextlib
import functools
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
# The Job of each minute has another name.
EACH_HOUR, OTHER_TIME = "0 * * * *", "59 * * * *"
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
        for each in yaml.safe_load_all(kustomized(api)):
            if each["kind"] == "CronJob":
                each["spec"] |= {"schedule": EACH_HOUR, "timeZone": "Etc/UTC", "startingDeadlineSeconds": None}
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
        self._use_account(monkeypatch)

    def _use_account(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """`hvj` has the token of the service account, and so its rights."""
        account = f"/api/v1/namespaces/{self.namespace}/serviceaccounts/{NAME}"
        kubeconfig = yaml.safe_load(self.api.kubeconfig.read_text())
        kubeconfig["users"][0]["user"] = {"token": self.api.create(f"{account}/token", {"spec": {}})["status"]["token"]}
        kubeconfig["contexts"][0]["context"]["namespace"] = self.namespace
        path = self.directory / "pod.kubeconfig"
        path.write_text(yaml.safe_dump(kubeconfig))
        monkeypatch.setenv("KUBECONFIG", str(path))

    def change(self, **spec: Any) -> None:
        """Change fields of the CronJob."""
        self.api.patch(self.path, {"spec": spec})

    def miss(self, since: timedelta) -> None:
        """The controller ran last this long ago."""
        last = (datetime.now(UTC) - since).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.api.patch(f"{self.path}/status", {"status": {"lastScheduleTime": last}})

    def jobs(self) -> list[Object]:
        """The Jobs of the CronJob, the oldest first."""
        found = self.api.items(f"{BATCH.format(self.namespace)}/jobs")
        return sorted(found, key=lambda each: str(each["metadata"]["name"]))

    def next_job(self, *before: Object) -> Object:
        """The Job that the controller creates when a time has come, beside those that exist."""
        known = {each["metadata"]["uid"] for each in before}
        self.miss(timedelta(minutes=61))

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


def test_a_run_whose_training_fails_fails_with_its_exit_code_and_is_not_repeated(
    schedule: Schedule, cluster: ClusterState
) -> None:
    job = schedule.next_job()
    with started(schedule, job) as (process, pod, name):
        cluster.fail(name, exit_code=1)
        code, error = output(process)
    assert code == 1
    assert f"job {name} failed" in error
    schedule.end_pod(pod, code)
    assert schedule.finished(job, "Failed")["status"]["failed"] == 1
    assert len(trainings(schedule)) == 1


def test_a_spec_that_the_api_server_refuses_fails_the_run_with_a_sentence(schedule: Schedule) -> None:
    schedule.file.write_text(schedule.file.read_text().replace("replicas: 2", "replicas: 0"))
    job = schedule.next_job()
    with started(schedule, job) as (process, pod, _):
        code, error = output(process)
    assert "worker.replicas" in error
    assert error.count("\n") == 1
    schedule.end_pod(pod, code)
    assert schedule.finished(job, "Failed")["status"]["failed"] == 1
    assert not trainings(schedule)


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
    schedule.end_pod(pod, ended.code)
    assert schedule.finished(job, "Failed")["status"]["failed"] == 1


def test_a_training_that_somebody_deletes_is_not_begun_again(schedule: Schedule, api: Api) -> None:
    job = schedule.next_job()
    with started(schedule, job) as (process, pod, name):
        api.delete(f"/apis/horovodjob.dev/v1beta1/namespaces/{schedule.namespace}/horovodjobs/{name}")
        code, error = output(process)
    assert code == 3, error
    schedule.end_pod(pod, code)
    assert schedule.finished(job, "Failed")["status"]["failed"] == 1
    assert not trainings(schedule)


@pytest.mark.parametrize("conditions", [[DISRUPTION], []], ids=["evicted", "killed"])
def test_a_pod_in_the_place_of_another_follows_the_same_training(
    conditions: list[Object], schedule: Schedule, cluster: ClusterState
) -> None:
    job = schedule.next_job()
    with started(schedule, job) as (process, pod, name):
        process.kill()
    schedule.end_pod(pod, 137, conditions=conditions)
    schedule.file.write_text("what a later commit left")
    with started(schedule, job) as (process, pod, _):
        cluster.succeed(name)
        code, error = output(process)
    assert code == 0, error
    assert f"job {name} exists already" in error
    schedule.end_pod(pod, code)
    assert schedule.finished(job, "Complete")["status"]["succeeded"] == 1
    assert len(trainings(schedule)) == 1


def test_two_pods_of_one_run_follow_one_training(schedule: Schedule, cluster: ClusterState) -> None:
    job = schedule.next_job()
    pod = schedule.pod(job)
    with contextlib.ExitStack() as stack:
        processes = [stack.enter_context(hvj_process(*schedule.arguments(pod))) for _ in range(2)]
        wait_for("the training", lambda: trainings(schedule))
        cluster.succeed(job["metadata"]["name"])
        assert [output(each)[0] for each in processes] == [0, 0]
    assert len(trainings(schedule)) == 1


def test_a_run_does_not_begin_while_the_one_before_still_trains(schedule: Schedule) -> None:
    job = schedule.next_job()
    with started(schedule, job):
        schedule.change(schedule=OTHER_TIME)
        schedule.miss(timedelta(minutes=61))
        wait_for("the skipped run", lambda: "JobAlreadyActive" in schedule.reasons())
        assert len(schedule.jobs()) == len(trainings(schedule)) == 1
        schedule.change(concurrencyPolicy="Allow")
        schedule.next_job(job)


def test_a_run_that_replaces_another_deletes_its_training(schedule: Schedule) -> None:
    schedule.change(concurrencyPolicy="Replace")
    first = schedule.next_job()
    with started(schedule, first) as (_, _, name):
        schedule.change(schedule=OTHER_TIME)
        second = schedule.next_job(first)
        wait_for("the deletion of the training", lambda: not trainings(schedule, name))
    with started(schedule, second):
        assert len(trainings(schedule)) == 1


def test_ended_runs_are_kept_in_the_number_of_the_history_and_others_are_deleted_with_their_training(
    schedule: Schedule, cluster: ClusterState
) -> None:
    schedule.change(successfulJobsHistoryLimit=1)
    names = []
    jobs: list[Object] = []
    for time in (EACH_HOUR, OTHER_TIME):
        schedule.change(schedule=time)
        jobs.append(schedule.next_job(*jobs))
        with started(schedule, jobs[-1]) as (process, pod, name):
            cluster.succeed(name)
            schedule.end_pod(pod, output(process)[0])
        schedule.finished(jobs[-1], "Complete")
        names.append(name)
    wait_for("the deletion of the first", lambda: not trainings(schedule, names[0]))
    assert len(trainings(schedule)) == 1


def test_of_missed_times_only_the_last_begins(schedule: Schedule) -> None:
    schedule.miss(timedelta(days=3))
    (job,) = wait_for("the Job", schedule.jobs)
    time = datetime.fromisoformat(job["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"])
    assert timedelta(0) <= datetime.now(UTC) - time < timedelta(hours=1, minutes=1)


def begun(schedule: Schedule) -> list[str]:
    """The schedules of the runs, as soon as one of a second schedule, which has missed times too, has begun."""
    spec = {**schedule.api.get(schedule.path)["spec"], "schedule": EACH_HOUR}
    path = f"{BATCH.format(schedule.namespace)}/cronjobs"
    other = {**spec, "suspend": False, "startingDeadlineSeconds": None}
    schedule.api.create(path, {"metadata": {"name": "other"}, "spec": other})
    schedule.api.patch(f"{path}/other/status", {"status": {"lastScheduleTime": "2026-01-01T00:00:00Z"}})

    def names() -> list[str]:
        return [each["metadata"]["name"].rpartition("-")[0] for each in schedule.jobs()]

    wait_for("a run of the second one", lambda: "other" in names())
    return names()


def test_a_time_that_was_missed_by_more_than_the_deadline_is_skipped(schedule: Schedule) -> None:
    hour = (datetime.now(UTC) - timedelta(hours=2)).hour
    schedule.change(schedule=f"0 {hour} * * *", startingDeadlineSeconds=60)
    schedule.miss(timedelta(hours=4))
    assert begun(schedule) == ["other"]
    schedule.change(startingDeadlineSeconds=4 * 3600)
    wait_for("its run", lambda: len(schedule.jobs()) == 2)


def test_a_suspended_schedule_begins_no_run_until_it_is_resumed(schedule: Schedule) -> None:
    schedule.change(suspend=True)
    schedule.miss(timedelta(hours=4))
    assert begun(schedule) == ["other"]
    schedule.change(suspend=False)
    wait_for("its run", lambda: len(schedule.jobs()) == 2)


def test_the_times_are_those_of_the_time_zone(schedule: Schedule) -> None:
    tokyo = datetime.now(UTC) + timedelta(hours=9)
    schedule.change(schedule=f"{tokyo.minute} {tokyo.hour} * * *", timeZone="Asia/Tokyo")
    schedule.miss(timedelta(hours=2))
    (job,) = wait_for("the Job", schedule.jobs)
    time = datetime.fromisoformat(job["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"])
    assert time.utcoffset() == timedelta(hours=9)


def test_a_job_with_the_name_of_the_run_that_is_not_its_own_is_refused_and_left_alone(
    schedule: Schedule, cluster: ClusterState
) -> None:
    job = schedule.next_job()
    stranger = cluster.create(job["metadata"]["name"])
    with started(schedule, job) as (process, _, name):
        code, error = output(process)
    assert code == 1
    assert f"job {name} exists in workspace {schedule.namespace} and does not belong to Job {name}" in error
    assert [each["metadata"]["uid"] for each in trainings(schedule)] == [stranger["metadata"]["uid"]]


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


@pytest.mark.parametrize(
    ("metadata", "policy", "options", "words"),
    [
        ({}, {"ttlSecondsAfterFinished": 0}, (), "set ttlSecondsAfterFinished of the owner"),
        ({"namespace": "default"}, {}, (), "remove metadata.namespace"),
        ({}, {}, ("--name", "a"), "--owner-job also names the job: remove --name"),
        ({}, {}, ("--owner-job", "nightly"), "'nightly' must be NAME/UID of a Job"),
    ],
)
def test_a_run_that_would_be_deleted_or_repeated_is_refused(
    metadata: Object, policy: Object, options: tuple[str, ...], words: str, hvj: Hvj, tmp_path: Path
) -> None:
    job = {"apiVersion": "horovodjob.dev/v1beta1", "kind": "HorovodJob", "metadata": metadata}
    file = tmp_path / "job.json"
    file.write_text(json.dumps({**job, "spec": {"command": ["train"], "runPolicy": policy}}))
    refused = hvj("job", "create", "-f", str(file), "--owner-job", "nightly-1/uid", *options)
    assert (refused.code, words in refused.stderr) == (2, True)
