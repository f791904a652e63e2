"""An operator that watches some namespaces: named ones, with Roles instead of a ClusterRole, or those with a label."""

import itertools
import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
import yaml

from horovodjob_operator.controller.watches.kopf_settings import kopf_settings
from support.api_client import JOBS, ROOT, Api, Object, job, wait_for
from support.control_plane.operator_control_plane import OPERATOR_NAMESPACE, make_namespace, operator_kubeconfig
from support.job_driver import Job, restricted_pod, submit
from support.operator_process import Operator

ACCOUNT = "limited"
LABEL = "horovodjob.dev/enabled"
TEAM = ROOT / "manifests" / "team"
RBAC = "/apis/rbac.authorization.k8s.io/v1"


@pytest.fixture
def namespaces(api: Api, namespace: str) -> Iterator[tuple[str, str, str]]:
    """Two namespaces that the operator watches, and one that it does not."""
    others = (f"{namespace}-b", f"{namespace}-c")
    for name in others:
        make_namespace(api, name)
    yield (namespace, *others)
    for name in others:
        api.delete(f"/api/v1/namespaces/{name}")


@pytest.fixture
def permit(api: Api) -> Callable[[str], None]:
    """Grants the operator's rights to its service account in one namespace."""

    def permitted(namespace: str) -> None:
        rules = api.get(f"{RBAC}/clusterroles/horovodjob-operator")["rules"]
        metadata = {"name": ACCOUNT}
        api.create(f"{RBAC}/namespaces/{namespace}/roles", {"metadata": metadata, "rules": rules})
        subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": OPERATOR_NAMESPACE}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": ACCOUNT}
        binding = {"metadata": metadata, "roleRef": role, "subjects": [subject]}
        api.create(f"{RBAC}/namespaces/{namespace}/rolebindings", binding)

    return permitted


@pytest.fixture
def namespaced_operator(
    api: Api,
    operator_process: Operator,
    operator_access: Path,
    namespaces: tuple[str, str, str],
    permit: Callable[[str], None],
) -> Iterator[Operator]:
    """An operator for the first two namespaces, with rights in the first only."""
    operator_process.kill()
    accounts = f"/api/v1/namespaces/{OPERATOR_NAMESPACE}/serviceaccounts"
    if not api.find(f"{accounts}/{ACCOUNT}"):
        api.create(accounts, {"metadata": {"name": ACCOUNT}})
    permit(namespaces[0])
    kubeconfig = operator_kubeconfig(api, operator_access.with_name(ACCOUNT), ACCOUNT)
    operator = Operator(kubeconfig, operator_access.with_name("limited.log"), namespaces=",".join(namespaces[:2]))
    yield operator.start()
    operator.kill()


def refusals(operator: Operator, namespace: str) -> list[Object]:
    """The operator's log messages about missing rights in a namespace."""
    return [line for line in operator.new_log_lines() if f'in the namespace "{namespace}"' in line["message"]]


def test_an_operator_reconciles_jobs_of_its_namespaces_only(
    api: Api, namespaced_operator: Operator, namespaces: tuple[str, str, str], permit: Callable[[str], None]
) -> None:
    own, forbidden, other = namespaces
    foreign = submit(api, other)
    submit(api, own).advance_to("Succeeded")

    waiting = submit(api, forbidden)
    wait_for("several tries", lambda: namespaced_operator.metrics().get(_forbidden("pods"), 0) >= 3)
    logged = refusals(namespaced_operator, forbidden)
    assert sorted(line["message"].split(":")[0] for line in logged) == ["job watch", "pod watch"], "each once"
    assert waiting.phase == ""
    permit(forbidden)
    waiting.advance_to("Succeeded")
    assert foreign.phase == ""
    assert namespaced_operator.get("/readyz")[0] == 200


@pytest.fixture
def selective_operator(api: Api, operator_process: Operator, operator_access: Path) -> Iterator[Operator]:
    """An operator for the namespaces with the label `horovodjob.dev/enabled`."""
    operator_process.kill()
    metadata = {"name": "namespace-reader"}
    rules = [{"apiGroups": [""], "resources": ["namespaces"], "verbs": ["list", "watch"]}]
    subject = {"kind": "ServiceAccount", "name": "horovodjob-operator", "namespace": OPERATOR_NAMESPACE}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "namespace-reader"}
    rights = {
        f"{RBAC}/clusterroles": {"metadata": metadata, "rules": rules},
        f"{RBAC}/clusterrolebindings": {"metadata": metadata, "roleRef": role, "subjects": [subject]},
    }
    for path, body in rights.items():
        api.create(path, body)
    operator = Operator(operator_access, operator_access.with_name("selective.log"), namespace_selector=LABEL)
    yield operator.start()
    operator.kill()
    for path in rights:
        api.delete(f"{path}/namespace-reader")


