"""What the real API server answers when it refuses a pod, and what a job that meets this reports."""

import contextlib
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable

import pytest

from horovodjob.api.constants import Reason
from horovodjob_operator.errors import Refused
from horovodjob_operator.kube.requests.api_client import ApiClient
from horovodjob_operator.kube.requests.authentication import login
from horovodjob_operator.kube.requests.object_paths import collection_path
from support.api_client import Api, Object, wait_for
from support.control_plane.operator_control_plane import OperatorControlPlane, make_namespace
from support.job_driver import Job, restricted_pod, submit
from support.webhook import denies, fails, is_refused, webhook

Submit = Callable[..., Job]
RIGHTS = "/apis/rbac.authorization.k8s.io/v1/clusterroles/horovodjob-operator"
# Shorter than the limit of the webhook: until then its answer is held back.
SLOWEST_SECONDS = 25


def quota(api: Api, namespace: str, hard: Object, used: Object | None) -> None:
    """A quota with a status, or a new one without."""
    path = f"/api/v1/namespaces/{namespace}/resourcequotas"
    body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}, "spec": {"hard": hard}}
    api.create(path, body)
    if used is not None:
        api.patch(f"{path}/few/status", {"status": {"hard": hard, "used": used}})


def limit_range(api: Api, namespace: str) -> None:
    limits = [{"type": "Container", "max": {"cpu": "1"}, "default": {"cpu": "1"}}]
    body = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "small"}, "spec": {"limits": limits}}
    api.create(f"/api/v1/namespaces/{namespace}/limitranges", body)


def with_spec(**fields: object) -> Object:
    pod = restricted_pod("train-launcher")
    return pod | {"spec": pod["spec"] | fields}


LARGE = {"resources": {"limits": {"cpu": "2"}}}
PLAIN = with_spec()
CASES: dict[str, tuple[Reason, Callable[[Api, str], object], Object]] = {
    "an exceeded quota": (
        Reason.QUOTA_EXCEEDED,
        lambda api, namespace: quota(api, namespace, {"pods": "0"}, {"pods": "0"}),
        PLAIN,
    ),
    "a quota of what the pod does not name": (
        Reason.INVALID_SPEC,
        lambda api, namespace: quota(api, namespace, {"limits.cpu": "9"}, {"limits.cpu": "0"}),
        PLAIN,
    ),
    "a LimitRange": (
        Reason.ADMISSION_DENIED,
        limit_range,
        with_spec(containers=[PLAIN["spec"]["containers"][0] | LARGE]),
    ),
    "Pod Security": (Reason.ADMISSION_DENIED, lambda *_: None, with_spec(hostNetwork=True)),
    "a missing service account": (Reason.INVALID_SPEC, lambda *_: None, with_spec(serviceAccountName="nobody")),
    "a missing priority class": (Reason.INVALID_SPEC, lambda *_: None, with_spec(priorityClassName="nothing")),
    "a missing runtime class": (Reason.INVALID_SPEC, lambda *_: None, with_spec(runtimeClassName="nothing")),
    "an invalid field": (Reason.INVALID_SPEC, lambda *_: None, with_spec(restartPolicy="Sometimes")),
    "an unknown field": (Reason.INVALID_SPEC, lambda *_: None, with_spec(restartPolcy="Never")),
}


async def refusal(connection: ApiClient, namespace: str, pod: Object) -> Refused:
    path = collection_path("v1", "Pod", namespace)
    params = {"dryRun": "All", "fieldValidation": "Strict"}
    with pytest.raises(Refused) as raised:
        await connection.request("POST", path, pod, params=params, is_creation=True)
    return raised.value


