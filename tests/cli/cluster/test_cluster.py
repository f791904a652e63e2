"""`hvj cluster` against a real API server, with the fakes of Azure Resource Manager and Entra ID."""

import signal
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from cli.cluster.aks_cluster import CLIENT, aks_cluster
from cli.cluster.kueue_objects import CLUSTER_QUEUE, FLAVOR, QUEUE, Kueue
from cli.cluster.nodes import AKS, GROUP, LABELS, POOL, Nodes
from cli.program import Hvj, hvj_process, terminal
from cli.service_account import account_kubeconfig, role_for_nodes
from support.api_client import Api, Object
from support.azure_fakes.arm.resources import Cluster, Pool, new_pool
from support.azure_fakes.arm.server import SUBSCRIPTION, ResourceManager, Role

SYSTEM = {"kubernetes.azure.com/agentpool": "system"}
ROLE = "horovodjob-operator-nodes"
SIZE = "Standard_NC4as_T4_v3"
LIMITS = ("--vm-size", SIZE, "--min", "0", "--max", "4")
# The state of a node, or of one with a pod of a job, for these fields.
NODES: tuple[tuple[Object, str], ...] = (
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
)
PODS: tuple[tuple[Object, str], ...] = (
    ({}, "running"),
    ({"ready": "False"}, "preparing"),
    ({"phase": "Pending", "ready": "False"}, "preparing"),
    ({"phase": "Succeeded", "ready": "False"}, "idle"),
)


@pytest.fixture
def arm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ResourceManager]:
    """Azure's control plane with the AKS cluster of the nodes; the test runs with workload identity."""
    with aks_cluster(tmp_path) as (arm, environment):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr("horovodjob.client.cluster.aks.BUSY_POLL_SECONDS", 0.1)
        yield arm


def counts(**counted: int) -> dict[str, int]:
    """`nodeStateCounts` with these nodes."""
    names = ("idle", "leaving", "preparing", "running", "unusable")
    return {f"{name}NodeCount": counted.get(name, 0) for name in names}


def puts(arm: ResourceManager) -> list[str]:
    """The paths of the changes that were requested."""
    return [path for method, path in arm.requests if method == "PUT"]


def test_nodes_are_listed_and_counted_by_their_state_and_that_of_pods_on_them(
    hvj: Hvj, nodes: Nodes, workspace: str
) -> None:
    states = [state for _, state in (*NODES, *PODS)]
    for number, (node, _) in enumerate(NODES):
        nodes.add(f"node-{number}", **node)
    for number, (pod, _) in enumerate(PODS, len(NODES)):
        nodes.add(f"node-{number}")
        nodes.add_pod(f"node-{number}", **pod)
    listed = {each["nodeId"]: each for each in hvj("cluster", "node", "list", "-c", POOL).data}
    assert [listed[f"node-{number}"]["state"] for number in range(len(states))] == states
    assert (listed["node-0"]["gpus"], listed[f"node-{len(NODES)}"]["jobs"]) == (1, [f"{workspace}/train"])
    pool = hvj("cluster", "show", "-n", POOL).data
    assert pool["nodeStateCounts"] == counts(**Counter(states))
    assert {"node": "node-7", "code": "XIDErrors", "message": "XIDErrors!"} in pool["errors"]
    heading, _, row = hvj("cluster", "list", "-o", "table").stdout.splitlines()
    titles = "Name, Resource Group, Workspace, VM Size, State, Idle, Running, Preparing, Leaving, Unusable"
    assert [title for title in titles.split(", ") if title in heading] == titles.split(", ")
    assert row.split() == [POOL, workspace, SIZE, "resizing", "4", "1", "4", "2", "4"]
    with terminal("cluster", "list") as screen:
        assert screen.end() == 0
    lines = screen.shown.splitlines()
    assert ("Unusable" in lines[0], "Resource Group" in lines[0], len(lines)) == (True, False, 3)
    assert max(map(len, lines)) <= 80


def test_a_pool_has_the_gpu_nodes_without_labels_or_those_of_a_selector_and_is_resized_only_on_azure(
    hvj: Hvj, nodes: Nodes
) -> None:
    nodes.add("gpu-0", labels={})
    nodes.add("cpu-0", labels={}, gpus=0)
    nodes.add("cpu-1", labels={"team": "vision"}, gpus=0)
    (pool,) = hvj("cluster", "list").data
    assert (pool["name"], pool["currentNodeCount"]) == ("gpu", 1)
    pool = hvj("cluster", "show", "-n", "nc6cluster", "--selector", "team=vision").data
    assert (pool["name"], pool["nodeStateCounts"]) == ("nc6cluster", counts(idle=1))
    result = hvj("cluster", "show", "-n", "nc6cluster")
    assert (result.code, result.stdout) == (3, "")
    assert "no pool is named nc6cluster (pools: gpu)" in result.stderr
    result = hvj("cluster", "resize", "-n", "gpu", "-t", "0")
    assert (result.code, "this cluster is not on Azure" in result.stderr) == (1, True)


