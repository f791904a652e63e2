"""NetworkPolicies on the local cluster, tested by connections between real pods."""

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from local_cluster.connectivity import HERE, LISTEN, PORTS, THERE, Pod, PolicyPods, connects_at_once, reaches
from local_cluster.scratch import CLUSTER, command, eventually, kill, kubectl, process_ids, wait_until_reported
from localcluster.settings import API_PORT
from support.documented_policy import documented_policy

pytestmark = pytest.mark.e2e

CLIENT: dict[str, Any] = {"podSelector": {"matchLabels": {"role": "client"}}}
NO_ROLE = {
    "podSelector": {
        "matchExpressions": [
            {"key": "role", "operator": "DoesNotExist"},
            {"key": "role", "operator": "NotIn", "values": ["other"]},
        ]
    }
}
BLUE = {"namespaceSelector": {"matchLabels": {"team": "blue"}}}
ROLES = [{"key": "role", "operator": "In", "values": ["client", "remote"]}]
NOT_THERE = [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [THERE]}]


def all_clients(*ports: int) -> dict[str, set[int]]:
    """All clients except the node, whose probes are always allowed, reach exactly these ports."""
    return {name: set(ports) for name in ("client", "unlabelled", "remote", "outside")}


# Rules of a policy for the server, and the ports that each client then reaches.
CASES: dict[str, tuple[list[Any], dict[str, set[int]]]] = {
    "no-client": ([], {}),
    "pods": ([{"from": [CLIENT]}], {"client": PORTS}),
    "pods-without-a-label": ([{"from": [NO_ROLE]}], {"unlabelled": PORTS}),
    "pods-of-all-namespaces": (
        [{"from": [{"namespaceSelector": {}, "podSelector": {"matchExpressions": ROLES}}]}],
        {"client": PORTS, "remote": PORTS},
    ),
    "all-of-a-namespace": (
        [{"from": [{"namespaceSelector": {"matchExpressions": NOT_THERE}}]}],
        {"client": PORTS, "unlabelled": PORTS},
    ),
    "one-or-the-other": ([{"from": [CLIENT, BLUE]}], {"client": PORTS, "remote": PORTS}),
    "port": ([{"ports": [{"port": 80}]}], all_clients(80)),
    "ports": ([{"ports": [{"port": 80, "endPort": 90}]}], all_clients(80, 81)),
    "named-port": ([{"ports": [{"port": "tls"}]}], all_clients(443)),
    "protocol": ([{"ports": [{"protocol": "UDP"}]}], {}),
    "peers-at-ports": (
        [
            {"from": [CLIENT], "ports": [{"port": 80}, {"port": "tls"}]},
            {"from": [BLUE], "ports": [{"protocol": "TCP"}]},
        ],
        {"client": {80, 443}, "remote": PORTS},
    ),
}


@pytest.fixture(scope="module")
def all_pods(_machine: None) -> Iterator[PolicyPods]:
    command("up")
    pods = PolicyPods()
    yield pods
    for server in pods.listening:
        server.kill()
        server.wait()


@pytest.fixture
def pods(all_pods: PolicyPods) -> Iterator[PolicyPods]:
    """Pods without any policy."""
    yield all_pods
    for namespace in (HERE, THERE):
        kubectl("--namespace", namespace, "delete", "networkpolicies", "--all")


def apply(name: str, *, namespace: str = HERE, **spec: Any) -> None:
    """Applies a policy for the server, or for the pods that `spec` selects."""
    body = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"podSelector": {"matchLabels": {"app": "server"}}, **spec},
    }
    kubectl("apply", "--filename=-", stdin=json.dumps(body))


@pytest.mark.parametrize("case", CASES)
def test_ingress_is_limited_to_the_rules_of_a_policy(pods: PolicyPods, case: str) -> None:
    rules, expected = CASES[case]
    if not expected:
        assert pods.reachability_becomes(all_clients(*PORTS))
    apply("policy", ingress=rules)
    assert pods.reachability_becomes(expected)


def test_addresses_are_allowed_but_for_exceptions(pods: PolicyPods) -> None:
    elsewhere = CLUSTER.pod_cidr.removesuffix("0.0/16") + "200.0"
    exceptions = [f"{pods.client.address}/32", f"{elsewhere}/24", f"{elsewhere}/25"]
    apply("policy", ingress=[{"from": [{"ipBlock": {"cidr": CLUSTER.pod_cidr, "except": exceptions}}]}])
    assert pods.reachability_becomes({"unlabelled": PORTS, "remote": PORTS})
    apply("policy", ingress=[{"from": [{"ipBlock": {"cidr": "0.0.0.0/0"}}, {"ipBlock": {"cidr": "::/0"}}]}])
    assert pods.reachability_becomes(all_clients(*PORTS))


def test_policies_add_up_until_they_are_deleted(pods: PolicyPods) -> None:
    apply("first", ingress=[{"from": [CLIENT]}])
    apply("second", ingress=[{"from": [BLUE], "ports": [{"port": 80}]}])
    apply("for-others", podSelector={"matchLabels": {"app": "other"}}, policyTypes=["Ingress"])
    apply("elsewhere", namespace=THERE, podSelector={}, policyTypes=["Ingress"])
    assert pods.reachability_becomes({"client": PORTS, "remote": {80}})
    kubectl("--namespace", HERE, "delete", "networkpolicy", "first", "second")
    assert pods.reachability_becomes(all_clients(*PORTS))