def test_namespaces_are_selected_by_a_label_and_an_annotation_sets_the_defaults_and_the_queue_of_their_jobs(
    api: Api, selective_operator: Operator, namespaces: tuple[str, str, str]
) -> None:
    own, other, _ = namespaces
    label(api, other)
    selected = submit(api, own)
    submit(api, other).advance_to("Succeeded")
    assert (selected.phase, selected.pods()) == ("", {}), "the namespace is not selected"
    annotate(api, own, '{"nodeSelector": {"pool": "own"}, "priorityClass": "x"}')
    label(api, own)
    message = selected.wait_for_condition("Stalled", reason="InvalidSpec")
    assert message.startswith(f"annotation horovodjob.dev/job-defaults of namespace {own}: priorityClass: ")
    assert selected.pods() == {}
    annotate(api, own, '{"nodeSelector": {"pool": "own"}}')
    selected.advance_to("Running")
    assert {pod["spec"]["nodeSelector"]["pool"] for pod in selected.pods().values()} == {"own"}
    assert "pool" not in submit(api, other, "other").wait_for_pods()["launcher"]["spec"].get("nodeSelector", {})

    label(api, own, None)
    wait_for("no jobs of the namespace", lambda: not selective_operator.jobs(own))
    selected.end("launcher", 0)
    waiting = submit(api, own, "waiting")
    submit(api, other, "meanwhile").advance_to("Succeeded")
    assert (selected.phase, waiting.phase) == ("Running", ""), "the operator changes none of its jobs"
    assert selected.uids()
    # Namespaces and jobs are two watches: a job that is created before the operator sees the annotation has no queue.
    annotate(api, own, '{"queue": "gpus"}')
    label(api, own)
    selected.wait("Succeeded")
    assert "queue" not in selected.status, "its pods need no quota any more"
    wait_for("it to wait in the queue", lambda: waiting.status.get("queue", {}).get("name") == "gpus")
    assert (waiting.phase, waiting.pods()) == ("Queued", {})
    without_queue = job("without-queue")
    without_queue["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": ""}
    created = api.create(JOBS.format(own), without_queue)
    Job(api, own, "without-queue", created["metadata"]["uid"]).advance_to("Succeeded")
    annotate(api, own, "{}")
    waiting.advance_to("Succeeded")
    assert selective_operator.get("/readyz")[0] == 200


@pytest.fixture
def counted_jobs(api: Api, namespace: str) -> None:
    """Waits until the quota controller counts jobs.

    It looks for new resources every 30 seconds. A quota with a resource that it does not know has no status, and the
    controller reads such a quota again only when it changes, or after minutes.
    """
    quota, limits = f"/api/v1/namespaces/{namespace}/resourcequotas", itertools.count(1)

    def hard() -> Object:
        return {"hard": {"count/horovodjobs.horovodjob.dev": str(next(limits))}}

    api.create(quota, {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "probe"}, "spec": hard()})

    def is_counted() -> bool:
        return "used" in (api.patch(f"{quota}/probe", {"spec": hard()}).get("status") or {})

    wait_for("the quota controller to count jobs", is_counted)
    api.delete(f"{quota}/probe")


@pytest.fixture
def team(api: Api, counted_jobs: None) -> Iterator[str]:
    """The namespace of manifests/team."""
    done = api.kubectl("apply", "-k", str(TEAM))
    assert done.returncode == 0, done.stderr
    yield "team-a"
    assert api.kubectl("delete", "--timeout=60s", "--ignore-not-found", "-k", str(TEAM)).returncode == 0


REFUSED = {
    "use the service account default": {"serviceAccountName": "admin"},
    "cannot set nodeName": {"nodeName": "node-1"},
    "cannot have a priority class of Kubernetes itself": {"priorityClassName": "system-node-critical"},
    "can tolerate only the taints of GPU nodes": {"tolerations": [{"operator": "Exists"}]},
    "and team=team-a": {"tolerations": [{"key": "team", "value": "team-b"}]},
    "spot nodes and team=team-a": {"tolerations": [{"key": "team", "operator": "Exists"}]},
    "remove the other tolerations": {"tolerations": [{"key": "node-role.kubernetes.io/control-plane"}]},
    "can have inline volumes of the driver": {"volumes": [{"name": "v", "csi": {"driver": "attacker.test"}}]},
    "violates PodSecurity": {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]},
}


