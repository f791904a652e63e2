"""What NetworkPolicies do on the local cluster: packets between real pods get through, or they do not."""

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from local_cluster.connectivity import HERE, PORTS, THERE, Pod, World, is_let_in_at_once, reaches
from local_cluster.scratch import CLUSTER, command, eventually, kill, kubectl, process_ids, wait_until_reported
from localcluster.settings import API_PORT

pytestmark = pytest.mark.e2e

FRIEND: dict[str, Any] = {"podSelector": {"matchLabels": {"role": "friend"}}}
NO_ROLE = {
    "podSelector": {
        "matchExpressions": [
            {"key": "role", "operator": "DoesNotExist"},
            {"key": "role", "operator": "NotIn", "values": ["other"]},
        ]
    }
}
BLUE = {"namespaceSelector": {"matchLabels": {"team": "blue"}}}
ROLES = [{"key": "role", "operator": "In", "values": ["friend", "ally"]}]
NOT_THERE = [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [THERE]}]


def everybody(*ports: int) -> dict[str, set[int]]:
    """That every client, those that are probes apart, reaches just these ports."""
    return {name: set(ports) for name in ("friend", "stranger", "ally", "outside")}


# Rules of a policy for the server, and who then reaches which of its ports.
CASES: dict[str, tuple[list[Any], dict[str, set[int]]]] = {
    "nobody": ([], {}),
    "everybody": ([{}], everybody(*PORTS)),
    "pods": ([{"from": [FRIEND]}], {"friend": PORTS}),
    "pods-by-expressions": ([{"from": [{"podSelector": {"matchExpressions": ROLES}}]}], {"friend": PORTS}),
    "pods-without-a-label": ([{"from": [NO_ROLE]}], {"stranger": PORTS}),
    "namespaces": ([{"from": [BLUE]}], {"ally": PORTS}),
    "pods-of-namespaces": ([{"from": [BLUE | FRIEND]}], {}),
    "pods-of-all-namespaces": (
        [{"from": [{"namespaceSelector": {}, "podSelector": {"matchExpressions": ROLES}}]}],
        {"friend": PORTS, "ally": PORTS},
    ),
    "all-of-a-namespace": (
        [{"from": [{"namespaceSelector": {"matchExpressions": NOT_THERE}}]}],
        {"friend": PORTS, "stranger": PORTS},
    ),
    "one-or-the-other": ([{"from": [FRIEND, BLUE]}], {"friend": PORTS, "ally": PORTS}),
    "port": ([{"ports": [{"port": 80}]}], everybody(80)),
    "ports": ([{"ports": [{"port": 80, "endPort": 90}]}], everybody(80, 81)),
    "named-port": ([{"ports": [{"port": "tls"}]}], everybody(443)),
    "name-of-no-port": ([{"ports": [{"port": "other"}]}], {}),
    "protocol": ([{"ports": [{"protocol": "UDP"}]}], {}),
    "peers-at-ports": (
        [
            {"from": [FRIEND], "ports": [{"port": 80}, {"port": "tls"}]},
            {"from": [BLUE], "ports": [{"protocol": "TCP"}]},
        ],
        {"friend": {80, 443}, "ally": PORTS},
    ),
}


@pytest.fixture(scope="module")
def all_pods(_machine: None) -> Iterator[World]:
    command("up")
    made = World()
    yield made
    for server in made.listening:
        server.kill()
        server.wait()


@pytest.fixture
def world(all_pods: World) -> Iterator[World]:
    """Pods without any policy."""
    yield all_pods
    for namespace in (HERE, THERE):
        kubectl("--namespace", namespace, "delete", "networkpolicies", "--all")


def apply(name: str, *, namespace: str = HERE, **spec: Any) -> None:
    """A policy for the server, unless `spec` says for whom."""
    body = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"podSelector": {"matchLabels": {"app": "server"}}, **spec},
    }
    kubectl("apply", "--filename=-", stdin=json.dumps(body))


@pytest.mark.parametrize("case", CASES)
def test_only_what_a_policy_allows_comes_in(world: World, case: str) -> None:
    rules, expected = CASES[case]
    if expected == everybody(*PORTS):  # which would be so without any policy
        apply("policy", ingress=[])
        assert world.come_to({})
    elif not expected:
        assert world.come_to(everybody(*PORTS))
    apply("policy", ingress=rules)
    assert world.come_to(expected)


def test_addresses_are_allowed_but_for_exceptions(world: World) -> None:
    elsewhere = CLUSTER.pod_cidr.removesuffix("0.0/16") + "200.0"
    exceptions = [f"{world.friend.address}/32", f"{elsewhere}/24", f"{elsewhere}/25"]
    apply("policy", ingress=[{"from": [{"ipBlock": {"cidr": CLUSTER.pod_cidr, "except": exceptions}}]}])
    assert world.come_to({"stranger": PORTS, "ally": PORTS})
    apply("policy", ingress=[{"from": [{"ipBlock": {"cidr": "0.0.0.0/0"}}, {"ipBlock": {"cidr": "::/0"}}]}])
    assert world.come_to(everybody(*PORTS))


