"""`hvj doctor` against a real API server, with the fakes of Azure Files and Azure Resource Manager."""

import base64
import json
import re
import shlex
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import yaml

from cli.cluster.aks_cluster import CLIENT, aks_cluster
from cli.cluster.kueue_objects import QUEUE, Kueue
from cli.cluster.nodes import Nodes
from cli.cluster_state import ClusterState, condition
from cli.program import Hvj, Result, run, terminal
from horovodjob.client.cluster import kube
from horovodjob.client.diagnosis import cluster_facts as check_result
from horovodjob.client.diagnosis import installation
from horovodjob.client.diagnosis.cluster_facts import Facts
from horovodjob.client.diagnosis.report import report
from horovodjob_cli.output import uses_color
from localcluster.control_plane.standalone import ControlPlane
from support.api_client import ROOT, Api, ApiError, Object, install_definition, job, machine_address, wait_for
from support.azure_fakes.arm.resources import new_pool
from support.azure_fakes.files.accounts import Account
from support.azure_fakes.files.server import FilesService
from support.tutorial.page import blocks

OPERATOR = "horovodjob-operator"
DRIVER = "file.csi.azure.com"
SHARE = {"name": "myshare", "account": "mystorageaccount", "share": "myshare"}
DEVICE_PLUGIN = ROOT / "manifests" / "aks" / "nvidia-device-plugin.yaml"
ENFORCE = "pod-security.kubernetes.io/enforce"
SECRET = "azure-storage-account-mystorageaccount-secret"
Doctor = Callable[..., Result]


@pytest.fixture
def cluster_setup(api: Api, workspace: str) -> Iterator["ClusterSetup"]:
    """Objects of the test, which are deleted at its end, cluster-scoped ones included."""
    cluster_setup = ClusterSetup(api, workspace)
    yield cluster_setup
    cluster_setup.delete_all()


class ClusterSetup:
    """Creates the objects that an administrator installs."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api, self.namespace = api, namespace
        self.path = f"/api/v1/namespaces/{namespace}"
        self.nodes = Nodes(api, namespace)
        self._made: list[str] = []

    def create(self, path: str, body: Object) -> Object:
        made = self.api.create(path, body)
        self._made.append(f"{path}/{body['metadata']['name']}")
        return made

    def add_driver(self, *nodes: str) -> None:
        """The CSI driver, registered on these nodes."""
        self.create("/apis/storage.k8s.io/v1/csidrivers", {"metadata": {"name": DRIVER}, "spec": {}})
        for name in nodes:
            drivers = [{"name": DRIVER, "nodeID": name, "topologyKeys": []}]
            self.create("/apis/storage.k8s.io/v1/csinodes", {"metadata": {"name": name}, "spec": {"drivers": drivers}})

    def add_daemon_set(self, name: str, image: str = "main:1") -> None:
        labels = {"app": name}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": image}]}}
        body = {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": labels}, "template": template}}
        self.create("/apis/apps/v1/namespaces/kube-system/daemonsets", body)

    def add_secret(self, name: str = SECRET, **values: str) -> None:
        data = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
        self.create(f"{self.path}/secrets", {"metadata": {"name": name}, "data": data})

    def add_operator(
        self,
        *,
        available: bool = True,
        silent_for: timedelta = timedelta(0),
        watched: str = "pods",
        watch_age: float = 2,
        statuses: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """The operator's Deployment, with an image for jobs, its pod, which answers /metrics here, and its Lease."""
        labels = {"app.kubernetes.io/name": OPERATOR}
        annotations = {"prometheus.io/port": str(metrics_server(watched, watch_age, statuses).server_address[1])}
        defaults = {"name": "HOROVODJOB_OPERATOR_JOB_DEFAULTS", "value": '{"image":"trainer:1"}'}
        containers = {"containers": [{"name": "operator", "image": "operator:1", "env": [defaults]}]}
        template = {"metadata": {"labels": labels, "annotations": annotations}, "spec": containers}
        spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
        deployments = f"/apis/apps/v1/namespaces/{self.namespace}/deployments"
        self.create(deployments, {"metadata": {"name": OPERATOR, "labels": labels}, "spec": spec})
        selector = f"{self.path}/pods?labelSelector=app.kubernetes.io/name={OPERATOR}"
        (pod,) = wait_for("the operator's pod", lambda: self.api.get(selector)["items"])
        name = pod["metadata"]["name"]
        if available:
            self.make_available(name)
            wait_for(
                "the Deployment to be available",
                lambda: self.api.get(f"{deployments}/{OPERATOR}").get("status", {}).get("availableReplicas"),
            )
        renewed = (datetime.now(UTC) - silent_for).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        lease = {"holderIdentity": name, "leaseDurationSeconds": 10, "renewTime": renewed}
        leases = f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases"
        self.create(leases, {"metadata": {"name": OPERATOR}, "spec": lease})

    def make_available(self, pod: str) -> None:
        """The status of a pod that is Ready, as the kubelet writes it."""
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        addresses = {"podIP": machine_address(), "podIPs": [{"ip": machine_address()}]}
        status = {"phase": "Running", "conditions": [ready], **addresses}
        self.api.patch(f"{self.path}/pods/{pod}/status", {"status": status})

    def delete_all(self) -> None:
        self.nodes.delete_all()
        for path in reversed(self._made):
            try:
                self.api.delete(path)
            except ApiError as error:
                if error.status != 404:
                    raise