def test_a_member_of_a_team_runs_jobs_in_its_namespace_alone_and_reaches_nothing_beyond_it(
    api: Api, selective_operator: Operator, team: str, namespace: str
) -> None:
    def kubectl(*arguments: str, stdin: Object | None = None) -> str:
        user = ("--as", "jane", "--as-group", team)
        done = api.kubectl(*user, *arguments, stdin=json.dumps(stdin) if stdin else "")
        return done.stdout + done.stderr

    def created(body: Object, *options: str) -> str:
        return kubectl("-n", team, "create", *options, "-f", "-", stdin=body)

    wait_for("the aggregation", lambda: "yes" in kubectl("-n", team, "auth", "can-i", "create", "horovodjobs"))
    assert "created" in created(job("train"))
    assert "forbidden" in kubectl("-n", namespace, "create", "-f", "-", stdin=job("train"))
    for change in ("delete resourcequota team", "annotate namespace team-a a=b", "delete rolebinding team"):
        assert "forbidden" in kubectl("-n", team, *change.split()), change
    uid = api.get(f"{JOBS.format(team)}/train")["metadata"]["uid"]
    pods = Job(api, team, "train", uid).advance_to("Succeeded").pods()
    tolerations = pods["launcher"]["spec"]["tolerations"]
    assert {"key": "team", "operator": "Equal", "value": "team-a"} in tolerations

    api.create(f"/api/v1/namespaces/{team}/serviceaccounts", {"metadata": {"name": "admin"}})
    pod = restricted_pod("own")
    pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1", "memory": "1Gi"}}
    on_node = {**pod, "spec": pod["spec"] | {"nodeName": "node-1"}}
    wait_for("the policy", lambda: "nodeName" in created(on_node, "--dry-run=server"))
    for message, fields in REFUSED.items():
        assert message in created({**pod, "spec": pod["spec"] | fields}), message
    assert "pod/own created" in created(pod)
    added = '[{"op": "add", "path": "/spec/tolerations/-", "value": {"operator": "Exists"}}]'
    assert "can tolerate only the taints" in kubectl("-n", team, "patch", "pod", "own", "--type=json", "-p", added)
    attacks = [
        submit(api, team, f"attack-{number}", worker={"replicas": 1, "gpus": 0, "template": {"spec": template}})
        for number, template in enumerate(REFUSED.values())
    ]
    for attack in attacks:
        assert attack.wait_for_condition("Stalled"), attack.get()["spec"]

    # Without the policy, the quota alone refuses pods with a priority of Kubernetes.
    for kind in ("validatingadmissionpolicybinding", "validatingadmissionpolicy"):
        assert api.kubectl("delete", kind, "team-a-pods").returncode == 0
    wait_for("the quota", lambda: api.get(f"/api/v1/namespaces/{team}/resourcequotas/no-system-priorities")["status"])
    pod = restricted_pod("critical")
    pod["spec"]["priorityClassName"] = "system-cluster-critical"
    wait_for("the end of the policy", lambda: "exceeded quota" in refused(api, team, pod))


def refused(api: Api, namespace: str, body: Object) -> str:
    """The error of a creation by the administrator."""
    return api.kubectl("-n", namespace, "create", "--dry-run=server", "-f", "-", stdin=json.dumps(body)).stderr


def test_a_queue_is_added_to_the_namespace_of_a_team(api: Api, tmp_path: Path) -> None:
    copied = shutil.copytree(TEAM, tmp_path / "team")
    kustomization = copied / "kustomization.yaml"
    kustomization.write_text(kustomization.read_text().replace("# components: [queue]", "components: [queue]"))
    objects = list(yaml.safe_load_all(api.kubectl("kustomize", str(copied)).stdout))
    (queue,) = (each for each in objects if each["kind"] == "LocalQueue")
    assert (queue["metadata"]["namespace"], queue["spec"]) == ("team-a", {"clusterQueue": "team-a"})


def label(api: Api, namespace: str, value: str | None = "") -> None:
    """Sets the label of the namespace; None removes it."""
    api.patch(f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": {LABEL: value}}})


def annotate(api: Api, namespace: str, defaults: str) -> None:
    """Sets the defaults for the jobs of the namespace."""
    metadata = {"annotations": {"horovodjob.dev/job-defaults": defaults}}
    api.patch(f"/api/v1/namespaces/{namespace}", {"metadata": metadata})


def test_kopf_retries_a_request_without_limit() -> None:
    backoffs = kopf_settings(240).networking.error_backoffs
    assert isinstance(backoffs, Iterable)
    assert len(list(itertools.islice(backoffs, 10_000))) == 10_000


def _forbidden(resource: str) -> str:
    return f'horovodjob_operator_api_requests_total{{code="403",resource="{resource}",verb="list"}}'
