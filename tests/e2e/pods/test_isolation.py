"""Network isolation of a job's pods, and access to its ssh servers."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator

import pytest

from e2e.access import wait_for
from e2e.namespace import Namespace
from horovodjob_operator.domain.names import KEYS_PREFIX
from support.documented_policy import documented_policy

SSH_PORT, METRICS_PORT = 2222, 9100
ONCE = {"backoffLimit": 0}
API_SERVER = "kubernetes.default.svc.cluster.local"
# A rank that listens on a port, for example for metrics.
LISTENING = f"getent hosts {API_SERVER} && exec python3 -m http.server {METRICS_PORT}"
# An isolated address does not respond at all: the attempt is longer than the second after which a lost
# packet is sent again. A reachable address is tried until it responds.
CONNECT = """
import concurrent.futures, socket, sys
def answers(place):
    host, port = place.split(":")
    try:
        socket.create_connection((host, int(port)), timeout=2.5).close()
    except OSError:
        return False
    return True
with concurrent.futures.ThreadPoolExecutor() as threads:
    print(*(place for place, yes in zip(sys.argv[1:], threads.map(answers, sys.argv[1:])) if yes))
"""
REPORTING = f"""
import json, os, socket, urllib.request
if os.environ["OMPI_COMM_WORLD_RANK"] == "0":
    token = open(os.environ["HOROVODJOB_PROGRESS_TOKEN_FILE"]).read()
    report = json.dumps({{"attempt": 1, "progress": 0.5}}).encode()
    headers = {{"Authorization": f"Bearer {{token}}"}}
    request = urllib.request.Request(os.environ["HOROVODJOB_PROGRESS_URL"], report, headers)
    print("reported", urllib.request.urlopen(request, timeout=60).status)
    try:
        socket.create_connection(("{API_SERVER}", 443), timeout=2.5)
    except TimeoutError:
        print("kept in")
"""


class Neighbours:
    """An isolated job, one without isolation, and a client in each of two namespaces."""

    def __init__(self, near: Namespace, far: Namespace) -> None:
        self.near, self.far = near, far
        isolated = near.job("isolated", LISTENING, worker={"replicas": 2})
        near.apply(isolated, near.job("open", LISTENING, network={"isolate": False}), near.job("other", LISTENING))
        far.apply(far.job("far", LISTENING))
        for namespace, job in ((near, "isolated"), (near, "open"), (near, "other"), (far, "far")):
            namespace.wait_phase(job, "Running")
        for pod in ("isolated-worker-0", "isolated-worker-1", "open-worker-0"):
            listening = self.places(pod)
            wait_for(f"{pod} to listen", lambda pod=pod, places=listening: reachable(near, pod, places) == places)  # type: ignore[misc]

    def address(self, pod: str) -> str:
        """Address of a pod of the two jobs."""
        found = self.near.pod(pod)
        assert found
        return str(found["status"]["podIP"])

    def places(self, pod: str) -> set[str]:
        """Addresses of a worker: its ssh server and its rank."""
        return {f"{self.address(pod)}:{port}" for port in (SSH_PORT, METRICS_PORT)}


def reachable(namespace: Namespace, pod: str, places: set[str]) -> set[str]:
    """The addresses that a pod can connect to."""
    return set(namespace.exec(pod, "python3", "-c", CONNECT, *places).split())


@pytest.fixture(scope="module")
def neighbours(new_namespace: Callable[..., Namespace]) -> Iterator[Neighbours]:
    near, far = new_namespace("near"), new_namespace("far")
    yield Neighbours(near, far)
    for namespace in (near, far):
        namespace.remove()


def assert_reached(namespace: Namespace, pod: str, open_places: set[str], default_deny_namespace: set[str]) -> None:
    """Asserts that the pod can connect to the open addresses, and to none of the closed ones."""
    wait_for(f"{pod} to reach {open_places}", lambda: reachable(namespace, pod, open_places) == open_places)
    assert reachable(namespace, pod, default_deny_namespace) == set(), pod


def test_only_its_own_pods_reach_an_isolated_job(neighbours: Neighbours) -> None:
    isolated, open_to_all = neighbours.places("isolated-worker-0"), neighbours.places("open-worker-0")
    for namespace, pod in (
        (neighbours.near, "other-worker-0"),
        (neighbours.near, "other-launcher"),
        (neighbours.far, "far-worker-0"),
    ):
        assert_reached(namespace, pod, open_to_all, isolated)
    for pod in ("isolated-worker-1", "isolated-launcher"):
        assert_reached(neighbours.near, pod, isolated, set())


def test_ranks_of_an_isolated_job_can_use_dns(neighbours: Neighbours) -> None:
    address = neighbours.near.api.request("GET", "/api/v1/namespaces/default/services/kubernetes")["spec"]["clusterIP"]

    def answers() -> list[str]:
        lines = neighbours.near.output("isolated")
        return [line.split()[0] for line in lines if API_SERVER in line]

    wait_for("both ranks to know the API server's address", lambda: answers() == [address] * 2)


def test_a_worker_accepts_only_the_keys_of_its_job_and_has_the_host_key_of_the_job(neighbours: Neighbours) -> None:
    """The launcher of another job, with that job's keys, connects to a worker that it can reach."""
    uid = neighbours.near.find("open")["metadata"]["uid"]
    keys = neighbours.near.api.request("GET", f"{neighbours.near.core}/secrets/{KEYS_PREFIX}{uid}")["data"]
    for file in ("id_ed25519", "known_hosts"):
        content = base64.b64decode(keys[file]).decode()
        neighbours.near.exec("other-launcher", "sh", "-c", f'umask 077; printf %s "$1" >/tmp/{file}', "sh", content)

    def call(*options: str) -> str:
        command = (
            "ssh",
            "-F",
            "/run/horovodjob/ssh_config",
            *options,
            neighbours.address("open-worker-0"),
            "echo",
            "come in",
        )
        return neighbours.near.exec("other-launcher", "sh", "-c", '"$@" 2>&1 || :', "sh", *command)

    its_key, its_host_key = ("-i", "/tmp/id_ed25519"), ("-o", "UserKnownHostsFile=/tmp/known_hosts")
    assert "Permission denied (publickey)" in call(*its_host_key)
    assert "Host key verification failed" in call(*its_key)
    assert call(*its_key, *its_host_key) == "come in\n"