def metrics_server(watched: str, watch_age: float, statuses: Mapping[str, int]) -> ThreadingHTTPServer:
    """The operator's metrics endpoint, which the API server proxies; `statuses` has those of paths."""

    class Metrics(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = f'horovodjob_operator_watch_age_seconds{{resource="{watched}"}} {watch_age}\n'.encode()
            self.send_response(statuses.get(self.path, 200 if self.path == "/metrics" else 404))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("0.0.0.0", 0), Metrics)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


@pytest.fixture
def doctor(hvj: Hvj, tmp_path: Path) -> Doctor:
    """Runs the doctor for a job with these fields of its spec, or without a job."""

    def run(*arguments: str, **spec: Any) -> Result:
        if spec:
            file = tmp_path / "job.yaml"
            file.write_text(yaml.safe_dump(job(**spec)))
            arguments = (*arguments, "-f", str(file))
        return hvj("doctor", *arguments)

    return run


def records(result: Result) -> list[Object]:
    """The output, also with exit code 1."""
    assert "Traceback" not in result.stderr, result.stderr
    found: list[Object] = json.loads(result.stdout)
    return found


def rows(result: Result, check: str) -> list[tuple[str, str]]:
    """Result and message of each row of a check."""
    return [(each["result"], each["message"]) for each in records(result) if each["check"] == check]


def failed_row(result: Result, check: str) -> Object:
    """The only row of a check, which fails and contains a command."""
    (finding,) = [each for each in records(result) if each["check"] == check and each["result"] == "blocks"]
    assert finding["command"]
    assert result.code == 1
    return finding


def test_a_complete_cluster_passes(doctor: Doctor, cluster_setup: ClusterSetup) -> None:
    cluster_setup.add_operator()
    cluster_setup.nodes.add("node-0")
    cluster_setup.add_driver("node-0")
    cluster_setup.add_daemon_set("calico-node")
    result = doctor()
    assert {each["check"] for each in records(result) if each["result"] not in ("ok", "not checked")} == set()
    assert result.code == 0


def test_a_missing_or_outdated_crd_is_reported() -> None:
    with ControlPlane() as control_plane:
        connection = Api(control_plane.kubeconfig)
        result = run_with(control_plane.kubeconfig, "doctor")
        assert "does not serve HorovodJobs" in failed_row(result, "definition")["message"]
        assert failed_row(result, "definition")["command"] == "kubectl apply --server-side -k manifests/base"
        install_definition(connection)
        definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/horovodjobs.horovodjob.dev"
        fields = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/runPolicy/properties"
        connection.patch(definition, [{"op": "remove", "path": f"{fields}/ttlSecondsAfterFinished"}], "json")
        wait_for("the schema to be published", lambda: not publishes_ttl(connection))
        message = failed_row(run_with(control_plane.kubeconfig, "doctor"), "definition")["message"]
        assert "of an older version: it lacks spec.runPolicy.ttlSecondsAfterFinished" in message


def publishes_ttl(api: Api) -> bool:
    try:
        published = api.get("/openapi/v3/apis/horovodjob.dev/v1beta1")
    except ApiError as error:
        if error.status != 404:  # between two versions
            raise
        return True
    return "ttlSecondsAfterFinished" in json.dumps(published)


def run_with(kubeconfig: Path, *arguments: str) -> Result:
    return run(*arguments, "--kubeconfig", str(kubeconfig))


def test_a_missing_operator_is_reported(doctor: Doctor, cluster_setup: ClusterSetup) -> None:
    assert "the operator is not installed" in failed_row(doctor(), "operator")["message"]


def test_an_operator_without_an_available_replica_is_reported(doctor: Doctor, cluster_setup: ClusterSetup) -> None:
    cluster_setup.add_operator(available=False)
    finding = failed_row(doctor(), "operator")
    assert "has no available replica" in finding["message"]
    assert f"kubectl describe pods -n {cluster_setup.namespace}" in finding["command"]


def test_an_operator_that_does_not_renew_its_lease_is_reported(doctor: Doctor, cluster_setup: ClusterSetup) -> None:
    cluster_setup.add_operator(silent_for=timedelta(hours=1))
    assert "the operator does not respond: it renewed its Lease" in failed_row(doctor(), "operator")["message"]


def test_a_silent_watch_is_detected_through_the_metrics_of_the_leader(
    doctor: Doctor, cluster_setup: ClusterSetup
) -> None:
    cluster_setup.add_operator(watch_age=4000)
    finding = failed_row(doctor(), "operator")
    assert "watch of pods has been silent for 4000 s" in finding["message"]
    assert finding["command"] == f"kubectl rollout restart deployment horovodjob-operator -n {cluster_setup.namespace}"


