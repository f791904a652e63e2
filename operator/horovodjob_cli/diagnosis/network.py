"""NetworkPolicies: whether the cluster's network enforces them."""

from collections.abc import Iterator

from horovodjob_cli import aks
from horovodjob_cli.diagnosis.facts import Facts, named
from horovodjob_cli.diagnosis.finding import Finding, Result

# Names of DaemonSets of networks that enforce NetworkPolicies, and of those that do not by themselves.
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


def network_policies(facts: Facts) -> Iterator[Finding]:
    """A network that enforces NetworkPolicies runs; a job works without, and is open to other pods."""
    if facts.spec and not facts.spec.network.isolate:
        yield Finding("NetworkPolicy", Result.OK, f"{facts.subject} asks for none (network.isolate: false)")
        return
    names = {daemon_set["metadata"]["name"] for daemon_set in facts.daemon_sets}
    if found := sorted(names & set(ENFORCING)):
        yield Finding("NetworkPolicy", Result.OK, f"enforced by {named(found)}")
    elif found := sorted(names & set(IGNORING)):
        message = (
            f"not enforced: the network ({named(found)}) ignores NetworkPolicies, so any pod reaches those of a job"
        )
        command = ENABLE_ON_AKS if aks.place(facts.nodes, None, None, None) else ENABLE
        yield Finding("NetworkPolicy", Result.WARNING, message, command)
    else:
        message = "unknown whether they are enforced: no DaemonSet of a network that is known runs here"
        yield Finding("NetworkPolicy", Result.NOT_CHECKED, message)
