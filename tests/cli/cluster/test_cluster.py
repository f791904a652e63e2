"""`hvj cluster` against a real API server, with the fakes of Azure Resource Manager and Entra ID."""

import signal
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from cli.cluster.aks_cluster import CLIENT, aks_cluster
from cli.cluster.kueue_objects import CLUSTER_QUEUE, FLAVOR, QUEUE, Kueue
from cli.cluster.nodes import AKS, GROUP, LABELS, POOL, Nodes
from cli.program import Hvj, hvj_process, run, terminal
from cli.service_account import account_kubeconfig, role_for_nodes
from support.api_client import Api, Object
from support.azure_fakes.arm.resources import Cluster, Pool, new_pool
from support.azure_fakes.arm.server import SUBSCRIPTION, ResourceManager, Role

SYSTEM = {"kubernetes.azure.com/agentpool": "system"}
ROLE = "horovodjob-operator-nodes"


@pytest.fixture
def nodes(api: Api, workspace: str) -> Iterator[Nodes]:
    """Nodes, and pods in the test's namespace, deleted at its end."""
    nodes = Nodes(api, workspace)
    yield nodes
    nodes.delete_all()


@pytest.fixture
def arm(api: Api, workspace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ResourceManager]:
    """Azure's control plane with the AKS cluster of the nodes; the test runs with workload identity."""
    with aks_cluster(api, workspace, tmp_path) as (arm, environment):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr("horovodjob.client.cluster.aks.BUSY_POLL_SECONDS", 0.1)
        yield arm


def counts(**counted: int) -> dict[str, int]:
    """`nodeStateCounts` with these nodes."""
    names = ("idle", "leaving", "preparing", "running", "unusable")
    return {f"{name}NodeCount": counted.get(name, 0) for name in names}


@pytest.mark.parametrize(
    ("node", "state"),
    [
        ({}, "idle"),
        ({"ready": "False"}, "preparing"),
        ({"gpus": 0}, "preparing"),
        ({"unschedulable": True}, "leaving"),
        ({"taints": [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]}, "leaving"),
        ({"taints": [{"key": "DeletionCandidateOfClusterAutoscaler", "effect": "PreferNoSchedule"}]}, "idle"),
        ({"ready": "Unknown", "ready_for": timedelta(hours=1)}, "unusable"),
        ({"conditions": ("XIDErrors",)}, "unusable"),
        ({"conditions": ("GPUXIDErrors",)}, "unusable"),
        ({"conditions": ("GPUMissing",)}, "unusable"),
        ({"conditions": ("VMEventScheduled",)}, "idle"),
    ],
)
def test_a_node_without_jobs_is_counted_by_its_state(hvj: Hvj, nodes: Nodes, node: Object, state: str) -> None:
    nodes.add("node-0", **node)
    assert hvj("cluster", "show", "-n", POOL, "--query", "nodeStateCounts").data == counts(**{state: 1})


@pytest.mark.parametrize(
    ("pod", "state"),
    [
        ({}, "running"),
        ({"ready": "False"}, "preparing"),
        ({"phase": "Pending", "ready": "False"}, "preparing"),
        ({"phase": "Succeeded", "ready": "False"}, "idle"),
    ],
)
def test_a_node_with_a_pod_of_a_job_is_counted_by_the_pod(hvj: Hvj, nodes: Nodes, pod: Object, state: str) -> None:
    nodes.add("node-0")
    nodes.add_pod("node-0", **pod)
    assert hvj("cluster", "show", "-n", POOL).data["nodeStateCounts"] == counts(**{state: 1})


def test_the_table_has_the_columns_of_batch_ai(hvj: Hvj, nodes: Nodes, workspace: str) -> None:
    for index in range(4):
        nodes.add(f"node-{index}")
    heading, _, row = hvj("cluster", "list", "-o", "table").stdout.splitlines()
    assert heading.split("  ")[0] == "Name"
    titles = "Name, Resource Group, Workspace, VM Size, State, Idle, Running, Preparing, Leaving, Unusable"
    assert [title for title in titles.split(", ") if title in heading] == titles.split(", ")
    assert row.split() == [POOL, workspace, "Standard_NC4as_T4_v3", "steady", "4", "0", "0", "0", "0"]