@pytest.mark.parametrize("metrics", [401, 404], ids=["authorization", "tls"])
@pytest.mark.parametrize(("liveness", "problem"), [(200, ""), (503, "its liveness check returns 503")])
def test_an_operator_with_protected_metrics_is_judged_by_its_liveness_check(
    doctor: Doctor, cluster_setup: ClusterSetup, metrics: int, liveness: int, problem: str
) -> None:
    cluster_setup.add_operator(statuses={"/metrics": metrics, "/healthz": liveness})
    result, message = rows(doctor(), "operator")[0]
    assert (result, problem in message) == ("blocks" if problem else "ok", True)


def test_a_watch_of_jobs_without_changes_is_not_reported(doctor: Doctor, cluster_setup: ClusterSetup) -> None:
    cluster_setup.add_operator(watched="horovodjobs", watch_age=4000)
    assert rows(doctor(), "operator")[0][0] == "ok"


def operator_findings(cluster_setup: ClusterSetup, later: timedelta) -> str:
    """The result of the operator check at a later time."""
    kube.choose(None, None)
    facts = Facts(cluster_setup.namespace, None, None, (), datetime.now(UTC) + later)
    return " ".join(
        each.message for each in installation.operator(facts) if each.outcome is check_result.Outcome.BLOCKS
    )


def test_a_watch_of_jobs_that_missed_a_change_is_reported(
    doctor: Doctor, cluster_setup: ClusterSetup, cluster: ClusterState
) -> None:
    cluster.create("train")
    cluster.report("train")
    later = timedelta(minutes=10)
    cluster_setup.add_operator(watched="horovodjobs", watch_age=4000, silent_for=-later)
    assert "watch of horovodjobs has been silent" in operator_findings(cluster_setup, later)


def test_a_job_that_no_operator_observed_is_reported(
    doctor: Doctor, cluster_setup: ClusterSetup, cluster: ClusterState
) -> None:
    cluster.create("train")
    assert "no operator has reconciled" not in operator_findings(cluster_setup, timedelta(0))
    assert "no operator has reconciled train" in operator_findings(cluster_setup, timedelta(minutes=2))


def test_a_cluster_without_gpus_is_reported(doctor: Doctor, cluster_setup: ClusterSetup) -> None:
    cluster_setup.nodes.add("cpu-0", labels={}, gpus=0)
    finding = failed_row(doctor(worker={"gpus": 1}), "GPUs")
    assert finding["message"].startswith("no node has a GPU, and no autoscaled pool is known")
    assert finding["command"].startswith("az aks nodepool add")


def test_machines_without_gpus_and_shares_are_a_complete_cluster(doctor: Doctor, cluster_setup: ClusterSetup) -> None:
    cluster_setup.nodes.add("kind-worker", labels={}, gpus=0, providerID="kind://docker/kind/kind-worker")
    messages = [rows(doctor(), check) for check in ("GPUs", "CSI driver")]
    assert [result for ((result, _),) in messages] == ["ok", "ok"], messages
    assert "`hvj run` uses none here" in messages[0][0][1]
    cluster_setup.nodes.add("cloud", labels={}, gpus=0, on_azure=True)
    assert failed_row(doctor(), "CSI driver")


def test_a_job_without_gpus_requires_none(doctor: Doctor, cluster_setup: ClusterSetup) -> None:
    cluster_setup.nodes.add("cpu-0", labels={}, gpus=0)
    assert rows(doctor(worker={"gpus": 0}), "GPUs") == [("ok", "job train requests none (worker.gpus: 0)")]