def test_a_pool_of_aks_is_found_resized_and_scaled_automatically(hvj: Hvj, nodes: Nodes, arm: ResourceManager) -> None:
    nodes.add("system-0", labels=SYSTEM, gpus=0, on_azure=True)
    arm.throttle(2)
    system, gpu = sorted(hvj("cluster", "list").data, key=lambda pool: pool["name"] == POOL)
    assert (gpu["name"], gpu["resourceGroup"], gpu["vmSize"], gpu["nodeStateCounts"]) == (POOL, GROUP, SIZE, counts())
    assert gpu["scaleSettings"] == {"manual": {"targetNodeCount": 0}, "autoScale": None}
    assert system["allocationState"] == gpu["allocationState"] == "steady"

    def make_nodes(cluster: Cluster, pool: Pool) -> None:
        for index in range(pool.properties["count"]):
            nodes.add(f"{POOL}-{index}", on_azure=True)

    arm.on_change = make_nodes
    result = hvj("cluster", "resize", "-n", POOL, "-g", GROUP, "-t", "4")
    assert (result.data["allocationState"], result.data["nodeStateCounts"]) == ("steady", counts(idle=4))
    assert f"pool {POOL}: 4 nodes: InProgress" in result.stderr
    arm.on_change = lambda cluster, pool: None
    pool = hvj("cluster", "auto-scale", "-n", POOL, "--min", "0", "--max", "4").data
    bounds = {"minimumNodeCount": 0, "maximumNodeCount": 4}
    assert pool["scaleSettings"] == {"manual": None, "autoScale": bounds}
    arm.requests.clear()
    arm.interfere(nodeLabels={"team": "vision"})
    assert hvj("cluster", "resize", "-n", POOL, "-t", "0").code == 0
    properties = arm.clusters[1].pools[POOL].properties
    assert (properties["count"], properties["enableAutoScaling"], "minCount" in properties) == (0, False, False)
    assert properties["nodeLabels"] == {"team": "vision"}, "the change is based on the newest version"
    assert len(puts(arm)) == 3, "the autoscaler is disabled first, after the change of somebody else"