def test_the_table_fits_a_terminal_of_80_columns(hvj: Hvj, nodes: Nodes) -> None:
    nodes.add("node-0")
    with terminal("cluster", "list") as screen:
        assert screen.end() == 0
    lines = screen.shown.splitlines()
    assert ("Unusable" in lines[0], "Resource Group" in lines[0]) == (True, False)
    assert len(lines) == 3
    assert max(map(len, lines)) <= 80


def test_nodes_are_listed_with_the_jobs_on_them(hvj: Hvj, nodes: Nodes, workspace: str) -> None:
    nodes.add("node-0")
    nodes.add_pod("node-0", job="cifar-distributed")
    (node,) = hvj("cluster", "node", "list", "-c", POOL).data
    assert (node["nodeId"], node["state"], node["gpus"]) == ("node-0", "running", 1)
    assert node["jobs"] == [f"{workspace}/cifar-distributed"]


def test_an_unusable_node_is_listed_with_the_cause(hvj: Hvj, nodes: Nodes) -> None:
    nodes.add("node-0", conditions=("XIDErrors",))
    assert hvj("cluster", "show", "-n", POOL).data["errors"] == [
        {"node": "node-0", "code": "XIDErrors", "message": "XIDErrors!"}
    ]


def test_without_pool_labels_all_gpu_nodes_are_one_pool(hvj: Hvj, nodes: Nodes) -> None:
    nodes.add("gpu-0", labels={})
    nodes.add("cpu-0", labels={}, gpus=0)
    (pool,) = hvj("cluster", "list").data
    assert (pool["name"], pool["currentNodeCount"]) == ("gpu", 1)


def test_a_selector_defines_a_pool(hvj: Hvj, nodes: Nodes) -> None:
    nodes.add("cpu-0", labels={"team": "vision"}, gpus=0)
    nodes.add("cpu-1", labels={}, gpus=0)
    pool = hvj("cluster", "show", "-n", "nc6cluster", "--selector", "team=vision").data
    assert (pool["name"], pool["nodeStateCounts"]) == ("nc6cluster", counts(idle=1))


def test_a_pool_that_does_not_exist_is_not_found(hvj: Hvj, nodes: Nodes) -> None:
    nodes.add("node-0")
    result = hvj("cluster", "show", "-n", "nc6cluster")
    assert (result.code, result.stdout) == (3, "")
    assert f"no pool is named nc6cluster (pools: {POOL})" in result.stderr


def test_a_cluster_outside_aks_cannot_be_resized(hvj: Hvj, nodes: Nodes) -> None:
    nodes.add("node-0")
    result = hvj("cluster", "resize", "-n", POOL, "-t", "0")
    assert result.code == 1
    assert "this cluster is not on Azure" in result.stderr


def test_the_aks_cluster_is_found_by_the_resource_group_of_its_nodes(
    hvj: Hvj, nodes: Nodes, arm: ResourceManager
) -> None:
    nodes.add("system-0", labels=SYSTEM, gpus=0, on_azure=True)
    system, gpu = sorted(hvj("cluster", "list").data, key=lambda pool: pool["name"] == POOL)
    assert (gpu["name"], gpu["resourceGroup"], gpu["vmSize"]) == (POOL, GROUP, "Standard_NC4as_T4_v3")
    assert gpu["nodeStateCounts"] == counts()
    assert gpu["scaleSettings"] == {"manual": {"targetNodeCount": 0}, "autoScale": None}
    assert system["allocationState"] == gpu["allocationState"] == "steady"


def test_resize_adds_nodes_and_waits_for_the_operation(hvj: Hvj, nodes: Nodes, arm: ResourceManager) -> None:
    nodes.add("system-0", labels=SYSTEM, gpus=0, on_azure=True)

    def make_nodes(cluster: Cluster, pool: Pool) -> None:
        for index in range(pool.properties["count"]):
            nodes.add(f"{POOL}-{index}", on_azure=True)

    arm.on_change = make_nodes
    result = hvj("cluster", "resize", "-n", POOL, "-g", GROUP, "-t", "4")
    assert (result.data["allocationState"], result.data["nodeStateCounts"]) == ("steady", counts(idle=4))
    assert f"pool {POOL}: 4 nodes: InProgress" in result.stderr