def test_a_pool_that_scales_up_from_zero_is_sufficient(
    doctor: Doctor, cluster_setup: ClusterSetup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster_setup.nodes.add("system-0", labels={}, gpus=0, on_azure=True)
    with aks_cluster(cluster_setup.api, cluster_setup.namespace, tmp_path) as (arm, environment):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        assert "no autoscaled pool" in failed_row(doctor(), "GPUs")["message"]
        limits = {"count": 0, "enableAutoScaling": True, "minCount": 0, "maxCount": 4}
        arm.clusters[1].pools["gpunp"] = new_pool("gpunp", vmSize="Standard_ND96isr_MI300X_v5", **limits)
        assert "no autoscaled pool" in failed_row(doctor(), "GPUs")["message"]  # AMD's GPUs
        arm.clusters[1].pools["gpunp"] = new_pool("gpunp", **limits)
        ((result, message),) = rows(doctor(), "GPUs")
    assert (result, message.endswith("adds nodes to gpunp (up to 4 nodes)")) == ("ok", True)


def test_a_missing_device_plugin_is_reported(doctor: Doctor, cluster_setup: ClusterSetup) -> None:
    cluster_setup.nodes.add("node-0", gpus=0)
    finding = failed_row(doctor(), "device plugin")
    assert "node node-0 has a GPU but does not advertise it" in finding["message"]
    assert finding["command"] == "kubectl apply -f manifests/aks/nvidia-device-plugin.yaml"


def test_too_few_gpus_for_the_job_are_reported(doctor: Doctor, cluster_setup: ClusterSetup) -> None:
    cluster_setup.nodes.add("node-0", gpus=4)
    message = failed_row(doctor(worker={"replicas": 3, "gpus": 2}), "GPUs")["message"]
    assert message == "job train needs 3 workers with 2 GPUs each; 1 nodes with 4 GPUs have room for 2"


def test_a_missing_pool_of_the_job_is_reported(doctor: Doctor, cluster_setup: ClusterSetup) -> None:
    cluster_setup.nodes.add("node-0")
    assert "no node of pool a100 has a GPU" in failed_row(doctor(pool="a100", worker={"gpus": 1}), "GPUs")["message"]


def test_a_taint_that_the_job_does_not_tolerate_is_reported(doctor: Doctor, cluster_setup: ClusterSetup) -> None:
    spot = {"key": "kubernetes.azure.com/scalesetpriority", "value": "spot", "effect": "NoSchedule"}
    cluster_setup.nodes.add("node-0", gpus=4, taints=[spot, {"key": "sku", "value": "gpu", "effect": "NoSchedule"}])
    messages = [message for _, message in rows(doctor(worker={"replicas": 1, "gpus": 1}), "GPUs")]
    assert any("scalesetpriority=spot:NoSchedule" in message and "spec.spot: true" in message for message in messages)
    assert rows(doctor(worker={"replicas": 1, "gpus": 1}, spot=True), "GPUs")[0][0] == "ok"


def test_a_launcher_of_a_spot_job_without_a_regular_node_is_reported(
    doctor: Doctor, cluster_setup: ClusterSetup
) -> None:
    cluster_setup.nodes.add("node-0", labels={"kubernetes.azure.com/scalesetpriority": "spot"})
    messages = [message for _, message in rows(doctor(worker={"replicas": 1, "gpus": 1}, spot=True), "GPUs")]
    assert "all nodes are spot nodes, and the launcher of job train (spec.spot) never runs on one" in messages


def test_a_missing_csi_driver_is_reported(doctor: Doctor, cluster_setup: ClusterSetup) -> None:
    finding = failed_row(doctor(azureFiles=[SHARE]), "CSI driver")
    assert f"the CSI driver {DRIVER}" in finding["message"]
    assert finding["command"].startswith("helm install azurefile-csi-driver")
    cluster_setup.nodes.add("node-0", on_azure=True)
    assert failed_row(doctor(azureFiles=[SHARE]), "CSI driver")["command"].startswith("az aks update")


def test_a_csi_driver_that_runs_on_no_node_is_reported(doctor: Doctor, cluster_setup: ClusterSetup) -> None:
    cluster_setup.nodes.add("node-0")
    cluster_setup.add_driver()
    cluster_setup.create("/apis/storage.k8s.io/v1/csinodes", {"metadata": {"name": "node-0"}, "spec": {"drivers": []}})
    assert "runs on no node for workers" in failed_row(doctor(azureFiles=[SHARE]), "CSI driver")["message"]


def test_a_job_without_shares_requires_no_driver(doctor: Doctor, cluster_setup: ClusterSetup) -> None:
    assert rows(doctor(worker={"gpus": 0}), "CSI driver")[0][0] == "ok"


def test_a_missing_storage_secret_is_reported(doctor: Doctor, cluster_setup: ClusterSetup) -> None:
    finding = failed_row(doctor(azureFiles=[SHARE]), "storage")
    assert f"Secret {SECRET} with the key of share myshare" in finding["message"]
    assert finding["command"].startswith(f"kubectl create secret generic {SECRET} -n {cluster_setup.namespace}")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"azurestorageaccountname": "mystorageaccount"}, "azurestorageaccountkey is missing or empty"),
        ({"azurestorageaccountkey": "a2V5"}, "azurestorageaccountname is missing or empty"),
        ({"azurestorageaccountname": "other", "azurestorageaccountkey": "a2V5"}, "it is for storage account other"),
        ({"azurestorageaccountname": "mystorageaccount", "azurestorageaccountkey": "%%"}, "is not an account key"),
    ],
)
def test_an_invalid_storage_secret_is_reported(
    doctor: Doctor, cluster_setup: ClusterSetup, values: dict[str, str], words: str
) -> None:
    cluster_setup.add_secret(**values)
    result = doctor(azureFiles=[SHARE])
    assert words in failed_row(result, "storage")["message"]
    assert "a2V5" not in result.stdout + result.stderr


@pytest.fixture
def storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    """The storage account of the job, with its share."""
    (tmp_path / "shares" / "myshare").mkdir(parents=True)
    account = Account("mystorageaccount", tmp_path / "shares")
    with FilesService([account]) as service:
        monkeypatch.setenv("AZURE_STORAGE_SERVICE_ENDPOINT", service.url("mystorageaccount"))
        yield account


def test_a_valid_account_key_passes(doctor: Doctor, cluster_setup: ClusterSetup, storage: Account) -> None:
    cluster_setup.add_secret(azurestorageaccountname=storage.name, azurestorageaccountkey=storage.key)
    ((result, message),) = rows(doctor(azureFiles=[SHARE]), "storage")
    assert (result, message) == (
        "ok",
        f"share myshare of storage account {storage.name} accepts the key in Secret {SECRET}",
    )