def test_the_documented_policy_allows_a_scraper_at_one_port(neighbours: Neighbours) -> None:
    ssh, metrics = (f"{neighbours.address('isolated-worker-0')}:{port}" for port in (SSH_PORT, METRICS_PORT))
    policy = documented_policy("metrics-of-ranks")
    (peer,) = policy["spec"]["ingress"][0]["from"]
    peer["namespaceSelector"]["matchLabels"] = {"kubernetes.io/metadata.name": neighbours.far.name}
    neighbours.near.apply(policy)
    assert_reached(neighbours.far, "far-worker-0", {metrics}, {ssh})
    assert_reached(neighbours.near, "other-worker-0", set(), {ssh, metrics})


@pytest.fixture(scope="module")
def default_deny_namespace(new_namespace: Callable[..., Namespace]) -> Iterator[Namespace]:
    """A namespace with a default-deny policy for ingress and egress."""
    made = new_namespace("closed")
    spec = {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    made.apply(
        {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "all"}, "spec": spec}
    )
    yield made
    made.remove()


def test_a_worker_without_ssh_is_reported(default_deny_namespace: Namespace) -> None:
    # The timeout of the launcher is five minutes; only the template can shorten it.
    env = [{"name": "HOROVODJOB_SSH_TIMEOUT", "value": "1"}]
    template = {"spec": {"containers": [{"name": "launcher", "env": env}]}}
    default_deny_namespace.apply(
        default_deny_namespace.job(
            "shut-in", "true", worker={"replicas": 2}, launcher={"template": template}, runPolicy=ONCE
        )
    )
    status = default_deny_namespace.wait_phase("shut-in", "Failed")
    (error,) = status["errors"]
    assert (error["reason"], error["pod"], error["container"]) == ("SshUnavailable", "shut-in-launcher", "launcher")
    workers = [pod for pod in default_deny_namespace.pods_ever("shut-in") if "worker" in pod["metadata"]["name"]]
    expected = {f"worker {pod['status']['podIP']} did not answer over ssh within 1 s: " for pod in workers}
    assert any(words in error["message"] for words in expected), (expected, error)
    assert "timed out" in error["message"]
    assert "SshUnavailable: " in default_deny_namespace.condition("shut-in", "Failed")["message"]


def test_the_documented_policy_allows_the_egress_that_jobs_need(default_deny_namespace: Namespace) -> None:
    default_deny_namespace.apply(documented_policy("what-jobs-need"))
    default_deny_namespace.apply(
        default_deny_namespace.job("kept", ["python3", "-c", REPORTING], worker={"replicas": 2})
    )
    status = default_deny_namespace.wait_phase("kept", "Succeeded")
    assert status["training"]["percent"] == "50%"
    assert default_deny_namespace.output("kept") == ["reported 204", "kept in"]