def test_resize_shows_a_live_line_on_a_terminal(nodes: Nodes, arm: ResourceManager) -> None:
    nodes.add("system-0", labels={}, gpus=0, on_azure=True)
    with terminal("cluster", "resize", "-n", POOL, "-t", "4") as screen:
        with arm.hold():
            screen.until(f"pool {POOL}: 4 nodes: InProgress, ")
        assert screen.end() == 0
    assert "resizing" in screen.shown


def test_ctrl_c_does_not_cancel_the_operation(nodes: Nodes, arm: ResourceManager) -> None:
    nodes.add("system-0", labels={}, gpus=0, on_azure=True)
    with arm.hold(), hvj_process("cluster", "resize", "-n", POOL, "-t", "4") as process:
        assert process.stderr is not None
        assert process.stderr.readline() == f"pool {POOL}: 4 nodes: InProgress\n"
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
        assert process.stderr.read() == "\n"
    assert arm.clusters[1].pools[POOL].properties["count"] == 4


def test_resize_waits_as_long_as_the_user_says(hvj: Hvj, nodes: Nodes, arm: ResourceManager) -> None:
    nodes.add("system-0", labels={}, gpus=0, on_azure=True)
    with arm.hold():
        done = hvj("cluster", "resize", "-n", POOL, "-t", "4", "--timeout", "1s")
    assert (done.code, f"error: pool {POOL}: 4 nodes did not end within 1 s (--timeout)" in done.stderr) == (5, True)


def test_resize_without_waiting_returns_at_once(hvj: Hvj, nodes: Nodes, arm: ResourceManager) -> None:
    nodes.add("system-0", labels={}, gpus=0, on_azure=True)
    with arm.hold():
        pool = hvj("cluster", "resize", "-n", POOL, "-t", "4", "--no-wait").data
    assert (pool["allocationState"], pool["provisioningState"]) == ("resizing", "scaling")


def test_resize_disables_the_autoscaler_first(hvj: Hvj, nodes: Nodes, arm: ResourceManager) -> None:
    nodes.add("system-0", labels={}, gpus=0, on_azure=True)
    arm.clusters[1].pools[POOL] = new_pool(POOL, count=3, enableAutoScaling=True, minCount=0, maxCount=4)
    assert hvj("cluster", "resize", "-n", POOL, "-t", "0").code == 0
    properties = arm.clusters[1].pools[POOL].properties
    assert (properties["count"], properties["enableAutoScaling"], "minCount" in properties) == (0, False, False)
    assert sum(method == "PUT" for method, _ in arm.requests) == 2


def test_auto_scale_sets_the_limits(hvj: Hvj, nodes: Nodes, arm: ResourceManager) -> None:
    nodes.add("system-0", labels={}, gpus=0, on_azure=True)
    pool = hvj("cluster", "auto-scale", "-n", POOL, "--min", "0", "--max", "4").data
    bounds = {"minimumNodeCount": 0, "maximumNodeCount": 4}
    assert pool["scaleSettings"] == {"manual": None, "autoScale": bounds}


def test_a_change_waits_for_another_operation(hvj: Hvj, nodes: Nodes, arm: ResourceManager) -> None:
    nodes.add("system-0", labels={}, gpus=0, on_azure=True)
    arm.begin("upgrade agentpool", arm.clusters[1], arm.clusters[1].pools["system"])
    result = hvj("cluster", "resize", "-n", POOL, "-t", "1", "--no-wait")
    assert result.data["provisioningState"] == "scaling"
    waiting = "waiting up to 30 minutes: Operation is not allowed because there's an in progress upgrade agentpool"
    assert waiting in result.stderr