def test_a_rotated_key_is_reported(doctor: Doctor, cluster_setup: ClusterSetup, storage: Account) -> None:
    cluster_setup.add_secret(azurestorageaccountname=storage.name, azurestorageaccountkey=storage.key)
    storage.rotate()
    finding = failed_row(doctor(azureFiles=[SHARE]), "storage")
    assert "does not accept the key in Secret" in finding["message"]
    assert finding["command"].startswith(f"kubectl delete secret {SECRET}")


def test_a_missing_share_is_reported(doctor: Doctor, cluster_setup: ClusterSetup, storage: Account) -> None:
    cluster_setup.add_secret(azurestorageaccountname=storage.name, azurestorageaccountkey=storage.key)
    finding = failed_row(doctor(azureFiles=[SHARE | {"share": "absent"}]), "storage")
    assert finding["command"] == f"hvj storage share create --name absent --account-name {storage.name}"


def test_an_account_that_cannot_be_reached_is_not_checked(
    doctor: Doctor, cluster_setup: ClusterSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_SERVICE_ENDPOINT", "http://127.0.0.1:9/mystorageaccount")
    cluster_setup.add_secret(azurestorageaccountname="mystorageaccount", azurestorageaccountkey="a2V5")
    ((result, message),) = rows(doctor(azureFiles=[SHARE]), "storage")
    assert (result, "no connection" in message) == ("not checked", True)


@pytest.mark.parametrize(
    ("image", "result"),
    [
        ("mcr.microsoft.com/oss/v2/kubernetes-csi/azurefile-csi:v1.35.1", "blocks"),
        ("mcr.microsoft.com/oss/v2/kubernetes-csi/azurefile-csi:v1.35.3", "ok"),
        ("mcr.microsoft.com/oss/v2/kubernetes-csi/azurefile-csi:v1.36.0-rc1", "ok"),
        ("mirror.example.com/azurefile-csi@sha256:1111", "not checked"),
    ],
)
def test_a_driver_that_cannot_mount_with_an_identity_is_reported(
    doctor: Doctor, cluster_setup: ClusterSetup, image: str, result: str
) -> None:
    cluster_setup.add_driver()
    cluster_setup.add_daemon_set("csi-azurefile-node", image)
    assert [found for found, _ in rows(doctor(azureFiles=[SHARE | {"clientID": "1111"}]), "CSI driver")] == [
        *([result] if result != "ok" else []),
        "ok",
        *([result] if result == "ok" else []),
    ]
    assert [found for found, _ in rows(doctor(azureFiles=[SHARE]), "CSI driver")] == ["ok"]


def test_a_node_image_window_is_advised_to_those_who_may_read_it(
    doctor: Doctor, cluster_setup: ClusterSetup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert rows(doctor(), "node images") == []
    cluster_setup.nodes.add("node-0", on_azure=True)
    with aks_cluster(cluster_setup.api, cluster_setup.namespace, tmp_path) as (arm, environment):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        (finding,) = [each for each in records(doctor()) if each["check"] == "node images"]
        assert (finding["result"], "the jobs on them restart" in finding["message"]) == ("warning", True)
        assert "--name aksManagedNodeOSUpgradeSchedule" in finding["command"]
        arm.clusters[1].maintenance = ["default"]
        assert rows(doctor(), "node images")[0][0] == "warning"
        arm.clusters[1].maintenance = ["default", "aksManagedAutoUpgradeSchedule", "aksManagedNodeOSUpgradeSchedule"]
        assert rows(doctor(), "node images")[0][0] == "ok"
        arm.clusters[1].maintenance, arm.clusters[1].node_os_channel = [], "None"
        assert rows(doctor(), "node images")[0][0] == "ok"
        arm.assign(CLIENT, None)
        assert rows(doctor(), "node images")[0][0] == "not checked"


@pytest.mark.parametrize("share", [{"clientID": "1111"}, {"protocol": "nfs"}])
def test_a_share_without_a_key_requires_no_secret(doctor: Doctor, cluster_setup: ClusterSetup, share: Object) -> None:
    assert rows(doctor(azureFiles=[SHARE | share]), "storage")[0][0] == "ok"


@pytest.mark.parametrize(
    ("hard", "line"),
    [
        ({"pods": "2"}, "pods 3 needed, 0 of 2 used"),
        ({"requests.nvidia.com/gpu": "1"}, "requests.nvidia.com/gpu 2 needed, 0 of 1 used"),
        ({"requests.cpu": "3"}, "requests.cpu 4.1 needed, 0 of 3 used"),
        ({"cpu": "3"}, "cpu 4.1 needed, 0 of 3 used"),
    ],
)
def test_an_exhausted_quota_is_reported(doctor: Doctor, cluster_setup: ClusterSetup, hard: Object, line: str) -> None:
    quotas = f"{cluster_setup.path}/resourcequotas"
    cluster_setup.create(quotas, {"metadata": {"name": "team"}, "spec": {"hard": hard}})
    wait_for("the quota", lambda: cluster_setup.api.get(f"{quotas}/team").get("status", {}).get("used"))
    worker = {"replicas": 2, "gpus": 1, "resources": {"requests": {"cpu": "2"}}}
    finding = failed_row(doctor(worker=worker), "quota")
    assert finding["message"].endswith(line)
    assert finding["command"] == f"kubectl edit resourcequota team -n {cluster_setup.namespace}"


@pytest.mark.parametrize(
    ("level", "spec", "needed"),
    [
        ("restricted", {"podSecurity": "Baseline"}, "baseline: podSecurity: Baseline"),
        ("baseline", {"volumes": [{"name": "data", "hostPath": {"path": "/data"}}]}, "privileged: volume data"),
        ("restricted", {"azureFiles": [SHARE | {"protocol": "nfs"}]}, "baseline: azureFiles myshare"),
        ("restricted", {"podSecurity": "Restricted"}, ""),
    ],
)
def test_a_pod_security_level_that_is_too_strict_is_reported(
    doctor: Doctor, cluster_setup: ClusterSetup, level: str, spec: Object, needed: str
) -> None:
    labels = {"pod-security.kubernetes.io/enforce": level}
    cluster_setup.api.patch(cluster_setup.path, {"metadata": {"labels": labels}})
    result = doctor(**spec)
    if not needed:
        assert rows(result, "Pod Security")[0][0] == "ok"
        return
    finding = failed_row(result, "Pod Security")
    assert needed in finding["message"]
    assert finding["command"].startswith(f"kubectl label namespace {cluster_setup.namespace} pod-security")


@pytest.mark.parametrize(
    ("daemon_set", "result"),
    [("cilium", "ok"), ("calico-node", "ok"), ("kube-flannel-ds", "warning"), ("somebodys-network", "not checked")],
)
def test_enforcement_of_network_policies_is_reported_as_far_as_it_is_known(
    doctor: Doctor, cluster_setup: ClusterSetup, daemon_set: str, result: str
) -> None:
    cluster_setup.add_daemon_set(daemon_set)
    assert rows(doctor(), "NetworkPolicy")[0][0] == result


def test_an_image_that_cannot_be_pulled_is_reported(doctor: Doctor, cluster_setup: ClusterSetup) -> None:
    cluster_setup.nodes.add("node-0")
    waiting = {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}
    status = {"name": "trainer", "image": "trainer:1", "imageID": "", "ready": False, "restartCount": 0}
    pod = cluster_setup.nodes.add_pod(
        "node-0", phase="Pending", containerStatuses=[{**status, "state": {"waiting": waiting}}]
    )
    metadata = pod["metadata"]
    event = {
        "metadata": {"name": "pull"},
        "involvedObject": {
            "kind": "Pod",
            "namespace": cluster_setup.namespace,
            "name": metadata["name"],
            "uid": metadata["uid"],
        },
        "reason": "Failed",
        "message": 'Failed to pull image "trainer:1": not found',
        "type": "Warning",
    }
    cluster_setup.api.create(f"{cluster_setup.path}/events", event)
    message = failed_row(doctor(), "image")["message"]
    assert f"image trainer:1 cannot be pulled (pod {metadata['name']}): Failed to pull image" in message


def test_a_missing_pull_secret_is_reported(doctor: Doctor, cluster_setup: ClusterSetup) -> None:
    finding = failed_row(doctor(imagePullSecrets=[{"name": "registry"}]), "image")
    assert (
        finding["message"]
        == f"Secret registry of imagePullSecrets does not exist in namespace {cluster_setup.namespace}"
    )
    assert finding["command"].startswith("kubectl create secret docker-registry registry")


def test_text_of_a_job_is_one_word_of_the_commands_that_a_user_is_told_to_run(
    doctor: Doctor, cluster_setup: ClusterSetup
) -> None:
    text = "x; touch planted $(id)"
    share = SHARE | {"secretName": text}
    result = doctor(imagePullSecrets=[{"name": text}], azureFiles=[share])
    commands = [row["command"] for row in records(result) if "planted" in (row["command"] or "")]
    assert len(commands) == 2
    for command in commands:
        assert text in shlex.split(command), command
        assert command.count("planted") == command.count(f"'{text}'"), command


def test_a_secret_that_a_job_names_is_in_its_namespace(doctor: Doctor, cluster_setup: ClusterSetup) -> None:
    cluster_setup.add_secret(azurestorageaccountname="mystorageaccount", azurestorageaccountkey="a2V5")
    name = f"../../{cluster_setup.namespace}/secrets/{SECRET}"
    finding = failed_row(doctor(azureFiles=[SHARE | {"secretName": name}]), "storage")
    assert f"Secret {name} with the key of share myshare" in finding["message"]
    assert "does not exist" in finding["message"]


def test_a_stalled_job_is_reported_with_the_message_of_the_operator(doctor: Doctor, cluster: ClusterState) -> None:
    cluster.create("train")
    cluster.report("train", conditions=[condition("Stalled", "StorageUnavailable", "share x is missing")])
    message = failed_row(doctor("-j", "train"), "job")["message"]
    assert "job train is stalled: StorageUnavailable: share x is missing" in message


def test_secrets_of_the_file_count_as_existing(
    hvj: Hvj, cluster_setup: ClusterSetup, storage: Account, tmp_path: Path
) -> None:
    values = {"azurestorageaccountname": storage.name, "azurestorageaccountkey": storage.key}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET}, "stringData": values}
    file = tmp_path / "all.yaml"
    file.write_text(yaml.safe_dump_all([secret, job(azureFiles=[SHARE])]))
    assert rows(hvj("doctor", "-f", str(file)), "storage")[0][0] == "ok"


