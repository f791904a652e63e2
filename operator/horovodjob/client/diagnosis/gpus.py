"""GPUs: nodes with GPUs, or an autoscaled pool of such nodes, and the device plugin."""

import shlex
from collections.abc import Iterator

from horovodjob.api.constants import AKS_POOL_LABEL, GPU_RESOURCE
from horovodjob.client.cluster import aks, node_pools
from horovodjob.client.cluster.default_gpus import are_own_machines
from horovodjob.client.diagnosis.cluster_facts import (
    CheckResult,
    Facts,
    Forbidden,
    Object,
    Outcome,
    join_names,
    matches,
)
from horovodjob.client.errors import ClientError

ADD_POOL = (
    "az aks nodepool add --resource-group {group} --cluster-name {cluster} --name {pool} --mode User "
    "--node-vm-size Standard_NC4as_T4_v3 --node-count 0 --enable-cluster-autoscaler --min-count 0 --max-count 4 "
    "--node-taints sku=gpu:NoSchedule"
)
DEVICE_PLUGIN = "kubectl apply -f manifests/aks/nvidia-device-plugin.yaml"
BLOCKING = ("NoSchedule", "NoExecute")
# The taints that the operator lets workers with GPUs tolerate, and those with spec.spot.
TOLERATED = ("sku", GPU_RESOURCE)
SPOT_TAINT = "kubernetes.azure.com/scalesetpriority"


def gpus(facts: Facts) -> Iterator[CheckResult]:
    """There are nodes with enough GPUs for the workers, or a pool that adds them."""
    each = facts.spec.worker.gpus if facts.spec else 1
    if each == 0 and facts.spec and not worker_nodes(facts):
        yield empty_pool(facts, facts.spec.pool) if facts.spec.pool else no_nodes(facts)
        return
    if each == 0:
        yield CheckResult("GPUs", Outcome.OK, f"{facts.subject} requests none (worker.gpus: 0)")
        return
    nodes = worker_nodes(facts)
    if not nodes:
        yield from no_gpu_nodes(facts)
        return
    bare = [node["metadata"]["name"] for node in nodes if not node_pools.gpus(node, "capacity")]
    if bare:
        yield no_device_plugin(facts, bare)
    if len(bare) == len(nodes):
        return
    if excluded := [node for node in nodes if untolerated(facts, node)]:
        yield from untolerated_taints(facts, excluded)
    if facts.spec and facts.spec.spot and all(map(node_pools.is_spot, facts.nodes)):
        message = f"all nodes are spot nodes, and the launcher of {facts.subject} (spec.spot) never runs on one"
        yield CheckResult("GPUs", Outcome.WARNING, message, "hvj cluster list")
    yield node_capacity(facts, nodes, each)


def worker_nodes(facts: Facts) -> list[Object]:
    """Nodes that match the job's pool and node selector, with GPUs if workers need them."""
    selector = dict(facts.spec.node_selector or {}) if facts.spec else {}
    if facts.spec and facts.spec.pool:
        selector[AKS_POOL_LABEL] = facts.spec.pool
    chosen = [node for node in facts.nodes if matches(node["metadata"].get("labels") or {}, selector)]
    needs_gpus = facts.spec is None or facts.spec.worker.gpus > 0
    return [node for node in chosen if node_pools.is_gpu_node(node)] if needs_gpus else chosen


def empty_pool(facts: Facts, pool: str) -> CheckResult:
    """The job's pool has no node: AKS can add some, and elsewhere the name is probably wrong."""
    place = aks.cluster_reference(facts.nodes, None, None, None)
    if place is None:
        message = f"no node has the label {AKS_POOL_LABEL}={pool} of pool {pool}"
        return CheckResult("GPUs", Outcome.BLOCKS, message, f"kubectl get nodes -L {AKS_POOL_LABEL}")
    workers = facts.spec.worker.replicas if facts.spec else 1
    word = shlex.quote(pool)  # in a job, it is any text
    message, resize = f"pool {pool} has no node now", f"hvj cluster resize -n {word} -t {workers}"
    try:
        found = {each.name: each for each in aks.ManagedCluster(place).pools()}
    except ClientError:
        return CheckResult("GPUs", Outcome.WARNING, f"{message}, so {facts.subject} waits until the pool grows", resize)
    if pool not in found:
        message = f"the AKS cluster has no pool {pool}, only {join_names(sorted(found))}"
        return CheckResult("GPUs", Outcome.BLOCKS, message, f"hvj cluster create -n {word} -s <size> -t {workers}")
    if found[pool].enable_auto_scaling and found[pool].max_count:
        message = f"{message}, and the autoscaler adds up to {found[pool].max_count}"
        return CheckResult("GPUs", Outcome.OK, message)
    return CheckResult("GPUs", Outcome.BLOCKS, f"{message}, and no autoscaler", resize)


def no_nodes(facts: Facts) -> CheckResult:
    """No node for workers without GPUs: that is the node selector, or a cluster without nodes."""
    selector = (facts.spec.node_selector if facts.spec else None) or {}
    labels = ",".join(f"{key}={value}" for key, value in selector.items())
    message = f"no node has the labels {labels} of spec.nodeSelector" if labels else "the cluster has no node"
    outcome = Outcome.WARNING if has_karpenter(facts) else Outcome.BLOCKS
    return CheckResult("GPUs", outcome, message, "kubectl get nodes --show-labels")