def test_policies_add_up_until_they_are_deleted(world: World) -> None:
    apply("first", ingress=[{"from": [FRIEND]}])
    apply("second", ingress=[{"from": [BLUE], "ports": [{"port": 80}]}])
    apply("for-others", podSelector={"matchLabels": {"app": "other"}}, policyTypes=["Ingress"])
    apply("elsewhere", namespace=THERE, podSelector={}, policyTypes=["Ingress"])
    assert world.come_to({"friend": PORTS, "ally": {80}})
    kubectl("--namespace", HERE, "delete", "networkpolicy", "first", "second")
    assert world.come_to(everybody(*PORTS))


def test_a_pod_reaches_itself_through_its_service(world: World) -> None:
    kubectl("--namespace", HERE, "expose", "pod", "server", "--port=80")
    address = kubectl("--namespace", HERE, "get", "service", "server", "--output=jsonpath={.spec.clusterIP}")
    assert eventually(lambda: reaches(world.friend, address, 80))
    apply("policy", policyTypes=["Ingress", "Egress"])
    assert world.come_to({})
    assert not reaches(world.friend, address, 80)
    assert eventually(lambda: reaches(world.server, address, 80))


def test_a_change_of_labels_counts_at_once(world: World) -> None:
    apply("policy", ingress=[{"from": [FRIEND]}, {"from": [{"namespaceSelector": {"matchLabels": {"new": "yes"}}}]}])
    assert world.come_to({"friend": PORTS})
    kubectl("--namespace", HERE, "label", "pod", "stranger", "role=friend")
    kubectl("label", "namespace", THERE, "new=yes")
    assert world.come_to({"friend": PORTS, "stranger": PORTS, "ally": PORTS})
    kubectl("--namespace", HERE, "label", "pod", "stranger", "role-")
    assert world.come_to({"friend": PORTS, "ally": PORTS})


def test_a_new_pod_is_let_in_and_shielded_as_soon_as_its_address_is_known(world: World) -> None:
    apply("policy", ingress=[{"from": [FRIEND]}])
    assert world.come_to({"friend": PORTS})
    late = Pod(HERE, "late", {"role": "friend", "app": "server"})
    assert is_let_in_at_once(late, world.server.address, 80)
    world.listen(late)
    assert set(world.reached(late)) <= {"friend", "node"}
    assert is_let_in_at_once(world.friend, late.address, *PORTS)
    kubectl("--namespace", HERE, "delete", "pod", "late")


def test_only_what_a_policy_allows_goes_out(world: World) -> None:
    api, dns = (CLUSTER.api_service_address, 443), (CLUSTER.dns_address, 53)
    assert eventually(lambda: reaches(world.friend, *api))
    server = {"podSelector": {"matchLabels": {"app": "server"}}}
    # Answers come back to whom nobody may call.
    apply("out", **FRIEND, policyTypes=["Ingress", "Egress"], egress=[{"to": [server], "ports": [{"port": 80}]}])
    assert world.come_to({**everybody(*PORTS), "friend": {80}})
    assert not any(reaches(world.friend, *service) for service in (api, dns))
    # What may go out must be let in as well.
    apply("in", ingress=[{"ports": [{"port": "tls"}]}])
    assert world.come_to({name: ports for name, ports in everybody(443).items() if name != "friend"})
    names = {"namespaceSelector": {}, "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}}}
    node = {"ipBlock": {"cidr": CLUSTER.node_cidr}}
    rules = [
        {"to": [server], "ports": [{"port": "tls"}]},
        {"to": [names], "ports": [{"port": "dns-tcp"}]},
        {"to": [node], "ports": [{"port": API_PORT}]},
    ]
    apply("out", **FRIEND, policyTypes=["Egress"], egress=rules)
    assert world.come_to(everybody(443))
    assert eventually(lambda: all(reaches(world.friend, *service) for service in (api, dns)))


def test_what_was_enforced_stays_so_without_the_engine(world: World) -> None:
    apply("policy", ingress=[])
    assert world.come_to({})
    kill("policy-engine")
    wait_until_reported("policy-engine does not run")
    assert set(world.reached(world.server)) <= {"node"}
    apply("policy", ingress=[{"from": [FRIEND]}])
    command("up")
    assert world.come_to({"friend": PORTS})


def test_the_engine_goes_on_after_an_absence_of_the_api_server(world: World) -> None:
    engine = process_ids()["policy-engine"]
    kill("etcd", "kube-apiserver")
    command("up")
    assert process_ids()["policy-engine"] == engine
    apply("policy", ingress=[{"from": [FRIEND]}])
    assert world.come_to({"friend": PORTS})


def test_a_table_that_somebody_removed_is_missed_and_made_anew(world: World) -> None:
    apply("policy", ingress=[{"from": [FRIEND]}])
    assert world.come_to({"friend": PORTS})
    flush = ["nsenter", f"--net={CLUSTER.netns}", "--", "nft", "delete", "table", "ip", "network-policy"]
    subprocess.run(flush, check=True)
    wait_until_reported("no NetworkPolicy is enforced")
    command("up")
    assert world.come_to({"friend": PORTS})