def test_checks_without_the_required_rights_are_listed_as_not_checked(
    cluster_setup: ClusterSetup, tmp_path: Path
) -> None:
    accounts = f"{cluster_setup.path}/serviceaccounts"
    cluster_setup.api.create(accounts, {"metadata": {"name": "user"}})
    token = cluster_setup.api.create(f"{accounts}/user/token", {"spec": {}})["status"]["token"]
    configuration = yaml.safe_load(cluster_setup.api.kubeconfig.read_text())
    configuration["users"][0]["user"] = {"token": token}
    configuration["contexts"][0]["context"]["namespace"] = cluster_setup.namespace
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(configuration))
    result = run_with(kubeconfig, "doctor")
    results = {each["check"]: each["result"] for each in records(result)}
    assert results.pop("definition") == "ok"
    assert set(results.values()) == {"not checked"}
    assert result.code == 0


def test_the_table_contains_each_command(doctor: Doctor, cluster_setup: ClusterSetup) -> None:
    table = doctor("-o", "table").stdout
    assert table.splitlines()[0].split() == ["Check", "Result", "Message", "Command"]
    assert "kubectl apply --server-side -k manifests/base" in table


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("-j", "none"), 3, "job none does not exist"),
        (("-f", "/nowhere/job.yaml"), 2, "cannot read /nowhere/job.yaml"),
    ],
)
def test_a_missing_job_is_reported_in_one_sentence(
    doctor: Doctor, cluster_setup: ClusterSetup, arguments: tuple[str, ...], code: int, words: str
) -> None:
    result = doctor(*arguments)
    assert (result.code, result.stdout) == (code, "")
    assert words in result.stderr


