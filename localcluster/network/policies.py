"""NetworkPolicies as a table of nftables. Pure: the table depends only on the objects.

A packet that opens a connection between two pods passes two base chains: one for the egress of the sender, and one for
the ingress of the receiver. Each base chain looks up the address of the pod. A pod that a policy selects has a chain,
which calls the chains of all its policies and drops packets that none of them accepts:

    ingress-forward -> ingress-<address of the pod> -> ingress-<uid of a policy>       -> accept
                                                    -> ingress-<uid of another policy> -> accept
                                                    -> drop
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

TABLE = "ip network-policy"
Object = Mapping[str, Any]
Labels = Mapping[str, str]

OPERATORS: Mapping[str, Callable[[str | None, Sequence[str]], bool]] = {
    "In": lambda value, values: value in values,
    "NotIn": lambda value, values: value not in values,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
}


@dataclass(frozen=True, slots=True)
class Direction:
    """Where ingress and egress differ: fields of the API, addresses of a packet, and hooks of nftables."""

    name: str
    kind: str
    peers: str
    own_address: str
    peer_address: str
    hooks: tuple[str, ...]


INGRESS = Direction("ingress", "Ingress", "from", "ip daddr", "ip saddr", ("forward",))
# The API server listens on the node itself, so packets to it are not forwarded.
EGRESS = Direction("egress", "Egress", "to", "ip saddr", "ip daddr", ("forward", "input"))


@dataclass(frozen=True, slots=True)
class Pod:
    """The fields of a pod that policies refer to."""

    namespace: str
    labels: Labels
    address: str
    ports: Mapping[tuple[str, str], int]
    """The number of each named port, by name and protocol."""

    @classmethod
    def of(cls, pod: Object) -> "Pod":
        """The fields of a pod of the API, which has an address."""
        metadata, spec = pod["metadata"], pod["spec"]
        containers = [*spec["containers"], *spec.get("initContainers", ())]
        ports = [port for container in containers for port in container.get("ports", ())]
        return cls(
            metadata["namespace"],
            metadata.get("labels", {}),
            pod["status"]["podIP"],
            {(port["name"], port["protocol"]): port["containerPort"] for port in ports if "name" in port},
        )


@dataclass(frozen=True, slots=True)
class Table:
    """The table for pods, the labels of namespaces by name, and policies."""

    pods: Sequence[Pod]
    namespaces: Mapping[str, Labels]
    policies: Sequence[Object]

    @classmethod
    def of(cls, pods: Sequence[Object], namespaces: Sequence[Object], policies: Sequence[Object]) -> "Table":
        """The table for objects of the API in any order; it does not contain pods without an address."""
        found = [Pod.of(pod) for pod in pods if pod["status"].get("podIP")]
        return cls(
            sorted(found, key=lambda pod: pod.address),
            {one["metadata"]["name"]: one["metadata"].get("labels", {}) for one in namespaces},
            sorted(policies, key=lambda policy: str(policy["metadata"]["uid"])),
        )

    @property
    def commands(self) -> str:
        """The input of nft that replaces the present table by this one in one transaction."""
        chains = [line for direction in (EGRESS, INGRESS) for line in self._chains(direction)]
        return "\n".join([f"add table {TABLE}", f"delete table {TABLE}", f"table {TABLE} {{", *chains, "}\n"])

    def _chains(self, direction: Direction) -> Iterator[str]:
        jumps: dict[str, list[str]] = {}
        for policy in self.policies:
            if direction.kind in policy["spec"]["policyTypes"]:
                chain = f"{direction.name}-{policy['metadata']['uid']}"
                yield from chain_of(chain, self._rules(policy, direction))
                for pod in self.pods:
                    if is_selected(pod, policy):
                        jumps.setdefault(pod.address, []).append(f"jump {chain}")
        for address, chains in jumps.items():
            own_traffic = f"{direction.peer_address} {address} accept"
            yield from chain_of(f"{direction.name}-{address}", (own_traffic, *chains, "drop"))
        verdicts = ", ".join(f"{address} : goto {direction.name}-{address}" for address in jumps)
        for hook in direction.hooks:
            base = [f"type filter hook {hook} priority filter; policy accept;", "ct state established,related accept"]
            if verdicts:
                base.append(f"{direction.own_address} vmap {{ {verdicts} }}")
            yield from chain_of(f"{direction.name}-{hook}", base)

    def _rules(self, policy: Object, direction: Direction) -> Iterator[str]:
        """The rules that accept packets for a policy: each peer of a rule with each of its ports."""
        for rule in policy["spec"].get(direction.name, ()):
            for peers in self._peers(rule, policy["metadata"]["namespace"], direction):
                for port in self._ports(rule):
                    yield " ".join(match for match in (peers, port, "accept") if match)

    def _peers(self, rule: Object, namespace: str, direction: Direction) -> Iterator[str]:
        """One match for each peer of a rule; an empty match, which means all, for a rule without peers."""
        if not rule.get(direction.peers):
            yield ""
        for peer in rule.get(direction.peers, ()):
            if block := peer.get("ipBlock"):
                if ":" not in block["cidr"]:
                    matches = (block["cidr"], *(f"!= {cidr}" for cidr in block.get("except", ())))
                    yield " ".join(f"{direction.peer_address} {match}" for match in matches)
            elif addresses := [pod.address for pod in self.pods if self._is_peer(pod, peer, namespace)]:
                yield f"{direction.peer_address} {{ {', '.join(addresses)} }}"

    def _is_peer(self, pod: Pod, peer: Object, namespace: str) -> bool:
        if "namespaceSelector" in peer:
            in_namespace = selects(peer["namespaceSelector"], self.namespaces.get(pod.namespace, {}))
        else:
            in_namespace = pod.namespace == namespace
        return in_namespace and selects(peer.get("podSelector", {}), pod.labels)

    def _ports(self, rule: Object) -> Iterator[str]:
        """One match for each port of a rule, as for peers. A name refers to the port of the receiving pod."""
        if not rule.get("ports"):
            yield ""
        for port in rule.get("ports", ()):
            protocol, number = port["protocol"], port.get("port")
            match = f"{protocol.lower()} dport"
            if number is None:
                yield f"meta l4proto {protocol.lower()}"
            elif isinstance(number, int):
                yield f"{match} {number}-{port.get('endPort', number)}"
            elif named := [(pod, pod.ports[number, protocol]) for pod in self.pods if (number, protocol) in pod.ports]:
                yield f"ip daddr . {match} {{ {', '.join(f'{pod.address} . {own}' for pod, own in named)} }}"


def chain_of(name: str, rules: Iterator[str] | Sequence[str]) -> Iterator[str]:
    """The lines of a chain with these rules."""
    yield f"chain {name} {{"
    yield from rules
    yield "}"


def is_selected(pod: Pod, policy: Object) -> bool:
    """Whether the policy selects the pod."""
    return pod.namespace == policy["metadata"]["namespace"] and selects(policy["spec"]["podSelector"], pod.labels)


def selects(selector: Object, labels: Labels) -> bool:
    """Whether a label selector matches; an empty selector matches all labels."""
    wanted = selector.get("matchLabels", {})
    return all(labels.get(key) == value for key, value in wanted.items()) and all(
        OPERATORS[one["operator"]](labels.get(one["key"]), one.get("values", ()))
        for one in selector.get("matchExpressions", ())
    )