def test_a_change_does_not_wait_longer_than_that_for_another_operation(
    hvj: Hvj, nodes: Nodes, arm: ResourceManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("horovodjob.client.cluster.aks.BUSY_MINUTES", 0.01)
    nodes.add("system-0", labels={}, gpus=0, on_azure=True)
    arm.begin("upgrade agentpool", arm.clusters[1], arm.clusters[1].pools["system"])
    with arm.hold():
        result = hvj("cluster", "resize", "-n", POOL, "-t", "1", "--no-wait")
    assert result.code == 1
    assert "has been busy for 0.01 minutes: Operation is not allowed because there's an in progress" in result.stderr
    assert "az aks operation-abort" in result.stderr


@pytest.mark.parametrize(
    "message",
    [
        "Managed cluster is in stopped state, and no operations except for start are allowed.",
        "The pool is being upgraded to a version that its control plane has not.",
    ],
)
def test_a_conflict_that_does_not_end_by_itself_is_reported_at_once(
    hvj: Hvj, nodes: Nodes, arm: ResourceManager, message: str
) -> None:
    nodes.add("system-0", labels={}, gpus=0, on_azure=True)
    arm.refuse_changes(409, "OperationNotAllowed", message)
    result = hvj("cluster", "resize", "-n", POOL, "-t", "1", "--no-wait")
    assert result.code == 1
    assert message.rstrip(".") in result.stderr
    assert sum(method == "PUT" for method, _ in arm.requests) == 1


def test_a_missing_right_to_the_subnet_names_its_role(hvj: Hvj, nodes: Nodes, arm: ResourceManager) -> None:
    nodes.add("system-0", labels={}, gpus=0, on_azure=True)
    subnet = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/net/providers/Microsoft.Network/virtualNetworks/v/subnets/s"
    arm.refuse_changes(
        403,
        "LinkedAuthorizationFailed",
        f"The client '{CLIENT}' with object id '{CLIENT}' has permission to perform action "
        f"'Microsoft.ContainerService/managedClusters/agentPools/write' on scope '{arm.clusters[1].id}'; however, it "
        "does not have permission to perform action(s) 'Microsoft.Network/virtualNetworks/subnets/join/action' on the "
        f"linked scope(s) '{subnet}' (respectively) or the linked scope(s) are invalid.",
    )
    result = hvj("cluster", "create", "-n", "gpus", "-s", SIZE, "-t", "1", "--subnet", subnet, "--quiet")
    assert result.code == 1
    assert (
        f"az role assignment create --role 'Network Contributor' --assignee <you> --scope {subnet}\n" in result.stderr
    )
    assert "Azure Kubernetes Service Contributor Role" not in result.stderr


def test_a_change_is_based_on_the_newest_version_of_the_pool(hvj: Hvj, nodes: Nodes, arm: ResourceManager) -> None:
    nodes.add("system-0", labels={}, gpus=0, on_azure=True)
    arm.interfere(nodeLabels={"team": "vision"})
    assert hvj("cluster", "resize", "-n", POOL, "-t", "1").code == 0
    assert arm.clusters[1].pools[POOL].properties["nodeLabels"] == {"team": "vision"}


def test_an_exceeded_quota_is_reported_in_one_sentence(hvj: Hvj, nodes: Nodes, arm: ResourceManager) -> None:
    nodes.add("system-0", labels={}, gpus=0, on_azure=True)
    arm.vcpu_quota = 12
    result = hvj("cluster", "resize", "-n", POOL, "-t", "4")
    assert result.code == 1
    assert "quota is exceeded: Insufficient vcpu quota requested 16, remaining 8" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_failed_operation_is_reported_in_one_sentence(hvj: Hvj, nodes: Nodes, arm: ResourceManager) -> None:
    nodes.add("system-0", labels={}, gpus=0, on_azure=True)
    arm.fail_next_operation("AllocationFailed", "We do not have sufficient capacity for the requested VM size.")
    result = hvj("cluster", "resize", "-n", POOL, "-t", "4", "--quiet")
    assert result.code == 1
    assert "Azure has no capacity for this VM size: We do not have sufficient capacity" in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_missing_role_is_reported(hvj: Hvj, nodes: Nodes, arm: ResourceManager) -> None:
    nodes.add("system-0", labels={}, gpus=0, on_azure=True)
    arm.assign(CLIENT, Role.READER)
    result = hvj("cluster", "resize", "-n", POOL, "-t", "4")
    assert result.code == 1
    assert "az role assignment create --role 'Azure Kubernetes Service Contributor Role'" in result.stderr


def test_without_credentials_the_pool_is_shown_from_kubernetes_data(
    hvj: Hvj, nodes: Nodes, arm: ResourceManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes.add("node-0", on_azure=True)
    monkeypatch.setenv("AZURE_CLIENT_ID", "22222222-0000-4000-8000-000000000003")
    result = hvj("cluster", "show", "-n", POOL)
    assert (result.data["resourceGroup"], result.data["nodeStateCounts"]) == (None, counts(idle=1))
    assert "Azure sign-in failed: AADSTS700016" in result.stderr


def test_without_a_role_the_pools_are_listed_from_kubernetes_data(hvj: Hvj, nodes: Nodes, arm: ResourceManager) -> None:
    nodes.add("node-0", on_azure=True)
    arm.assign(CLIENT, None)
    result = hvj("cluster", "list")
    assert [pool["name"] for pool in result.data] == [POOL]
    assert "warning: without Azure's view of the pools: you have no right to" in result.stderr
    assert "az role assignment create --role 'Reader'" in result.stderr


def test_throttled_requests_are_retried(hvj: Hvj, nodes: Nodes, arm: ResourceManager) -> None:
    nodes.add("node-0", on_azure=True)
    arm.throttle(2)
    assert hvj("cluster", "show", "-n", POOL).data["resourceGroup"] == GROUP


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("resize", "-n", POOL), 2, "missing option '--target'"),
        (("resize", "-n", POOL, "-t", "-1"), 2, "--target"),
        (("resize", "-n", POOL, "-t", "four"), 2, "--target"),
        (("auto-scale", "-n", POOL, "--min", "4", "--max", "2"), 2, "--min 4 is greater than --max 2"),
        (("resize", "-n", "system", "-t", "0"), 2, "pool system is a system pool"),
        (("resize", "-n", "none", "-t", "1"), 3, "node pool none of AKS cluster aks in resource group"),
        (("show", "-n", POOL, "-g", "none"), 0, "resource group none does not exist"),
        (("resize", "-n", POOL, "-t", "1", "-g", "none"), 3, "none"),
        (("resize", "-n", POOL, "-t", "1", "-g", "other"), 3, "name it with --resource-group and --aks-cluster"),
    ],
)
def test_invalid_input_is_reported_in_one_sentence_and_changes_nothing(
    hvj: Hvj, nodes: Nodes, arm: ResourceManager, arguments: tuple[str, ...], code: int, words: str
) -> None:
    nodes.add("node-0", on_azure=True)
    result = hvj("cluster", *arguments)
    assert (result.code, "Traceback" in result.stderr) == (code, False), result.stderr
    assert words in result.stderr
    assert not any(method == "PUT" for method, _ in arm.requests)