def test_an_invalid_field_is_reported_with_its_path(doctor: Doctor, cluster_setup: ClusterSetup) -> None:
    result = doctor(worker={"replicas": 0})
    assert result.code == 2
    assert "spec.worker.replicas" in result.stderr


@pytest.mark.parametrize("name", [DEVICE_PLUGIN.name, "spot-first.yaml", "metrics-secrets.yaml"])
def test_the_manifests_for_aks_are_valid(api: Api, name: str) -> None:
    done = api.kubectl("apply", "--dry-run=client", "--validate=strict", "-f", str(DEVICE_PLUGIN.with_name(name)))
    assert done.returncode == 0, done.stderr


def test_the_file_of_the_tutorial_is_checked_with_the_options_of_its_creation(
    hvj: Hvj, cluster_setup: ClusterSetup, storage: Account, tmp_path: Path
) -> None:
    (document,) = blocks(ROOT / "docs" / "migration.md", "json")
    (tmp_path / "job.json").write_text(document)
    check = ("doctor", "-f", str(tmp_path / "job.json"))
    assert "--storage-account-name" in hvj(*check).stderr
    account = ("--storage-account-name", storage.name)
    result = hvj(*check, *account)
    assert f"Secret {SECRET} with the key of share myshare" in failed_row(result, "storage")["message"]
    cluster_setup.api.patch(cluster_setup.path, {"metadata": {"labels": {ENFORCE: "restricted"}}})
    result = hvj(*check, *account, "--storage-account-key", storage.key)
    assert rows(result, "storage")[0][0] == "ok"
    assert "needs baseline: podSecurity: Baseline" in failed_row(result, "Pod Security")["message"]
    trainer = ("--image", "example.azurecr.io/horovodjob/trainer:1", "--cluster", "nc6cluster", "--gpus", "0")
    result = hvj(*check, *account, *trainer)
    assert rows(result, "Pod Security")[0][0] == "ok"
    assert "agentpool=nc6cluster" in failed_row(result, "GPUs")["message"]


def test_a_missing_driver_of_another_volume_is_reported(doctor: Doctor, cluster_setup: ClusterSetup) -> None:
    blob = "blob.csi.azure.com"
    finding = failed_row(doctor(volumes=[{"name": "data", "csi": {"driver": blob}}]), "CSI driver")
    assert f"the CSI driver {blob}, which mounts a volume of job train, is not installed" in finding["message"]
    assert finding["command"].startswith("helm install blob-csi-driver")


def test_what_blocks_a_job_comes_first(doctor: Doctor, cluster_setup: ClusterSetup) -> None:
    found = [row["result"] for row in json.loads(doctor(azureFiles=[SHARE]).stdout)]
    assert {"blocks", "ok"} <= set(found)
    assert found == sorted(found, key=["blocks", "warning", "not checked", "ok"].index)


def test_a_terminal_shows_what_blocks_first_and_in_color(cluster_setup: ClusterSetup) -> None:
    with terminal("doctor") as screen:
        assert screen.end() == 1
    first, *others = screen.shown.splitlines()
    assert first.startswith("\x1b[1;31mblocks       \x1b[0moperator: the operator is not installed")
    texts = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in [first, *others]]
    assert max(len(line) for line in texts if not line.lstrip().startswith("$ ")) <= 80
    assert "             $ kubectl apply --server-side -k manifests/base" in texts


