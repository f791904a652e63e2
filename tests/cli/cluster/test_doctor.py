"""`hvj doctor` against a real API server, with the fakes of Azure Files and Azure Resource Manager."""

import re
import shlex
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
import yaml

from cli.cluster.aks_cluster import CLIENT, aks_cluster
from cli.cluster.doctor import DRIVER, ENFORCE, SECRET, SHARE, ClusterSetup, Doctor, failed_row, records, results, rows
from cli.cluster.kueue_objects import QUEUE, Kueue, remove_definitions
from cli.cluster_state import ClusterState, condition
from cli.program import Hvj, run, terminal
from cli.service_account import account_kubeconfig
from horovodjob.client.cluster import kube
from horovodjob.client.diagnosis import cluster_facts as check_result
from horovodjob.client.diagnosis import installation
from horovodjob.client.diagnosis.cluster_facts import Facts
from support.api_client import ROOT, Api, Object, job, wait_for
from support.azure_fakes.arm.resources import new_pool
from support.azure_fakes.arm.server import ResourceManager
from support.azure_fakes.files.accounts import Account
from support.azure_fakes.files.server import FilesService
from support.tutorial.page import blocks


@pytest.fixture
def azure(cluster_setup: ClusterSetup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ResourceManager]:
    """The AKS cluster of a node, which the environment signs in to."""
    cluster_setup.nodes.add("system-0", labels={}, gpus=0, on_azure=True)
    with aks_cluster(tmp_path) as (arm, environment):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        yield arm


def test_a_complete_cluster_passes(doctor: Doctor, cluster_setup: ClusterSetup) -> None:
    pod = cluster_setup.add_operator()
    cluster_setup.make_available(pod)
    cluster_setup.renew_lease(pod)
    cluster_setup.nodes.add("node-0")
    cluster_setup.add_driver("node-0")
    cluster_setup.add_daemon_set("calico-node")
    result = doctor()
    assert {each["check"] for each in records(result) if each["result"] not in ("ok", "not checked")} == set()
    assert result.code == 0


def test_an_operator_is_judged_by_its_replicas_its_lease_its_watches_and_its_liveness(
    doctor: Doctor, cluster_setup: ClusterSetup, cluster: ClusterState
) -> None:
    assert "the operator is not installed" in failed_row(doctor(), "operator")["message"]
    pod = cluster_setup.add_operator()
    finding = failed_row(doctor(), "operator")
    assert "has no available replica" in finding["message"]
    assert f"kubectl describe pods -n {cluster_setup.namespace}" in finding["command"]
    cluster_setup.make_available(pod)
    cluster_setup.renew_lease(pod, timedelta(hours=1))
    assert "the operator does not respond: it renewed its Lease" in failed_row(doctor(), "operator")["message"]
    cluster_setup.renew_lease(pod)
    cluster_setup.metrics.watch_age = 4000
    finding = failed_row(doctor(), "operator")
    assert "watch of pods has been silent for 4000 s" in finding["message"]
    assert finding["command"] == f"kubectl rollout restart deployment horovodjob-operator -n {cluster_setup.namespace}"
    for metrics, liveness, found in ((401, 200, "ok"), (404, 200, "ok"), (401, 503, "blocks"), (404, 503, "blocks")):
        cluster_setup.metrics.statuses = {"/metrics": metrics, "/healthz": liveness}
        result, message = rows(doctor(), "operator")[0]
        assert (result, "its liveness check returns 503" in message) == (found, liveness == 503)

    cluster_setup.metrics.statuses, cluster_setup.metrics.watched = {}, "horovodjobs"
    assert results(doctor(), "operator")[0] == "ok", "no job changed"
    cluster.create("train")
    assert "no operator has reconciled" not in operator_findings(cluster_setup, timedelta(0))
    assert "no operator has reconciled train" in operator_findings(cluster_setup, timedelta(minutes=2))
    cluster.report("train")
    assert "watch of horovodjobs has been silent" in operator_findings(cluster_setup, timedelta(minutes=10))


