"""Gang scheduling: creation, size and deletion of the pod group of a job."""

from collections.abc import Callable, Iterator

import pytest

from integration.quota import Quota
from integration.scenarios import finish_from_each_phase, jobs_in_each_phase, suspend
from localcluster.control_plane.components import gang_api, gang_gates, pod_group_version
from support.api_client import Api, Object, is_served, wait_for
from support.control_plane.operator_control_plane import BINARIES, OperatorControlPlane
from support.job_driver import Job
from support.operator_process import Operator

Submit = Callable[..., Job]
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ANY = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
VOLCANO = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "podgroups.scheduling.volcano.sh"},
    "spec": {
        "group": "scheduling.volcano.sh",
        "scope": "Namespaced",
        "names": {"kind": "PodGroup", "plural": "podgroups", "singular": "podgroup"},
        "versions": [{"name": "v1beta1", "served": True, "storage": True, "schema": {"openAPIV3Schema": ANY}}],
    },
}
PATHS = {
    "Native": f"/apis/scheduling.k8s.io/{pod_group_version(BINARIES)}/namespaces/{{}}/podgroups",
    "Volcano": "/apis/scheduling.volcano.sh/v1beta1/namespaces/{}/podgroups",
}
MEMBERS = ("launcher", "worker-0", "worker-1")


def install_volcano(api: Api) -> None:
    """Installs the CRD of its PodGroup; no scheduler handles it."""
    api.create(DEFINITIONS, VOLCANO)
    wait_for("its PodGroups to be served", lambda: is_served(api, PATHS["Volcano"].format("default")))


def remove_volcano(api: Api) -> None:
    """Deletes the CRD, and with it each PodGroup of Volcano."""
    definition = f"{DEFINITIONS}/{VOLCANO['metadata']['name']}"  # type: ignore[index]
    if api.find(definition):
        api.delete(definition)
        wait_for("the CRD to be deleted", lambda: api.find(definition) is None)


@pytest.fixture(scope="module", autouse=True)
def remove_volcano_at_the_end(check_cluster_objects: None, api: Api) -> Iterator[None]:
    yield
    remove_volcano(api)


@pytest.fixture(params=PATHS)
def gang(request: pytest.FixtureRequest, api: Api) -> str:
    """The kind of gang; the PodGroup of Volcano is served."""
    if request.param == "Volcano" and not api.find(PATHS["Volcano"].format("default")):
        install_volcano(api)
    return str(request.param)


@pytest.fixture
def groups(gang: str, api: Api, namespace: str) -> Callable[[], list[Object]]:
    """The pod groups of the test's namespace."""

    def poll() -> list[Object]:
        found: list[Object] = api.get(PATHS[gang].format(namespace))["items"]
        return found

    return poll


@pytest.fixture
def train(gang: str, submit_job: Submit, groups: Callable[[], list[Object]]) -> Submit:
    """Submits a job with a gang."""

    def make(**spec: object) -> Job:
        return submit_job(scheduling={"gang": gang}, **spec)

    return make


def size(group: Object) -> int:
    """How many pods must be scheduled together."""
    spec = group["spec"]
    return int(spec["minMember"] if "minMember" in spec else spec["schedulingPolicy"]["gang"]["minCount"])


def group_of(pod: Object) -> str:
    """The group that a pod is a member of."""
    native = pod["spec"].get("schedulingGroup", {}).get("podGroupName", "")
    return str(native or pod["metadata"]["annotations"].get("scheduling.k8s.io/group-name", ""))


def test_a_group_is_created_before_its_pods_and_lives_as_long_as_an_attempt_keeps_pods(
    train: Submit,
    groups: Callable[[], list[Object]],
    control_plane: OperatorControlPlane,
    operator: Operator,
    namespace: str,
) -> None:
    job = train()
    pods = job.wait_for_pods(MEMBERS)
    (group,) = groups()
    assert (group["metadata"]["name"], size(group)) == ("train", 3)
    assert group["metadata"]["ownerReferences"][0]["uid"] == job.uid
    assert {group_of(pod) for pod in pods.values()} == {"train"}
    job.advance_to("Running")
    asked = control_plane.requests(namespace)
    assert asked.index("create podgroups") < asked.index("create pods")
    assert [request for request in asked if "podgroups" in request] == ["create podgroups"]
    job.delete_pod("worker-1")
    job.wait("Restarting")
    operator.kill()  # the new process must find the group again
    operator.start()
    job.skip_backoff()
    job.advance_to("Running", since="Queued")
    assert [one["metadata"]["uid"] for one in groups()] == [group["metadata"]["uid"]]
    job.suspend(True, worker={"replicas": 3})
    job.wait("Suspended")
    wait_for("the group to be deleted", lambda: groups() == [])
    assert control_plane.calls(namespace)["deletecollection podgroups"] == 1
    job.suspend(False)
    job.advance_to("Running")
    assert [size(one) for one in groups()] == [4]
    job.delete()
    wait_for("the group to be deleted", lambda: groups() == [])