SIZE = "Standard_NC4as_T4_v3"
LIMITS = ("--vm-size", SIZE, "--min", "0", "--max", "4")


def puts(arm: ResourceManager) -> list[str]:
    """The paths of the changes that were requested."""
    return [path for method, path in arm.requests if method == "PUT"]


def test_a_pool_is_created_once_with_the_request_of_the_dry_run(hvj: Hvj, nodes: Nodes, arm: ResourceManager) -> None:
    nodes.add("system-0", labels=SYSTEM, gpus=0, on_azure=True)
    create = ("cluster", "create", "-n", "spots", *LIMITS, "--spot", "-g", GROUP)
    request = hvj(*create, "--dry-run").data
    assert (puts(arm), "spots" in arm.clusters[1].pools) == ([], False)
    made = hvj(*create)
    assert made.data["scaleSettings"]["autoScale"] == {"minimumNodeCount": 0, "maximumNodeCount": 4}
    assert (made.data["vmPriority"], "pool spots: creation: InProgress" in made.stderr) == ("lowpriority", True)
    properties = arm.clusters[1].pools["spots"].properties
    assert properties.items() >= request["body"]["properties"].items()
    assert properties["nodeTaints"] == ["sku=gpu:NoSchedule"]
    (path,) = puts(arm)
    assert (request["method"], path in request["url"]) == ("PUT", True)
    again = hvj(*create)
    assert (again.data, len(puts(arm))) == (made.data, 1)
    assert "pool spots exists with these settings" in again.stderr


