"""NetworkPolicies: whether the network plugin enforces them."""

from collections.abc import Iterator

from horovodjob.client.cluster import aks
from horovodjob.client.diagnosis.cluster_facts import CheckResult, Facts, Outcome, join_names

# DaemonSets of network plugins that enforce NetworkPolicies, and of plugins that do not by themselves.
ENFORCING = (
    "calico-node",
    "canal",
    "cilium",
    "azure-npm",
    "kube-router",
    "antrea-agent",
    "weave-net",
    "ovnkube-node",
    "anetd",
)
IGNORING = ("kube-flannel", "kube-flannel-ds", "azure-cns")
ENABLE_ON_AKS = (
    "az aks update --resource-group <group> --name <cluster> --network-policy cilium --network-dataplane cilium"
)
# Canal is flannel with the policies of Calico.
ENABLE = "kubectl apply -f https://raw.githubusercontent.com/projectcalico/calico/v3.31.0/manifests/canal.yaml"


def network_policies(facts: Facts) -> Iterator[CheckResult]:
    """A network plugin enforces NetworkPolicies. Without one, jobs run and are open to other pods."""
    if facts.spec and not facts.spec.network.isolate:
        yield CheckResult("NetworkPolicy", Outcome.OK, f"{facts.subject} requests none (network.isolate: false)")
        return
    names = {daemon_set["metadata"]["name"] for daemon_set in facts.daemon_sets}
    if found := sorted(names & set(ENFORCING)):
        yield CheckResult("NetworkPolicy", Outcome.OK, f"enforced by {join_names(found)}")
    elif found := sorted(names & set(IGNORING)):
        plugin = f"the network plugin ({join_names(found)})"
        message = f"not enforced: {plugin} ignores NetworkPolicies; any pod can reach a job's pods"
        command = ENABLE_ON_AKS if aks.cluster_reference(facts.nodes, None, None, None) else ENABLE
        yield CheckResult("NetworkPolicy", Outcome.WARNING, message, command)
    else:
        message = "enforcement is unknown: this cluster has no DaemonSet of a known network plugin"
        yield CheckResult("NetworkPolicy", Outcome.NOT_CHECKED, message)