@pytest.fixture
async def administrator(
    control_plane: OperatorControlPlane, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[ApiClient]:
    """A connection with all rights: the policy of the operator would refuse pods that are not those of a job."""
    monkeypatch.setenv("KUBECONFIG", str(control_plane.kubeconfig))
    async with contextlib.aclosing(ApiClient(login(), limit=4)) as opened:
        yield opened


async def test_the_answer_of_the_api_server_is_sorted_by_who_can_mend_it(
    api: Api, namespace: str, administrator: ApiClient
) -> None:
    for number, (what, (reason, prepare, pod)) in enumerate(CASES.items()):
        make_namespace(api, own := f"{namespace}-{number}")
        prepare(api, own)
        error = await refusal(administrator, own, pod)
        assert error.reason is reason, f"{what}: {error}"
        api.delete(f"/api/v1/namespaces/{own}")


async def test_a_policy_and_a_missing_right_are_told_apart(namespace: str, connection: ApiClient) -> None:
    # The policy of the operator's own rights is one more policy.
    assert (await refusal(connection, namespace, PLAIN)).reason is Reason.ADMISSION_DENIED
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    with pytest.raises(Refused) as raised:
        await connection.request("POST", path, {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}})
    assert raised.value.reason is Reason.OPERATOR_FORBIDDEN, str(raised.value)


def test_a_webhook_that_denies_a_pod_stalls_the_job_until_it_allows_it(
    submit_job: Submit, api: Api, namespace: str
) -> None:
    with webhook(api, namespace, denies("no cost center")) as name:
        wait_until_called(api, namespace)
        job = submit_job()
        message = job.wait_for_condition("Stalled", reason="AdmissionDenied")
    assert message == f'admission webhook "{name}" denied the request: no cost center'
    job.wait_for_condition("Stalled", status="False")
    job.advance_to("Succeeded")
    assert (job.status.get("errors", []), job.status["restarts"]) == ([], 0)


def wait_until_called(api: Api, namespace: str) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"
    wait_for("the webhook to be called", lambda: is_refused(api, pods, restricted_pod("probe")))


def test_what_fails_for_a_while_is_in_the_status_and_its_job_waits_and_is_not_stalled(
    submit_job: Submit, api: Api, namespace: str
) -> None:
    def is_reported(job: Job, reason: str, message: str) -> str:
        found = wait_for(
            "the reason", lambda: ready if (ready := job.condition("Ready")).get("reason") == reason else {}
        )
        assert message in found["message"]
        assert (job.phase, job.condition("Stalled")["status"]) == ("Queued", "False")
        return str(found["message"])

    rights = api.get(RIGHTS)["rules"]
    rules = [rule if rule["resources"] != ["secrets"] else rule | {"verbs": ["list"]} for rule in rights]
    with contextlib.ExitStack() as stack:
        stack.callback(api.patch, RIGHTS, {"rules": rights})
        api.patch(RIGHTS, {"rules": rules})
        forbidden = submit_job("forbidden")
        is_reported(forbidden, "OperatorForbidden", 'cannot create resource "secrets"')
    with webhook(api, namespace, fails) as name:
        wait_until_called(api, namespace)
        job = submit_job()
        message = is_reported(job, "CreationFailed", f'failed calling webhook "{name}"')
        assert message.endswith("(the operator keeps trying)")
    for each in (forbidden, job):
        each.advance_to("Succeeded")
        assert (each.status["attempt"], each.status.get("errors", [])) == (1, [])


def test_pods_wait_for_a_slow_webhook_side_by_side_and_delay_no_other_namespace(
    submit_job: Submit, api: Api, namespace: str
) -> None:
    other, released, waiting = f"{namespace}-slow", threading.Event(), Counter[str]()
    make_namespace(api, other)

    def respond(request: Object) -> Object:
        waiting[request["name"]] += 1
        released.wait(SLOWEST_SECONDS)
        return {"allowed": True}

    with webhook(api, other, respond):
        slow = [submit(api, other, f"slow-{number}", worker={"replicas": 9, "gpus": 0}) for number in range(3)]
        wait_for("the pods of a job to wait side by side", lambda: len(waiting) >= 5)
        jobs = [submit_job(f"quick-{number}", worker={"replicas": 4, "gpus": 0}) for number in range(3)]
        for job in jobs:
            job.wait_for_pods()
        assert not any(job.pods() for job in slow), "no call has been answered yet"
        message = wait_for("the cause", lambda: slow_message(slow[0]))
        assert "admission webhook" in message
        released.set()
        for job in slow:
            job.advance_to("Running")
        assert set(waiting.values()) == {1}
    api.delete(f"/api/v1/namespaces/{other}")


def slow_message(job: Job) -> str:
    message = str(job.condition("Ready").get("message", ""))
    return message if "slow" in message else ""