def test_a_dry_run_for_a_named_aks_cluster_needs_neither_azure_nor_kubernetes(
    hvj: Hvj, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/none")
    place = ("--subscription", SUBSCRIPTION, "-g", GROUP, "--aks-cluster", AKS)
    old = ("--generate-ssh-keys", "--vm-priority", "Dedicated")
    result = hvj("cluster", "create", "-n", "nc6cluster", "-s", SIZE, "-t", "4", *old, *place, "--dry-run")
    assert result.data["body"]["properties"] == {
        "mode": "User",
        "osType": "Linux",
        "type": "VirtualMachineScaleSets",
        "vmSize": SIZE,
        "count": 4,
        "enableAutoScaling": False,
        "nodeTaints": ["sku=gpu:NoSchedule"],
    }
    assert "ssh are ignored" in result.stderr


def test_a_creation_that_was_interrupted_is_completed(hvj: Hvj, nodes: Nodes, arm: ResourceManager) -> None:
    nodes.add("system-0", labels=SYSTEM, gpus=0, on_azure=True)
    create = ("cluster", "create", "-n", "gpus", *LIMITS)
    with arm.hold():
        assert hvj(*create, "--no-wait").data["provisioningState"] == "creating"
    assert hvj(*create).data["provisioningState"] == "succeeded"
    arm.fail_next_operation("AllocationFailed", "We do not have sufficient capacity for the requested VM size.")
    more = ("cluster", "create", "-n", "more", *LIMITS, "--quiet")
    failed = hvj(*more)
    assert (failed.code, failed.stderr.count("\n")) == (1, 1)
    assert "Azure has no capacity for this VM size" in failed.stderr
    assert hvj(*more).data["provisioningState"] == "succeeded"


def test_an_existing_pool_with_other_settings_is_not_changed(hvj: Hvj, nodes: Nodes, arm: ResourceManager) -> None:
    nodes.add("system-0", labels=SYSTEM, gpus=0, on_azure=True)
    refusals = (
        (("-s", "Standard_NC24ads_A100_v4", "-t", "0"), f"exists with the VM size {SIZE}"),
        (("-s", SIZE, "-t", "0", "--spot"), "exists with the priority Regular"),
        (
            ("-s", SIZE, "-t", "3"),
            f"exists with 0 nodes, not 3 nodes; change it with `hvj cluster resize -n {POOL} -t 3`",
        ),
        (LIMITS, f"change it with `hvj cluster auto-scale -n {POOL} --min 0 --max 4`"),
    )
    for arguments, words in refusals:
        result = hvj("cluster", "create", "-n", POOL, *arguments)
        assert (result.code, result.stdout, result.stderr.count("\n")) == (1, "", 1), result.stderr
        assert words in result.stderr
    missing = ("-g", GROUP, "--aks-cluster", "none", "--subscription", SUBSCRIPTION)
    assert hvj("cluster", "create", "-n", POOL, *LIMITS, *missing).code == 3
    assert puts(arm) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("gpus", "-s", "Standard_NC6", "-t", "4"), "Azure has retired Standard_NC6"),
        (("gpus", "-s", "Standard_NC6s_v3", "-t", "4"), "Azure has retired Standard_NC6s_v3"),
        (("gpus", "-s", SIZE), "give the number of nodes with --target"),
        (("gpus", "-s", SIZE, "--min", "1"), "needs both limits"),
        (("gpus", "-s", SIZE, "--min", "3", "--max", "2"), "--min 3 is greater than --max 2"),
        (("gpus", *LIMITS, "-t", "5"), "--target 5 is not from --min 0 to --max 4"),
        (("My_Pool", *LIMITS), "AKS has no node pool 'My_Pool'"),
    ],
)
def test_settings_that_no_pool_can_have_are_reported_in_one_sentence(arguments: tuple[str, ...], words: str) -> None:
    result = run("cluster", "create", "-n", *arguments)
    assert (result.code, result.stdout, result.stderr.count("\n")) == (2, "", 1), result.stderr
    assert words in result.stderr


def test_a_creation_without_quota_or_role_or_beside_another_one_changes_nothing(
    hvj: Hvj, nodes: Nodes, arm: ResourceManager
) -> None:
    nodes.add("system-0", labels=SYSTEM, gpus=0, on_azure=True)
    create = ("cluster", "create", "-n", "gpus", "-s", SIZE, "-t", "4", "--quiet")
    arm.vcpu_quota = 12
    assert "quota is exceeded: Insufficient vcpu quota" in hvj(*create).stderr
    arm.assign(CLIENT, Role.READER)
    assert "az role assignment create --role 'Azure Kubernetes Service Contributor Role'" in hvj(*create).stderr
    arm.assign(CLIENT, Role.CONTRIBUTOR)
    assert "gpus" not in arm.clusters[1].pools
    arm.interfere(count=1)
    refused = hvj(*create)
    assert (refused.code, refused.stderr) == (
        1,
        "error: another client has just created node pool gpus; repeat the command\n",
    )
    assert arm.clusters[1].pools["gpus"].properties["count"] == 1