def operator_findings(cluster_setup: ClusterSetup, later: timedelta) -> str:
    """The result of the operator check at a later time."""
    kube.choose(None, None)
    facts = Facts(cluster_setup.namespace, None, None, (), datetime.now(UTC) + later)
    return " ".join(
        each.message for each in installation.operator(facts) if each.outcome is check_result.Outcome.BLOCKS
    )


def test_machines_without_gpus_and_shares_are_a_complete_cluster_and_jobs_with_them_are_not(
    doctor: Doctor, cluster_setup: ClusterSetup
) -> None:
    finding = failed_row(doctor(pool="cpunp", worker={"gpus": 0}), "GPUs")
    assert finding["message"] == "no node has the label kubernetes.azure.com/agentpool=cpunp of pool cpunp"
    finding = failed_row(doctor(nodeSelector={"disk": "ssd"}, worker={"gpus": 0}), "GPUs")
    assert finding["message"] == "no node has the labels disk=ssd of spec.nodeSelector"
    cluster_setup.nodes.add("kind-worker", labels={}, gpus=0, providerID="kind://docker/kind/kind-worker")
    messages = [rows(doctor(), check) for check in ("GPUs", "CSI driver")]
    assert [result for ((result, _),) in messages] == ["ok", "ok"], messages
    assert "`hvj run` uses none here" in messages[0][0][1]
    cluster_setup.nodes.add("cloud", labels={}, gpus=0, on_azure=True)
    assert failed_row(doctor(), "CSI driver")
    finding = failed_row(doctor(worker={"gpus": 1}), "GPUs")
    assert finding["message"].startswith("no node has a GPU, and no autoscaled pool is known")
    assert finding["command"].startswith("az aks nodepool add")
    assert rows(doctor(worker={"gpus": 0}), "GPUs") == [("ok", "job train requests none (worker.gpus: 0)")]


def test_gpus_that_a_job_cannot_have_are_reported(doctor: Doctor, cluster_setup: ClusterSetup) -> None:
    cluster_setup.nodes.add("node-0", gpus=0)
    finding = failed_row(doctor(), "device plugin")
    assert "node node-0 has a GPU but does not advertise it" in finding["message"]
    assert finding["command"] == "kubectl apply -f manifests/aks/nvidia-device-plugin.yaml"
    cluster_setup.nodes.delete_all()

    spot = {"key": "kubernetes.azure.com/scalesetpriority", "value": "spot", "effect": "NoSchedule"}
    taints = [spot, {"key": "sku", "value": "gpu", "effect": "NoSchedule"}]
    cluster_setup.nodes.add("node-1", gpus=4, taints=taints)
    one = {"replicas": 1, "gpus": 1}
    messages = [message for _, message in rows(doctor(worker=one), "GPUs")]
    assert any("scalesetpriority=spot:NoSchedule" in message and "spec.spot: true" in message for message in messages)
    assert results(doctor(worker=one, spot=True), "GPUs")[0] == "ok"
    cluster_setup.nodes.delete_all()

    cluster_setup.nodes.add("node-2", gpus=4, labels={"kubernetes.azure.com/scalesetpriority": "spot"})
    messages = [message for _, message in rows(doctor(worker=one, spot=True), "GPUs")]
    assert "all nodes are spot nodes, and the launcher of job train (spec.spot) never runs on one" in messages
    message = failed_row(doctor(worker={"replicas": 3, "gpus": 2}), "GPUs")["message"]
    assert message == "job train needs 3 workers with 2 GPUs each; 1 nodes with 4 GPUs have room for 2"
    assert "no node of pool a100 has a GPU" in failed_row(doctor(pool="a100", worker=one), "GPUs")["message"]