def test_a_pod_reaches_itself_through_its_service(pods: PolicyPods) -> None:
    kubectl("--namespace", HERE, "expose", "pod", "server", "--port=80")
    address = kubectl("--namespace", HERE, "get", "service", "server", "--output=jsonpath={.spec.clusterIP}")
    assert eventually(lambda: reaches(pods.client, address, 80))
    apply("policy", policyTypes=["Ingress", "Egress"])
    assert pods.reachability_becomes({})
    assert not reaches(pods.client, address, 80)
    assert eventually(lambda: reaches(pods.server, address, 80))


def test_a_change_of_labels_changes_the_rules(pods: PolicyPods) -> None:
    apply("policy", ingress=[{"from": [CLIENT]}, {"from": [{"namespaceSelector": {"matchLabels": {"new": "yes"}}}]}])
    assert pods.reachability_becomes({"client": PORTS})
    kubectl("--namespace", HERE, "label", "pod", "unlabelled", "role=client")
    kubectl("label", "namespace", THERE, "new=yes")
    assert pods.reachability_becomes({"client": PORTS, "unlabelled": PORTS, "remote": PORTS})
    kubectl("--namespace", HERE, "label", "pod", "unlabelled", "role-")
    assert pods.reachability_becomes({"client": PORTS, "remote": PORTS})


def test_policies_apply_to_a_new_pod_from_its_first_packet(pods: PolicyPods) -> None:
    apply("policy", ingress=[{"from": [CLIENT]}])
    assert pods.reachability_becomes({"client": PORTS})
    late = Pod(HERE, "late", {"role": "client", "app": "server"})
    assert connects_at_once(late, pods.server.address, 80)
    pods.listen(late)
    assert set(pods.reached(late)) <= {"client", "node"}
    assert connects_at_once(pods.client, late.address, *PORTS)
    kubectl("--namespace", HERE, "delete", "pod", "late")


def test_egress_is_limited_to_the_rules_of_a_policy(pods: PolicyPods) -> None:
    api, dns = (CLUSTER.api_service_address, 443), (CLUSTER.dns_address, 53)
    assert eventually(lambda: reaches(pods.client, *api))
    server = {"podSelector": {"matchLabels": {"app": "server"}}}
    # The answers to the client are not ingress.
    apply("out", **CLIENT, policyTypes=["Ingress", "Egress"], egress=[{"to": [server], "ports": [{"port": 80}]}])
    assert pods.reachability_becomes({**all_clients(*PORTS), "client": {80}})
    assert not any(reaches(pods.client, *service) for service in (api, dns))
    # Egress to a pod also requires ingress to it.
    apply("in", ingress=[{"ports": [{"port": "tls"}]}])
    assert pods.reachability_becomes({name: ports for name, ports in all_clients(443).items() if name != "client"})
    names = {"namespaceSelector": {}, "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}}}
    node = {"ipBlock": {"cidr": CLUSTER.node_cidr}}
    rules = [
        {"to": [server], "ports": [{"port": "tls"}]},
        {"to": [names], "ports": [{"port": "dns-tcp"}]},
        {"to": [node], "ports": [{"port": API_PORT}]},
    ]
    apply("out", **CLIENT, policyTypes=["Egress"], egress=rules)
    assert pods.reachability_becomes(all_clients(443))
    assert eventually(lambda: all(reaches(pods.client, *service) for service in (api, dns)))


@pytest.fixture
def dns_of_node(all_pods: PolicyPods) -> Iterator[tuple[str, int]]:
    """A server at the address at which LocalDNS of AKS answers pods, in the network of the node."""
    address, node = "169.254.10.11", all_pods.clients["node"]
    subprocess.run([*node, "ip", "address", "add", f"{address}/32", "dev", "lo"], check=True)
    program = LISTEN.replace('("", int(port))', f'("{address}", int(port))')
    with subprocess.Popen([*node, sys.executable, "-c", program, "53"], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        assert server.stdout.readline() == "listening\n"
        yield address, 53
        server.kill()
    subprocess.run([*node, "ip", "address", "delete", f"{address}/32", "dev", "lo"], check=True)


def test_the_documented_policy_allows_dns_of_the_cluster_and_of_the_node(
    pods: PolicyPods, dns_of_node: tuple[str, int]
) -> None:
    dns = (CLUSTER.dns_address, 53)
    assert eventually(lambda: all(reaches(pods.client, *place) for place in (dns, dns_of_node)))
    apply("out", **CLIENT, policyTypes=["Egress"], egress=[])
    assert eventually(lambda: not any(reaches(pods.client, *place) for place in (dns, dns_of_node)))
    apply("out", **documented_policy("what-jobs-need")["spec"] | CLIENT)
    assert eventually(lambda: all(reaches(pods.client, *place) for place in (dns, dns_of_node)))
    assert not reaches(pods.client, pods.server.address, 80)


def test_policies_stay_in_force_without_the_engine_and_without_the_api_server(pods: PolicyPods) -> None:
    apply("policy", ingress=[])
    assert pods.reachability_becomes({})
    kill("policy-engine")
    wait_until_reported("policy-engine does not run")
    assert set(pods.reached(pods.server)) <= {"node"}
    apply("policy", ingress=[{"from": [CLIENT]}])
    command("up")
    assert pods.reachability_becomes({"client": PORTS})
    engine = process_ids()["policy-engine"]
    kill("etcd", "kube-apiserver")
    command("up")
    assert process_ids()["policy-engine"] == engine
    apply("policy", ingress=[{"from": [BLUE]}])
    assert pods.reachability_becomes({"remote": PORTS})
    flush = ["nsenter", f"--net={CLUSTER.netns}", "--", "nft", "delete", "table", "ip", "network-policy"]
    subprocess.run(flush, check=True)
    wait_until_reported("no NetworkPolicy is enforced")
    command("up")
    assert pods.reachability_becomes({"remote": PORTS})
