"""The API server, etcd, the network or a webhook fails for a while: jobs continue."""

import base64
import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from integration.conftest import Watches, reset_gaps
from integration.scenarios import finish_next_attempt
from support.api_client import Api, wait_for
from support.azure_fakes.https import HttpsServer, Request, Response
from support.control_plane.operator_control_plane import OperatorControlPlane
from support.faults.fault_proxy import FaultProxy
from support.job_driver import Job, restricted_pod, submit
from support.operator_process import Operator

Submit = Callable[..., Job]
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
STOPPED_SECONDS = 20
# Longer than the operator waits for evidence, retries and holds a phase back. A watch notices silence only after 70 s.
PARTITION_SECONDS = 20
WEBHOOK_SECONDS = 5
WORKERS = 6


def jobs_in(submit_job: Submit, *phases: str) -> dict[str, Job]:
    """A job in each of these phases."""
    jobs = {phase: submit_job(phase.lower()) for phase in phases}
    for phase, job in jobs.items():
        job.advance_to("Running" if phase == "Suspended" else phase)
    if suspended := jobs.get("Suspended"):
        suspended.suspend()
        suspended.wait("Suspended")
        wait_for("its pods to be deleted", lambda: not suspended.pods())
    return jobs


def finish(jobs: dict[str, Job]) -> None:
    """Lets each job succeed from its phase."""
    for phase, job in jobs.items():
        match phase:
            case "Restarting":
                finish_next_attempt(job)
            case "Suspended":
                job.suspend(False)
                job.wait("Queued")
                job.advance_to("Succeeded", since="Queued")
            case "Succeeded":
                job.wait("Succeeded")
            case _:
                job.advance_to("Succeeded", since=phase)
    assert {phase: job.status["restarts"] for phase, job in jobs.items()} == {
        phase: int(phase == "Restarting") for phase in jobs
    }
    assert {job.events()["Succeeded"] for job in jobs.values()} <= {0, 1}


def test_jobs_in_each_phase_continue_after_a_restart_of_the_api_server(
    submit_job: Submit, restart_apiserver: Callable[..., None]
) -> None:
    jobs = jobs_in(submit_job, "Queued", "Starting", "Running", "Restarting", "Suspended", "Succeeded")
    restart_apiserver()
    finish(jobs)


def test_jobs_continue_after_etcd_was_stopped(
    submit_job: Submit,
    control_plane: OperatorControlPlane,
    api: Api,
    watch_threads: Watches,
    check_watches_and_operators: None,
    namespace: str,
) -> None:
    jobs = jobs_in(submit_job, "Queued", "Running")
    failing = submit_job("restarting").advance_to("Running")
    failing.end("worker-1", 137)
    etcd = control_plane.pid("etcd")
    os.kill(etcd, signal.SIGSTOP)
    try:
        threading.Event().wait(STOPPED_SECONDS)
    finally:
        os.kill(etcd, signal.SIGCONT)
    reset_gaps(api, watch_threads, namespace)
    finish({**jobs, "Restarting": failing})


@pytest.fixture
def proxy(
    api: Api, namespace: str, operator_access: Path, operator_process: Operator, tmp_path: Path
) -> Iterator[FaultProxy]:
    """Between the API server and an operator of the test."""
    operator_process.kill()  # it would reconcile the same jobs
    with FaultProxy(api, operator_access, tmp_path) as started:
        operator = Operator(started.kubeconfig, tmp_path / "log", namespaces=namespace)
        operator.start()
        yield started
        operator.kill()


def test_workers_that_fail_during_a_partition_cause_one_restart(api: Api, namespace: str, proxy: FaultProxy) -> None:
    one, two = (submit(api, namespace, name).advance_to("Running") for name in ("one", "two"))
    proxy.disconnect()
    for job, role in ((one, "worker-1"), (two, "worker-0"), (two, "worker-1")):
        job.end(role, 137)
    new = submit(api, namespace, "new")
    threading.Event().wait(PARTITION_SECONDS)
    assert (one.phase, two.phase, new.get().get("status", {}).get("phase")) == ("Running", "Running", None)
    proxy.connect()
    for job in (one, two):
        finish_next_attempt(job)
        assert (job.status["attempt"], job.status["restarts"], job.status["preemptions"]) == (2, 1, 0)
        assert job.events()["Restarting"] <= 1
    assert new.advance_to("Succeeded").status["attempt"] == 1


class SlowWebhook:
    """Admits each pod after some seconds; counts the pods that wait."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting = self.most_waiting = 0
        self.calls: Counter[str] = Counter()

    def __call__(self, request: Request) -> Response:
        review = json.loads(request.body)
        with self._lock:
            self.calls[review["request"]["name"]] += 1
            self._waiting += 1
            self.most_waiting = max(self.most_waiting, self._waiting)
        threading.Event().wait(WEBHOOK_SECONDS)
        with self._lock:
            self._waiting -= 1
        answer = {"uid": review["request"]["uid"], "allowed": True}
        return Response(200, {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": answer})


@pytest.fixture
def slow_webhook(api: Api, namespace: str, tmp_path: Path) -> Iterator[SlowWebhook]:
    """A webhook for the pods of the test's namespace."""
    webhook = SlowWebhook()
    with HttpsServer(webhook, tmp_path) as server:
        authority = base64.b64encode(server.certificate.read_bytes()).decode()
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}
        described = {
            "name": "pods.example.com",
            "clientConfig": {"url": f"{server.url}/", "caBundle": authority},
            "rules": [rule],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 30,
        }
        kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
        name = f"slow-pods-in-{namespace}"
        api.create(WEBHOOKS, {**kind, "metadata": {"name": name}, "webhooks": [described]})
        yield webhook
        api.delete(f"{WEBHOOKS}/{name}")


def test_pods_wait_for_a_slow_webhook_side_by_side(
    submit_job: Submit, api: Api, namespace: str, slow_webhook: SlowWebhook
) -> None:
    def is_called() -> bool:
        api.create(f"/api/v1/namespaces/{namespace}/pods?dryRun=All", restricted_pod("probe"))
        return bool(slow_webhook.calls)

    wait_for("the webhook to be called", is_called)
    job = submit_job(worker={"replicas": WORKERS, "gpus": 0}).advance_to("Succeeded")
    del slow_webhook.calls["probe"]
    names = ("launcher", *(f"worker-{index}" for index in range(WORKERS)))
    assert slow_webhook.calls == {f"{job.name}-{name}": 1 for name in names}
    assert slow_webhook.most_waiting >= WORKERS - 1
    assert job.status["attempt"] == 1