@pytest.fixture
def kueue(api: Api, workspace: str) -> Iterator[Kueue]:
    """A queue for the nodes of the pool."""
    kueue = Kueue(api, workspace, {"kubernetes.azure.com/agentpool": POOL})
    yield kueue
    kueue.remove()


def test_a_queue_has_the_node_counts_of_its_flavors_and_of_the_nodes_that_its_jobs_wait_for(
    hvj: Hvj, nodes: Nodes, kueue: Kueue
) -> None:
    nodes.add("node-0")
    nodes.add("node-1")
    nodes.add("other", labels=LABELS | {"kubernetes.azure.com/agentpool": "other"})
    nodes.add_pod("node-0")
    kueue.add_workload("train", "QuotaReserved", "Admitted", workers=1)
    kueue.add_workload("checked", "QuotaReserved", workers=3)
    kueue.add_workload("later")
    kueue.add_workload("done", "QuotaReserved", "Admitted", "Finished", workers=5)
    kueue.add_workload("elsewhere", "QuotaReserved", workers=7, queue="other")
    record = hvj("cluster", "show", "-n", QUEUE).data
    assert record["nodeStateCounts"] == counts(idle=1, running=1, preparing=3)
    assert (record["name"], record["allocationState"], record["vmSize"]) == (QUEUE, "resizing", "Standard_NC4as_T4_v3")
    place = {"name": QUEUE, "clusterQueue": CLUSTER_QUEUE, "flavors": [FLAVOR], "pools": [POOL]}
    assert record["queue"] == {**place, "waitingJobs": ["later"], "admittedJobs": ["train"]}
    nodes.add_pod("", phase="Pending", ready="False")
    assert hvj("cluster", "show", "-n", QUEUE).data["nodeStateCounts"] == counts(idle=1, running=1, preparing=4)


def test_nodes_of_a_queue_that_aks_has_allocated_are_counted_before_they_are_registered(
    hvj: Hvj, nodes: Nodes, kueue: Kueue, arm: ResourceManager
) -> None:
    nodes.add("system-0", labels=SYSTEM, gpus=0, on_azure=True)
    arm.clusters[1].pools[POOL] = new_pool(POOL, count=3, enableAutoScaling=True, minCount=0, maxCount=4)
    kueue.add_workload("train", "QuotaReserved", workers=1)
    record = hvj("cluster", "show", "-n", QUEUE).data
    assert record["nodeStateCounts"] == counts(preparing=3)
    assert record["scaleSettings"]["autoScale"] == {"minimumNodeCount": 0, "maximumNodeCount": 4}


def test_a_name_of_neither_a_pool_nor_a_queue_is_not_found(hvj: Hvj, nodes: Nodes, kueue: Kueue) -> None:
    result = hvj("cluster", "show", "-n", "nope")
    assert (result.code, "no pool is named nope" in result.stderr) == (3, True)