@pytest.mark.parametrize("gang", ["Native"], indirect=True)
def test_pods_of_a_partly_scheduled_gang_are_deleted_and_the_group_is_kept_and_deleted_if_they_are_refused(
    gang: str, submit_job: Submit, groups: Callable[[], list[Object]], api: Api, namespace: str
) -> None:
    job = submit_job(scheduling={"gang": gang, "timeoutSeconds": 6})
    job.schedule(["worker-0"])
    job.wait_for_condition("Queued", reason="SchedulingTimeout")
    (before,) = groups()
    wait_for("the pods to be deleted", lambda: job.pods() == {})
    job.advance_to("Running", since="Queued")
    assert [group["metadata"]["uid"] for group in groups()] == [before["metadata"]["uid"]]
    assert (job.status["attempt"], job.status["restarts"]) == (2, 0)

    suspend(job)
    quota = Quota(api, namespace, 0)
    job.suspend(False)
    wait_for("the message", lambda: "exceeded quota: few" in job.condition("Queued").get("message", ""))
    wait_for("the group to be deleted", lambda: groups() == [])
    quota.change(10)
    job.advance_to("Running")
    assert [size(group) for group in groups()] == [3]


@pytest.mark.parametrize("gang", ["Native"], indirect=True)
def test_a_foreign_group_with_the_same_name_is_kept_and_blocks_the_job_until_it_is_deleted(
    gang: str, train: Submit, groups: Callable[[], list[Object]], api: Api, namespace: str
) -> None:
    spec = {"schedulingPolicy": {"gang": {"minCount": 2}}}
    version = PATHS[gang].removeprefix("/apis/").partition("/namespaces")[0]
    path = PATHS[gang].format(namespace)
    api.create(path, {"apiVersion": version, "kind": "PodGroup", "metadata": {"name": "train"}, "spec": spec})
    (foreign,) = groups()
    job = train()
    assert "PodGroup train exists and does not belong to this job" in job.wait_for_condition(
        "Stalled", reason="NameConflict"
    )
    assert (groups(), job.pods()) == ([foreign], {})
    job.suspend()
    job.wait("Suspended")
    assert groups() == [foreign]
    api.delete(f"{path}/train")
    job.suspend(False)
    job.advance_to("Succeeded")


def test_a_missing_volcano_is_reported_and_the_job_starts_once_it_is_installed(submit_job: Submit, api: Api) -> None:
    remove_volcano(api)
    job = submit_job(scheduling={"gang": "Volcano"})
    assert job.wait_for_condition("Stalled", reason="InvalidSpec") == (
        "spec.scheduling.gang is Volcano, and this cluster does not serve PodGroup of scheduling.volcano.sh/v1beta1: "
        "install Volcano, or set it to None while the job is suspended"
    )
    assert (job.phase, job.pods()) == ("Queued", {})
    without = submit_job("without", scheduling={"gang": "Volcano"})
    without.wait_for_condition("Stalled", reason="InvalidSpec")
    without.suspend(True, scheduling={"gang": "None"})
    without.wait("Suspended")
    without.suspend(False)
    without.advance_to("Succeeded")
    install_volcano(api)
    job.wait_for_condition("Stalled", status="False")
    job.advance_to("Succeeded")


@pytest.fixture
def restore_gates(api: Api, restart_apiserver: Callable[..., None]) -> Iterator[None]:
    """The API server has its feature gates after the test."""
    yield
    if not is_served(api, PATHS["Native"].format("default")):
        restart_apiserver()


@pytest.mark.usefixtures("restore_gates")
def test_jobs_outlive_restarts_of_the_api_server_and_a_gang_starts_once_its_feature_gates_are_enabled(
    submit_job: Submit, operator: Operator, restart_apiserver: Callable[..., None]
) -> None:
    jobs = jobs_in_each_phase(submit_job)
    deleted = submit_job("deleted").advance_to("Running")
    restart_apiserver(without=(*gang_gates(BINARIES), *gang_api(BINARIES)))
    deleted.delete()
    gang = submit_job("gang", scheduling={"gang": "Native"})
    finish_from_each_phase(jobs)
    counts = {"Succeeded": len(jobs), "Queued": 1}
    wait_for("the deleted job to be forgotten", lambda: operator.jobs(deleted.namespace) == counts)
    assert gang.wait_for_condition("Stalled", reason="InvalidSpec") == (
        "spec.scheduling.gang is Native, and this cluster does not serve PodGroup of scheduling.k8s.io: turn on its "
        "feature gates and its API, v1beta1 of Kubernetes 1.37 or v1alpha2 of 1.36, or set it to None while the job is "
        "suspended"
    )
    assert gang.pods() == {}
    restart_apiserver()
    gang.wait_for_condition("Stalled", status="False")
    gang.wait_for_pods()