def test_a_resize_is_shown_until_its_end_and_goes_on_without_its_command(
    hvj: Hvj, nodes: Nodes, arm: ResourceManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes.add("system-0", labels={}, gpus=0, on_azure=True)
    resize = ("cluster", "resize", "-n", POOL, "-t")
    with terminal(*resize, "4") as screen:
        with arm.hold():
            screen.until(f"pool {POOL}: 4 nodes: InProgress, ")
        assert screen.end() == 0
    assert "resizing" in screen.shown
    with arm.hold():
        with hvj_process(*resize, "3") as process:
            assert process.until("InProgress") == f"pool {POOL}: 3 nodes: InProgress\n"
            process.send_signal(signal.SIGINT)
            assert process.communicate()[1] == "\n"
        assert (process.returncode, arm.clusters[1].pools[POOL].properties["count"]) == (130, 3)
        monkeypatch.setattr("horovodjob.client.cluster.aks.BUSY_MINUTES", 0.01)
        result = hvj(*resize, "2", "--no-wait")
        busy = "Operation is not allowed because there's an in progress scale agentpool"
        assert (result.code, f"has been busy for 0.01 minutes: {busy}" in result.stderr) == (1, True), result.stderr
        assert "az aks operation-abort" in result.stderr
    monkeypatch.setattr("horovodjob.client.cluster.aks.BUSY_MINUTES", 30)
    result = hvj(*resize, "2", "--no-wait")
    assert (result.data["allocationState"], result.data["provisioningState"]) == ("resizing", "scaling")
    assert f"waiting up to 30 minutes: {busy}" in result.stderr
    arm.polls = 10**9
    done = hvj(*resize, "1", "--timeout", "1s")
    assert (done.code, f"error: pool {POOL}: 1 nodes did not end within 1 s (--timeout)" in done.stderr) == (5, True)


def test_what_azure_refuses_is_one_sentence_with_the_remedy(
    hvj: Hvj, nodes: Nodes, arm: ResourceManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes.add("system-0", labels={}, gpus=0, on_azure=True)
    resize = ("cluster", "resize", "-n", POOL, "-t", "4", "--quiet")

    def refused(*words: str, command: tuple[str, ...] = resize) -> str:
        result = hvj(*command)
        assert (result.code, result.stderr.count("\n")) == (1, 1), result.stderr
        assert all(each in result.stderr for each in words), result.stderr
        return result.stderr

    for message in (
        "Managed cluster is in stopped state, and no operations except for start are allowed",
        "The pool is being upgraded to a version that its control plane has not",
    ):
        arm.requests.clear()
        arm.refuse_changes(409, "OperationNotAllowed", f"{message}.")
        refused(message)
        assert len(puts(arm)) == 1, "it does not end by itself"
    subnet = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/net/providers/Microsoft.Network/virtualNetworks/v/subnets/s"
    arm.refuse_changes(
        403,
        "LinkedAuthorizationFailed",
        f"The client '{CLIENT}' with object id '{CLIENT}' has permission to perform action "
        f"'Microsoft.ContainerService/managedClusters/agentPools/write' on scope '{arm.clusters[1].id}'; however, it "
        "does not have permission to perform action(s) 'Microsoft.Network/virtualNetworks/subnets/join/action' on the "
        f"linked scope(s) '{subnet}' (respectively) or the linked scope(s) are invalid.",
    )
    create = ("cluster", "create", "-n", "gpus", "-s", SIZE, "-t", "4", "--quiet")
    role = f"az role assignment create --role 'Network Contributor' --assignee <you> --scope {subnet}\n"
    assert "Kubernetes Service Contributor" not in refused(role, command=(*create, "--subnet", subnet))
    arm.refuse_changes(0, "", "")
    arm.vcpu_quota = 12
    for command in (resize, create):
        refused("quota is exceeded: Insufficient vcpu quota requested 16, remaining 8", command=command)
    arm.vcpu_quota = 100
    arm.fail_next_operation("AllocationFailed", "We do not have sufficient capacity for the requested VM size.")
    refused("Azure has no capacity for this VM size: We do not have sufficient capacity")
    arm.interfere(count=1)
    assert refused(command=create) == "error: another client has just created node pool gpus; repeat the command\n"
    arm.assign(CLIENT, Role.READER)
    role = "az role assignment create --role 'Azure Kubernetes Service Contributor Role'"
    refused(role, command=("cluster", "resize", "-n", POOL, "-t", "3", "--quiet"))
    nodes.add("node-0", on_azure=True)
    arm.assign(CLIENT, None)
    result = hvj("cluster", "list")
    assert POOL in [pool["name"] for pool in result.data]
    assert "warning: without Azure's view of the pools: you have no right to" in result.stderr
    assert "az role assignment create --role 'Reader'" in result.stderr
    monkeypatch.setenv("AZURE_CLIENT_ID", "22222222-0000-4000-8000-000000000003")
    result = hvj("cluster", "show", "-n", POOL)
    assert (result.data["resourceGroup"], result.data["nodeStateCounts"]) == (None, counts(idle=1))
    assert "Azure sign-in failed: AADSTS700016" in result.stderr


def test_invalid_input_is_reported_in_one_sentence_and_changes_nothing(
    hvj: Hvj, nodes: Nodes, arm: ResourceManager
) -> None:
    nodes.add("node-0", on_azure=True)
    for arguments, code, words in (
        (("resize", "-n", POOL), 2, "missing option '--target'"),
        (("resize", "-n", POOL, "-t", "-1"), 2, "--target"),
        (("auto-scale", "-n", POOL, "--min", "4", "--max", "2"), 2, "--min 4 is greater than --max 2"),
        (("resize", "-n", "system", "-t", "0"), 2, "pool system is a system pool"),
        (("resize", "-n", "none", "-t", "1"), 3, "node pool none of AKS cluster aks in resource group"),
        (("show", "-n", POOL, "-g", "none"), 0, "resource group none does not exist"),
        (("resize", "-n", POOL, "-t", "1", "-g", "other"), 3, "name it with --resource-group and --aks-cluster"),
        (("create", "-n", "gpus", "-s", "Standard_NC6s_v3", "-t", "4"), 2, "Azure has retired Standard_NC6s_v3"),
        (("create", "-n", "gpus", "-s", SIZE), 2, "give the number of nodes with --target"),
        (("create", "-n", "gpus", "-s", SIZE, "--min", "1"), 2, "needs both limits"),
        (("create", "-n", "gpus", *LIMITS, "-t", "5"), 2, "--target 5 is not from --min 0 to --max 4"),
        (("create", "-n", "My_Pool", *LIMITS), 2, "AKS has no node pool 'My_Pool'"),
    ):
        result = hvj("cluster", *arguments)
        assert (result.code, "Traceback" in result.stderr) == (code, False), result.stderr
        assert words in result.stderr
    assert puts(arm) == []


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
    result = hvj("cluster", "show", "-n", "nope")
    assert (result.code, "no pool is named nope" in result.stderr) == (3, True)


def test_nodes_of_a_queue_that_aks_has_allocated_are_counted_before_they_are_registered(
    hvj: Hvj, nodes: Nodes, kueue: Kueue, arm: ResourceManager
) -> None:
    nodes.add("system-0", labels=SYSTEM, gpus=0, on_azure=True)
    arm.clusters[1].pools[POOL] = new_pool(POOL, count=3, enableAutoScaling=True, minCount=0, maxCount=4)
    kueue.add_workload("train", "QuotaReserved", workers=1)
    record = hvj("cluster", "show", "-n", QUEUE).data
    assert record["nodeStateCounts"] == counts(preparing=3)
    assert record["scaleSettings"]["autoScale"] == {"minimumNodeCount": 0, "maximumNodeCount": 4}


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


def test_a_user_who_may_not_list_nodes_sees_those_with_pods_of_the_workspace_and_with_the_role_their_states(
    hvj: Hvj, api: Api, workspace: str, nodes: Nodes, member: None
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
    with role_for_nodes(api, workspace):
        shown = hvj("cluster", "show", "-n", POOL)
        assert (shown.data["nodeStateCounts"], ROLE in shown.stderr) == (counts(idle=1, running=1), False)
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