def test_pools_of_aks_are_judged_by_their_autoscaler_and_the_window_of_their_node_images(
    doctor: Doctor, azure: ResourceManager
) -> None:
    pools, limits = azure.clusters[1].pools, {"count": 0, "enableAutoScaling": True, "minCount": 0, "maxCount": 4}
    assert "no autoscaled pool" in failed_row(doctor(), "GPUs")["message"]
    pools["gpunp"] = new_pool("gpunp", vmSize="Standard_ND96isr_MI300X_v5", **limits)
    assert "no autoscaled pool" in failed_row(doctor(), "GPUs")["message"]  # AMD's GPUs
    pools["gpunp"] = new_pool("gpunp", **limits)
    ((result, message),) = rows(doctor(), "GPUs")
    assert (result, message.endswith("adds nodes to gpunp (up to 4 nodes)")) == ("ok", True)

    check = partial(doctor, pool="cpunp", worker={"gpus": 0, "replicas": 2})
    assert failed_row(check(), "GPUs")["message"] == "the AKS cluster has no pool cpunp, only gpunp, system"
    pools["cpunp"] = new_pool("cpunp", count=0)
    assert failed_row(check(), "GPUs")["command"] == "hvj cluster resize -n cpunp -t 2"
    pools["cpunp"] = new_pool("cpunp", **limits)
    assert rows(check(), "GPUs") == [("ok", "pool cpunp has no node now, and the autoscaler adds up to 4")]

    (finding,) = [each for each in records(doctor()) if each["check"] == "node images"]
    assert (finding["result"], "the jobs on them restart" in finding["message"]) == ("warning", True)
    assert "--name aksManagedNodeOSUpgradeSchedule" in finding["command"]
    windows = ["default", "aksManagedAutoUpgradeSchedule", "aksManagedNodeOSUpgradeSchedule"]
    for maintenance, channel, found in (
        (windows[:1], "NodeImage", "warning"),
        (windows, "NodeImage", "ok"),
        ([], "None", "ok"),
    ):
        azure.clusters[1].maintenance, azure.clusters[1].node_os_channel = maintenance, channel
        assert results(doctor(), "node images")[0] == found
    azure.assign(CLIENT, None)
    assert results(doctor(), "node images")[0] == "not checked"


def test_a_driver_that_is_missing_or_runs_on_no_node_is_reported(doctor: Doctor, cluster_setup: ClusterSetup) -> None:
    assert results(doctor(worker={"gpus": 0}), "CSI driver")[0] == "ok", "the job has no share"
    blob = "blob.csi.azure.com"
    finding = failed_row(doctor(volumes=[{"name": "data", "csi": {"driver": blob}}]), "CSI driver")
    assert f"the CSI driver {blob}, which mounts a volume of job train, is not installed" in finding["message"]
    assert finding["command"].startswith("helm install blob-csi-driver")
    finding = failed_row(doctor(azureFiles=[SHARE]), "CSI driver")
    assert f"the CSI driver {DRIVER}" in finding["message"]
    assert finding["command"].startswith("helm install azurefile-csi-driver")
    cluster_setup.nodes.add("node-0", on_azure=True)
    assert failed_row(doctor(azureFiles=[SHARE]), "CSI driver")["command"].startswith("az aks update")
    cluster_setup.add_driver()
    cluster_setup.create("/apis/storage.k8s.io/v1/csinodes", {"metadata": {"name": "node-0"}, "spec": {"drivers": []}})
    assert "runs on no node for workers" in failed_row(doctor(azureFiles=[SHARE]), "CSI driver")["message"]


def test_a_driver_that_cannot_mount_with_an_identity_is_reported(doctor: Doctor, cluster_setup: ClusterSetup) -> None:
    cluster_setup.add_driver()
    with_identity = SHARE | {"clientID": "1111"}
    for image, found in (
        ("mirror.example.com/azurefile-csi@sha256:1111", "not checked"),
        ("mcr.microsoft.com/oss/v2/kubernetes-csi/azurefile-csi:v1.35.1", "blocks"),
        ("mcr.microsoft.com/oss/v2/kubernetes-csi/azurefile-csi:v1.36.0-rc1", "ok"),
    ):
        cluster_setup.add_daemon_set("csi-azurefile-node", image)
        assert results(doctor(azureFiles=[with_identity]), "CSI driver") == [found, "ok"]
        assert results(doctor(azureFiles=[SHARE]), "CSI driver") == ["ok"]
        cluster_setup.delete_last()


@pytest.fixture
def storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    """The storage account of the job, with its share."""
    (tmp_path / "shares" / "myshare").mkdir(parents=True)
    account = Account("mystorageaccount", tmp_path / "shares")
    with FilesService([account]) as service:
        monkeypatch.setenv("AZURE_STORAGE_SERVICE_ENDPOINT", service.url("mystorageaccount"))
        yield account