def test_a_terminal_shows_no_color_if_the_user_wants_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    results = [check_result.CheckResult("GPUs", check_result.Outcome.BLOCKS, "no node has a GPU", "hvj cluster list")]
    text = report(results, 80, in_color=uses_color())
    assert text == "blocks       GPUs: no node has a GPU\n             $ hvj cluster list"


def test_a_pool_without_nodes_is_reported_for_a_job_without_gpus(doctor: Doctor, cluster_setup: ClusterSetup) -> None:
    finding = failed_row(doctor(pool="cpunp", worker={"gpus": 0}), "GPUs")
    assert finding["message"] == "no node has the label kubernetes.azure.com/agentpool=cpunp of pool cpunp"
    finding = failed_row(doctor(nodeSelector={"disk": "ssd"}, worker={"gpus": 0}), "GPUs")
    assert finding["message"] == "no node has the labels disk=ssd of spec.nodeSelector"


def test_a_pool_of_aks_without_nodes_is_judged_by_its_autoscaler(
    doctor: Doctor, cluster_setup: ClusterSetup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster_setup.nodes.add("system-0", labels={}, gpus=0, on_azure=True)
    with aks_cluster(cluster_setup.api, cluster_setup.namespace, tmp_path) as (arm, environment):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        check = partial(doctor, pool="cpunp", worker={"gpus": 0, "replicas": 2})
        assert failed_row(check(), "GPUs")["message"] == "the AKS cluster has no pool cpunp, only gpunp, system"
        arm.clusters[1].pools["cpunp"] = new_pool("cpunp", count=0)
        assert failed_row(check(), "GPUs")["command"] == "hvj cluster resize -n cpunp -t 2"
        arm.clusters[1].pools["cpunp"] = new_pool("cpunp", count=0, enableAutoScaling=True, minCount=0, maxCount=4)
        assert rows(check(), "GPUs") == [("ok", "pool cpunp has no node now, and the autoscaler adds up to 4")]


# ---- queues --------------------------------------------------------------------------------------------------

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"


def queue_rows(hvj: Hvj, directory: Path, queue: str = "") -> list[Object]:
    """The rows about queues, for a job with this queue."""
    body = job()
    body["metadata"]["labels"] = {QUEUE_LABEL: queue} if queue else {}
    file = directory / "job.yaml"
    file.write_text(yaml.safe_dump(body))
    return [row for row in records(hvj("doctor", "-f", str(file))) if row["check"] == "queue"]


def test_a_queue_that_no_kueue_serves_is_reported(hvj: Hvj, tmp_path: Path) -> None:
    assert queue_rows(hvj, tmp_path) == []
    (row,) = queue_rows(hvj, tmp_path, "gpus")
    assert (row["result"], row["message"]) == ("blocks", "job train waits for queue gpus, and the cluster has no Kueue")


def test_kueue_that_queues_pods_by_themselves_is_reported(
    hvj: Hvj, cluster_setup: ClusterSetup, workspace: str, tmp_path: Path
) -> None:
    kueue = Kueue(cluster_setup.api, workspace, {})
    try:
        unknown, _ = queue_rows(hvj, tmp_path, QUEUE)
        assert (unknown["result"], "kueue-manager-config" in unknown["message"]) == ("not checked", True)
        (missing, _) = queue_rows(hvj, tmp_path, "missing")
        assert (missing["result"], "queue missing" in missing["message"]) == ("blocks", True)
        configuration = {"integrations": {"frameworks": ["batch/job", "pod"]}}
        path = f"{cluster_setup.path}/configmaps"
        labels = {"app.kubernetes.io/name": "kueue"}
        name = "kueue-manager-config"
        cluster_setup.create(path, {"metadata": {"name": name, "labels": labels}, "data": config_data(configuration)})
        warning, ok = queue_rows(hvj, tmp_path, QUEUE)
        assert (ok["result"], warning["result"]) == ("ok", "warning")
        kueue.add_local_queue("default")
        (blocks,) = queue_rows(hvj, tmp_path)
        assert (blocks["result"], "of LocalQueue default" in blocks["message"]) == ("blocks", True)
        assert blocks["command"] == f"kubectl edit configmap {name} -n {workspace}"
        configuration["integrations"]["externalFrameworks"] = ["HorovodJob.v1beta1.horovodjob.dev"]
        cluster_setup.api.patch(f"{path}/{name}", {"data": config_data(configuration)})
        assert [row["result"] for row in queue_rows(hvj, tmp_path)] == ["ok"]
        container = {"name": "worker", "image": "trainer:1"}
        spec = {"containers": [container], "schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}
        metadata = {"name": "train-worker-0", "labels": {"horovodjob.dev/job": "train"}}
        cluster_setup.create(f"{cluster_setup.path}/pods", {"metadata": metadata, "spec": spec})
        (gated,) = queue_rows(hvj, tmp_path)
        assert (gated["result"], "train-worker-0" in gated["message"]) == ("blocks", True)
    finally:
        kueue.remove()


def config_data(configuration: Object) -> Object:
    """The data of the ConfigMap of Kueue."""
    return {"controller_manager_config.yaml": yaml.safe_dump(configuration)}