@pytest.fixture
def member(api: Api, workspace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`hvj` has the rights of the role `edit` in the workspace, and no others."""
    roles = ("system:aggregate-to-edit", "system:aggregate-to-view")
    monkeypatch.setenv("KUBECONFIG", str(account_kubeconfig(api, workspace, tmp_path, *roles)))


def test_a_user_who_may_not_list_nodes_sees_and_resizes_a_pool_by_azure(
    hvj: Hvj, workspace: str, arm: ResourceManager, nodes: Nodes, member: None
) -> None:
    nodes.add("node-0")
    place = ("--subscription", SUBSCRIPTION, "--resource-group", GROUP, "--aks-cluster", AKS)
    size = arm.clusters[1].pools[POOL].properties["vmSize"]
    shown = hvj("cluster", "show", "-n", POOL, *place)
    record = shown.data
    assert (record["vmSize"], record["currentNodeCount"], record["nodeStateCounts"]) == (size, 0, None)
    assert (len(shown.stderr.splitlines()), ROLE in shown.stderr) == (1, True)
    assert [each["name"] for each in hvj("cluster", "list", *place).data] == sorted(arm.clusters[1].pools)
    table = hvj("cluster", "show", "-n", POOL, "-o", "table", *place).stdout.splitlines()
    assert table[-1].split() == [POOL, GROUP, workspace, size, "steady", *"-----"]
    assert (hvj("cluster", "show", "-n", "nope", *place).code, hvj("cluster", "list").data) == (3, [])
    for change in (("resize", "-t", "2"), ("auto-scale", "--min", "0", "--max", "3")):
        refused = hvj("cluster", *change, "-n", POOL)
        assert (refused.code, len(refused.stderr.splitlines()), ROLE in refused.stderr) == (1, 1, True)
        assert "name the AKS cluster with --subscription and --aks-cluster" in refused.stderr
        assert hvj("cluster", *change, "-n", POOL, "--quiet", *place).data["nodeStateCounts"] is None
    assert arm.clusters[1].pools[POOL].properties["maxCount"] == 3


def test_a_user_who_may_not_list_nodes_sees_those_with_pods_of_the_workspace(
    hvj: Hvj, workspace: str, nodes: Nodes, member: None
) -> None:
    nodes.add("node-0")
    nodes.add("node-1")
    nodes.add_pod("node-0", hostIP="10.0.0.7", hostIPs=[{"ip": "10.0.0.7"}])
    nodes.add_pod("", phase="Pending", ready="False")
    shown = hvj("cluster", "node", "list", "-c", POOL)
    (record,) = shown.data
    assert (record["nodeId"], record["ipAddress"], record["jobs"]) == ("node-0", "10.0.0.7", [f"{workspace}/train"])
    assert (record["state"], record["gpus"]) == (None, None)
    assert (len(shown.stderr.splitlines()), ROLE in shown.stderr) == (1, True)
    table = hvj("cluster", "node", "list", "-c", POOL, "-o", "table").stdout
    assert table.splitlines()[-1].split() == ["node-0", "10.0.0.7", "-", "-", f"{workspace}/train"]
    table = hvj("cluster", "show", "-n", POOL, "-o", "table").stdout
    assert table.splitlines()[-1].split() == [POOL, workspace, *"-------"]


def test_a_user_with_the_role_for_nodes_sees_their_states(
    hvj: Hvj, api: Api, workspace: str, nodes: Nodes, member: None
) -> None:
    nodes.add("node-0")
    with role_for_nodes(api, workspace):
        shown = hvj("cluster", "show", "-n", POOL)
        assert (shown.data["nodeStateCounts"], ROLE in shown.stderr) == (counts(idle=1), False)
        assert [each["state"] for each in hvj("cluster", "node", "list", "-c", POOL).data] == ["idle"]
        assert "may not read /api/v1/nodes" not in hvj("doctor").stdout


def test_a_user_with_a_queue_sees_its_jobs_and_with_the_role_for_nodes_its_flavors(
    hvj: Hvj, api: Api, workspace: str, nodes: Nodes, kueue: Kueue, member: None
) -> None:
    assert hvj("cluster", "show", "-n", QUEUE).data["allocationState"] is None, "it may be a pool"
    rules = [{"apiGroups": ["kueue.x-k8s.io"], "resources": ["localqueues", "workloads"], "verbs": ["get", "list"]}]
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{workspace}"
    api.create(f"{rbac}/roles", {"metadata": {"name": "queues"}, "rules": rules})
    subject = {"kind": "ServiceAccount", "name": "user", "namespace": workspace}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "queues"}
    api.create(f"{rbac}/rolebindings", {"metadata": {"name": "queues"}, "subjects": [subject], "roleRef": reference})
    nodes.add("node-0")
    kueue.add_workload("later")
    record = hvj("cluster", "show", "-n", QUEUE).data
    place = {"name": QUEUE, "clusterQueue": CLUSTER_QUEUE, "waitingJobs": ["later"], "admittedJobs": []}
    assert record["queue"] == {**place, "flavors": None, "pools": None}
    assert record["nodeStateCounts"] is None
    with role_for_nodes(api, workspace):
        record = hvj("cluster", "show", "-n", QUEUE).data
    assert record["queue"] == {**place, "flavors": [FLAVOR], "pools": [POOL]}
    assert record["nodeStateCounts"] == counts(idle=1)