def no_gpu_nodes(facts: Facts) -> Iterator[CheckResult]:
    """No node has GPUs: an autoscaled pool may add one when a job needs it."""
    pool = facts.spec.pool if facts.spec and facts.spec.pool else None
    what = f"no node of pool {pool} has a GPU" if pool else "no node has a GPU"
    place = aks.cluster_reference(facts.nodes, None, None, None)
    unknown = ""
    if place:
        try:
            cluster = aks.ManagedCluster(place)
            growing = [each for each in cluster.pools() if autoscales_gpus(each) and pool in (None, each.name)]
        except ClientError as error:
            unknown, growing = f"; autoscaling of the AKS pools is unknown: {error}", []
        if growing:
            names = join_names([f"{each.name} (up to {each.max_count} nodes)" for each in growing])
            yield CheckResult("GPUs", Outcome.OK, f"{what} now, and the autoscaler adds nodes to {names}")
            return
    elif has_karpenter(facts):
        yield CheckResult("GPUs", Outcome.WARNING, f"{what} now; Karpenter may add one", "kubectl get nodepools")
        return
    if facts.spec is None and are_own_machines(facts.nodes):
        yield CheckResult("GPUs", Outcome.OK, f"{what}: `hvj run` uses none here, and other jobs set worker.gpus: 0")
        return
    message = f"{what}, and no autoscaled pool is known{unknown}; jobs with worker.gpus: 0 run without"
    command = ADD_POOL.format(
        group=(place and place.group) or "<group>",
        cluster=(place and place.cluster) or "<cluster>",
        pool=shlex.quote(pool or "gpunp"),
    )
    yield CheckResult("GPUs", Outcome.BLOCKS, message, command)


def autoscales_gpus(pool: object) -> bool:
    """Whether the cluster autoscaler adds GPU nodes to an AKS pool."""
    size, most = getattr(pool, "vm_size", None) or "", getattr(pool, "max_count", None) or 0
    return bool(getattr(pool, "enable_auto_scaling", False) and most and node_pools.GPU_VM_SIZE.match(size))


def has_karpenter(facts: Facts) -> bool:
    try:
        return bool(facts.list("/apis/karpenter.sh/v1/nodepools"))
    except Forbidden:
        return False


def no_device_plugin(facts: Facts, nodes: list[str]) -> CheckResult:
    """Nodes that do not advertise their GPUs: the device plugin is missing or fails."""
    message = f"node {join_names(nodes)} has a GPU but does not advertise it: {GPU_RESOURCE} is not in its capacity"
    try:
        plugins = [each for each in facts.daemon_sets if "nvidia" in each["metadata"]["name"] and is_plugin(each)]
    except Forbidden:
        plugins = []
    if plugins:
        namespace, name = plugins[0]["metadata"]["namespace"], plugins[0]["metadata"]["name"]
        command = f"kubectl describe daemonset {name} -n {namespace}"
        return CheckResult("device plugin", Outcome.BLOCKS, f"{message}; DaemonSet {name} does not run there", command)
    return CheckResult(
        "device plugin", Outcome.BLOCKS, f"{message}; the NVIDIA device plugin is missing", DEVICE_PLUGIN
    )


def is_plugin(daemon_set: Object) -> bool:
    return "device-plugin" in daemon_set["metadata"]["name"]


def untolerated(facts: Facts, node: Object) -> list[Object]:
    """Taints of the node that the workers do not tolerate."""
    spec = facts.spec
    keys = {*TOLERATED, *([SPOT_TAINT] if spec is None or spec.spot else [])}
    own = (spec.tolerations if spec else None) or ()
    everything = any(toleration.key is None for toleration in own)
    keys |= {toleration.key for toleration in own if toleration.key}
    blocking = [taint for taint in node_pools.taints(node) if taint["effect"] in BLOCKING]
    # The node controller adds and removes its own taints with the state of the node.
    lasting = [taint for taint in blocking if not taint["key"].startswith("node.kubernetes.io/")]
    return [] if everything else [taint for taint in lasting if taint["key"] not in keys]


def untolerated_taints(facts: Facts, nodes: list[Object]) -> Iterator[CheckResult]:
    """Nodes that the workers cannot use because of a taint."""
    names = [node["metadata"]["name"] for node in nodes]
    taint = untolerated(facts, nodes[0])[0]
    text = f"{taint['key']}={taint.get('value', '')}:{taint['effect']}"
    remedy = "set spec.spot: true" if taint["key"] == SPOT_TAINT else "add it to spec.tolerations"
    blocks = Outcome.BLOCKS if facts.job else Outcome.WARNING
    message = f"node {join_names(names)} has the taint {text}, which {facts.subject} does not tolerate; {remedy}"
    yield CheckResult("GPUs", blocks, message, f"kubectl taint nodes {names[0]} {taint['key']}-")


def node_capacity(facts: Facts, nodes: list[Object], each: int) -> CheckResult:
    """Compares the GPUs of the nodes with the number of workers; ignores other pods, because they may end."""
    usable = [node for node in nodes if not untolerated(facts, node)]
    places = sum(node_pools.gpus(node, "capacity") // each for node in usable)
    total = sum(node_pools.gpus(node, "capacity") for node in usable)
    wanted = facts.spec.worker.replicas if facts.spec else 1
    have = f"{len(usable)} nodes with {total} GPUs"
    if places >= wanted:
        return CheckResult("GPUs", Outcome.OK, f"{have} for {wanted} workers with {each} each" if facts.spec else have)
    message = f"{facts.subject} needs {wanted} workers with {each} GPUs each; {have} have room for {places}"
    word = shlex.quote((facts.spec and facts.spec.pool) or node_pools.pool_name(nodes[0]) or "POOL")
    if aks.cluster_reference(nodes, None, None, None):
        return CheckResult(
            "GPUs", Outcome.WARNING, f"{message}, unless the pool grows", f"hvj cluster resize -n {word} -t {wanted}"
        )
    return CheckResult("GPUs", Outcome.BLOCKS, message, f"hvj cluster resize -n {word} -t {wanted}")
