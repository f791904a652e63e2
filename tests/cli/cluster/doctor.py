"""A cluster as an administrator installs it, and the rows of `hvj doctor` about it."""

import base64
import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from cli.cluster.nodes import Nodes
from cli.program import Result
from support.api_client import Api, ApiError, Object, machine_address, wait_for

OPERATOR = "horovodjob-operator"
DRIVER = "file.csi.azure.com"
SHARE = {"name": "myshare", "account": "mystorageaccount", "share": "myshare"}
ENFORCE = "pod-security.kubernetes.io/enforce"
SECRET = "azure-storage-account-mystorageaccount-secret"
Doctor = Callable[..., Result]


class ClusterSetup:
    """Creates the objects that an administrator installs."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api, self.namespace = api, namespace
        self.path = f"/api/v1/namespaces/{namespace}"
        self.nodes = Nodes(api, namespace)
        self.metrics = Metrics()
        self._made: list[str] = []

    def create(self, path: str, body: Object) -> Object:
        made = self.api.create(path, body)
        self._made.append(f"{path}/{made['metadata']['name']}")
        return made

    def add_driver(self, *nodes: str) -> None:
        """The CSI driver, registered on these nodes."""
        self.create("/apis/storage.k8s.io/v1/csidrivers", {"metadata": {"name": DRIVER}, "spec": {}})
        for name in nodes:
            drivers = [{"name": DRIVER, "nodeID": name, "topologyKeys": []}]
            self.create("/apis/storage.k8s.io/v1/csinodes", {"metadata": {"name": name}, "spec": {"drivers": drivers}})

    def add_daemon_set(self, name: str, image: str = "main:1") -> None:
        labels = {"app": name}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": image}]}}
        body = {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": labels}, "template": template}}
        self.create("/apis/apps/v1/namespaces/kube-system/daemonsets", body)

    def set_secret(self, **values: str) -> None:
        """The Secret of the storage account has these values and no others."""
        data = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
        body = {"metadata": {"name": SECRET}, "data": data}
        path = f"{self.path}/secrets"
        if self.api.find(f"{path}/{SECRET}"):
            self.api.replace(f"{path}/{SECRET}", body)
        else:
            self.create(path, body)

    def add_operator(self) -> str:
        """The operator's Deployment, with an image for jobs, its pod, which answers /metrics here; the pod's name."""
        labels = {"app.kubernetes.io/name": OPERATOR}
        annotations = {"prometheus.io/port": str(self.metrics.server_address[1])}
        defaults = {"name": "HOROVODJOB_OPERATOR_JOB_DEFAULTS", "value": '{"image":"trainer:1"}'}
        containers = {"containers": [{"name": "operator", "image": "operator:1", "env": [defaults]}]}
        template = {"metadata": {"labels": labels, "annotations": annotations}, "spec": containers}
        spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
        deployments = f"/apis/apps/v1/namespaces/{self.namespace}/deployments"
        self.create(deployments, {"metadata": {"name": OPERATOR, "labels": labels}, "spec": spec})
        selector = f"{self.path}/pods?labelSelector=app.kubernetes.io/name={OPERATOR}"
        (pod,) = wait_for("the operator's pod", lambda: self.api.get(selector)["items"])
        return str(pod["metadata"]["name"])

    def renew_lease(self, holder: str, silent_for: timedelta = -timedelta(hours=1)) -> None:
        """The Lease of the operator, renewed this long ago; by default it does not become old during a test."""
        renewed = (datetime.now(UTC) - silent_for).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": holder, "leaseDurationSeconds": 10, "renewTime": renewed}
        leases = f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases"
        if self.api.find(f"{leases}/{OPERATOR}"):
            self.api.patch(f"{leases}/{OPERATOR}", {"spec": spec})
        else:
            self.create(leases, {"metadata": {"name": OPERATOR}, "spec": spec})

    def make_available(self, pod: str) -> None:
        """The status of a pod that is Ready, as the kubelet writes it."""
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        addresses = {"podIP": machine_address(), "podIPs": [{"ip": machine_address()}]}
        status = {"phase": "Running", "conditions": [ready], **addresses}
        self.api.patch(f"{self.path}/pods/{pod}/status", {"status": status})
        deployment = f"/apis/apps/v1/namespaces/{self.namespace}/deployments/{OPERATOR}"
        wait_for(
            "the Deployment to be available",
            lambda: self.api.get(deployment).get("status", {}).get("availableReplicas"),
        )

    def delete_last(self) -> None:
        self.api.delete(self._made.pop())

    def delete_all(self) -> None:
        self.metrics.shutdown()
        self.nodes.delete_all()
        for path in reversed(self._made):
            try:
                self.api.delete(path)
            except ApiError as error:
                if error.status != 404:
                    raise


class Metrics(ThreadingHTTPServer):
    """The operator's metrics endpoint, which the API server proxies; `statuses` has those of paths."""

    watched, watch_age = "pods", 2.0

    def __init__(self) -> None:
        self.statuses: dict[str, int] = {}
        super().__init__(("0.0.0.0", 0), MetricsHandler)
        threading.Thread(target=self.serve_forever, daemon=True).start()


class MetricsHandler(BaseHTTPRequestHandler):
    """Answers with the age of a watch."""

    server: Metrics

    def do_GET(self) -> None:
        age = f'{{resource="{self.server.watched}"}} {self.server.watch_age}'
        self.send_response(self.server.statuses.get(self.path, 200 if self.path == "/metrics" else 404))
        self.end_headers()
        self.wfile.write(f"horovodjob_operator_watch_age_seconds{age}\n".encode())

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        pass


def records(result: Result) -> list[Object]:
    """The output, also with exit code 1."""
    assert "Traceback" not in result.stderr, result.stderr
    found: list[Object] = json.loads(result.stdout)
    return found


def rows(result: Result, check: str) -> list[tuple[str, str]]:
    """Result and message of each row of a check."""
    return [(each["result"], each["message"]) for each in records(result) if each["check"] == check]


def results(result: Result, check: str) -> list[str]:
    """The result of each row of a check."""
    return [found for found, _ in rows(result, check)]


def failed_row(result: Result, check: str) -> Object:
    """The only row of a check, which fails and contains a command."""
    (finding,) = [each for each in records(result) if each["check"] == check and each["result"] == "blocks"]
    assert finding["command"]
    assert result.code == 1
    return finding