def test_the_secret_of_a_share_is_checked_with_its_account(
    doctor: Doctor, cluster_setup: ClusterSetup, storage: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    for share in ({"clientID": "1111"}, {"protocol": "nfs"}):
        assert results(doctor(azureFiles=[SHARE | share]), "storage")[0] == "ok", "it needs no key"
    finding = failed_row(doctor(azureFiles=[SHARE]), "storage")
    assert f"Secret {SECRET} with the key of share myshare" in finding["message"]
    assert finding["command"].startswith(f"kubectl create secret generic {SECRET} -n {cluster_setup.namespace}")
    name = {"azurestorageaccountname": "mystorageaccount"}
    for values, words in (
        (name, "azurestorageaccountkey is missing or empty"),
        ({"azurestorageaccountkey": "a2V5"}, "azurestorageaccountname is missing or empty"),
        ({"azurestorageaccountname": "other", "azurestorageaccountkey": "a2V5"}, "it is for storage account other"),
        (name | {"azurestorageaccountkey": "%%"}, "is not an account key"),
    ):
        cluster_setup.set_secret(**values)
        result = doctor(azureFiles=[SHARE])
        assert words in failed_row(result, "storage")["message"]
        assert "a2V5" not in result.stdout + result.stderr
    cluster_setup.set_secret(**name, azurestorageaccountkey=storage.key)
    words = f"share myshare of storage account {storage.name} accepts the key in Secret {SECRET}"
    assert rows(doctor(azureFiles=[SHARE]), "storage") == [("ok", words)]
    finding = failed_row(doctor(azureFiles=[SHARE | {"share": "absent"}]), "storage")
    assert finding["command"] == f"hvj storage share create --name absent --account-name {storage.name}"
    storage.rotate()
    finding = failed_row(doctor(azureFiles=[SHARE]), "storage")
    assert "does not accept the key in Secret" in finding["message"]
    assert finding["command"].startswith(f"kubectl delete secret {SECRET}")
    monkeypatch.setenv("AZURE_STORAGE_SERVICE_ENDPOINT", "http://127.0.0.1:9/mystorageaccount")
    ((found, message),) = rows(doctor(azureFiles=[SHARE]), "storage")
    assert (found, "no connection" in message) == ("not checked", True)


def test_an_exhausted_quota_is_reported(doctor: Doctor, cluster_setup: ClusterSetup) -> None:
    quotas = f"{cluster_setup.path}/resourcequotas"
    worker = {"replicas": 2, "gpus": 1, "resources": {"requests": {"cpu": "2"}}}
    for hard, line in (
        ({"pods": "2"}, "pods 3 needed, 0 of 2 used"),
        ({"requests.nvidia.com/gpu": "1"}, "requests.nvidia.com/gpu 2 needed, 0 of 1 used"),
        ({"cpu": "3"}, "cpu 4.1 needed, 0 of 3 used"),
    ):
        quota = cluster_setup.create(quotas, {"metadata": {"generateName": "team-"}, "spec": {"hard": hard}})
        path = f"{quotas}/{quota['metadata']['name']}"
        wait_for("the quota", lambda: cluster_setup.api.get(path).get("status", {}).get("used"))  # noqa: B023
        finding = failed_row(doctor(worker=worker), "quota")
        assert finding["message"].endswith(line)
        assert (
            finding["command"] == f"kubectl edit resourcequota {quota['metadata']['name']} -n {cluster_setup.namespace}"
        )
        cluster_setup.api.delete(path)


def test_a_pod_security_level_that_is_too_strict_is_reported(doctor: Doctor, cluster_setup: ClusterSetup) -> None:
    for level, spec, needed in (
        ("restricted", {"podSecurity": "Baseline"}, "baseline: podSecurity: Baseline"),
        ("baseline", {"volumes": [{"name": "data", "hostPath": {"path": "/data"}}]}, "privileged: volume data"),
        ("restricted", {"azureFiles": [SHARE | {"protocol": "nfs"}]}, "baseline: azureFiles myshare"),
    ):
        cluster_setup.api.patch(cluster_setup.path, {"metadata": {"labels": {ENFORCE: level}}})
        finding = failed_row(doctor(**spec), "Pod Security")
        assert needed in finding["message"]
        assert finding["command"].startswith(f"kubectl label namespace {cluster_setup.namespace} pod-security")
    assert results(doctor(podSecurity="Restricted"), "Pod Security")[0] == "ok"


def test_enforcement_of_network_policies_is_reported_as_far_as_it_is_known(
    doctor: Doctor, cluster_setup: ClusterSetup
) -> None:
    for daemon_set, result in (("somebodys-network", "not checked"), ("kube-flannel-ds", "warning"), ("cilium", "ok")):
        cluster_setup.add_daemon_set(daemon_set)
        assert results(doctor(), "NetworkPolicy")[0] == result


def test_an_image_that_cannot_be_pulled_is_reported(doctor: Doctor, cluster_setup: ClusterSetup) -> None:
    finding = failed_row(doctor(imagePullSecrets=[{"name": "registry"}]), "image")
    missing = f"Secret registry of imagePullSecrets does not exist in namespace {cluster_setup.namespace}"
    assert finding["message"] == missing
    assert finding["command"].startswith("kubectl create secret docker-registry registry")
    cluster_setup.nodes.add("node-0")
    waiting = {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}
    status = {"name": "trainer", "image": "trainer:1", "imageID": "", "ready": False, "restartCount": 0}
    pod = cluster_setup.nodes.add_pod(
        "node-0", phase="Pending", containerStatuses=[{**status, "state": {"waiting": waiting}}]
    )
    about = {key: pod["metadata"][key] for key in ("namespace", "name", "uid")} | {"kind": "Pod"}
    words = {"reason": "Failed", "message": 'Failed to pull image "trainer:1": not found', "type": "Warning"}
    event = {"metadata": {"name": "pull"}, "involvedObject": about, **words}
    cluster_setup.api.create(f"{cluster_setup.path}/events", event)
    message = failed_row(doctor(), "image")["message"]
    assert f"image trainer:1 cannot be pulled (pod {about['name']}): Failed to pull image" in message


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
    cluster_setup.set_secret(azurestorageaccountname="mystorageaccount", azurestorageaccountkey="a2V5")
    name = f"../../{cluster_setup.namespace}/secrets/{SECRET}"
    finding = failed_row(doctor(azureFiles=[SHARE | {"secretName": name}]), "storage")
    assert f"Secret {name} with the key of share myshare" in finding["message"]
    assert "does not exist" in finding["message"]


def test_a_stalled_job_is_reported_with_the_message_of_the_operator_and_a_missing_one_in_one_sentence(
    doctor: Doctor, cluster: ClusterState
) -> None:
    cluster.create("train")
    cluster.report("train", conditions=[condition("Stalled", "StorageUnavailable", "share x is missing")])
    message = failed_row(doctor("-j", "train"), "job")["message"]
    assert "job train is stalled: StorageUnavailable: share x is missing" in message
    for arguments, code, words in (
        (("-j", "none"), 3, "job none does not exist"),
        (("-f", "/nowhere/job.yaml"), 2, "cannot read /nowhere/job.yaml"),
    ):
        result = doctor(*arguments)
        assert (result.code, result.stdout, words in result.stderr) == (code, "", True)
    result = doctor(worker={"replicas": 0})
    assert (result.code, "spec.worker.replicas" in result.stderr) == (2, True)


def test_checks_without_the_required_rights_are_listed_as_not_checked(
    cluster_setup: ClusterSetup, tmp_path: Path
) -> None:
    kubeconfig = account_kubeconfig(cluster_setup.api, cluster_setup.namespace, tmp_path)
    result = run("doctor", "--kubeconfig", str(kubeconfig))
    found = {each["check"]: each["result"] for each in records(result)}
    assert found.pop("definition") == "ok"
    assert (set(found.values()), result.code) == ({"not checked"}, 0)


def test_the_manifests_for_aks_are_valid(api: Api) -> None:
    names = ("nvidia-device-plugin.yaml", "spot-first.yaml", "metrics-secrets.yaml")
    files = [word for name in names for word in ("-f", str(ROOT / "manifests" / "aks" / name))]
    done = api.kubectl("apply", "--dry-run=client", "--validate=strict", *files)
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
    assert results(result, "storage")[0] == "ok", "Secrets of the file count as existing"
    assert "needs baseline: podSecurity: Baseline" in failed_row(result, "Pod Security")["message"]
    trainer = ("--image", "example.azurecr.io/horovodjob/trainer:1", "--cluster", "nc6cluster", "--gpus", "0")
    result = hvj(*check, *account, *trainer)
    assert results(result, "Pod Security")[0] == "ok"
    assert "agentpool=nc6cluster" in failed_row(result, "GPUs")["message"]


def test_what_blocks_comes_first_in_data_in_the_table_and_in_color_on_a_terminal(
    doctor: Doctor, cluster_setup: ClusterSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [row["result"] for row in records(doctor(azureFiles=[SHARE]))]
    assert {"blocks", "ok"} <= set(found)
    assert found == sorted(found, key=["blocks", "warning", "not checked", "ok"].index)
    table = doctor("-o", "table").stdout
    assert table.splitlines()[0].split() == ["Check", "Result", "Message", "Command"]
    assert "kubectl apply --server-side -k manifests/base" in table
    with terminal("doctor") as screen:
        assert screen.end() == 1
    first, *others = screen.shown.splitlines()
    assert first.startswith("\x1b[1;31mblocks       \x1b[0moperator: the operator is not installed")
    texts = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in [first, *others]]
    assert max(len(line) for line in texts if not line.lstrip().startswith("$ ")) <= 80
    assert "             $ kubectl apply --server-side -k manifests/base" in texts
    monkeypatch.setenv("NO_COLOR", "1")
    with terminal("doctor") as screen:
        assert screen.end() == 1
    assert "\x1b[" not in screen.shown


QUEUE_LABEL = "kueue.x-k8s.io/queue-name"


def queue_rows(hvj: Hvj, directory: Path, queue: str = "") -> list[Object]:
    """The rows about queues, for a job with this queue."""
    body = job()
    body["metadata"]["labels"] = {QUEUE_LABEL: queue} if queue else {}
    file = directory / "job.yaml"
    file.write_text(yaml.safe_dump(body))
    return [row for row in records(hvj("doctor", "-f", str(file))) if row["check"] == "queue"]


def test_a_queue_that_no_kueue_serves_is_reported(hvj: Hvj, tmp_path: Path, api: Api) -> None:
    remove_definitions(api)
    assert queue_rows(hvj, tmp_path) == []
    (row,) = queue_rows(hvj, tmp_path, "gpus")
    assert (row["result"], row["message"]) == ("blocks", "job train waits for queue gpus, and the cluster has no Kueue")


def test_kueue_that_queues_pods_by_themselves_is_reported(
    hvj: Hvj, cluster_setup: ClusterSetup, kueue: Kueue, workspace: str, tmp_path: Path
) -> None:
    unknown, _ = queue_rows(hvj, tmp_path, QUEUE)
    assert (unknown["result"], "kueue-manager-config" in unknown["message"]) == ("not checked", True)
    missing, _ = queue_rows(hvj, tmp_path, "missing")
    assert (missing["result"], "queue missing" in missing["message"]) == ("blocks", True)
    configuration = {"integrations": {"frameworks": ["batch/job", "pod"]}}
    path, name = f"{cluster_setup.path}/configmaps", "kueue-manager-config"
    labels = {"app.kubernetes.io/name": "kueue"}
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
    gates = [{"name": "kueue.x-k8s.io/admission"}]
    spec = {"containers": [{"name": "worker", "image": "trainer:1"}], "schedulingGates": gates}
    metadata = {"name": "train-worker-0", "labels": {"horovodjob.dev/job": "train"}}
    cluster_setup.create(f"{cluster_setup.path}/pods", {"metadata": metadata, "spec": spec})
    (gated,) = queue_rows(hvj, tmp_path)
    assert (gated["result"], "train-worker-0" in gated["message"]) == ("blocks", True)


def config_data(configuration: Object) -> Object:
    """The data of the ConfigMap of Kueue."""
    return {"controller_manager_config.yaml": yaml.safe_dump(configuration)}
