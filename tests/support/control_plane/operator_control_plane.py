"""The control plane of the integration tests: an API server and its controllers."""

import base64
import contextlib
import http.client
import json
from collections import Counter, defaultdict
from datetime import datetime
from pathlib import Path

import yaml

from localcluster.binaries.cache import Binaries
from localcluster.control_plane.components import gang_gates, scheduler_command
from localcluster.control_plane.pki import write_kubeconfig
from localcluster.control_plane.standalone import ControlPlane
from localcluster.progress import Progress
from localcluster.settings import cache_directory
from support.api_client import BASE, Api, ApiError, install_definition, wait_for

OPERATOR_NAMESPACE = "horovodjob-system"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{OPERATOR_NAMESPACE}/leases/horovodjob-operator"
QUEUE_RIGHTS = BASE.parent / "components" / "kueue" / "rbac.yaml"
OPERATOR_USER = f"system:serviceaccount:{OPERATOR_NAMESPACE}:horovodjob-operator"
# Without the node controllers: they would treat the node of the tests, which does not exist, as lost.
CONTROLLERS = (
    "garbage-collector",
    "namespace",
    "serviceaccount",
    "serviceaccount-token",
    "clusterrole-aggregation",
    "resourcequota",
)
GANG_CONTROLLERS = ("podgroup-protection",)
BINARIES = Binaries(cache_directory())

# The defaults of kube-controller-manager, in requests a second: the tests start it with more.
DEFAULT_CLIENT_LIMITS = ("--kube-api-qps=20", "--kube-api-burst=30")


class OperatorControlPlane(ControlPlane):
    """A control plane without node controllers. Its API server and its controllers can be restarted."""

    def __init__(self) -> None:
        super().__init__(controllers=True)
        self._commands: dict[str, list[str]] = {}
        self._audited: dict[str, list[tuple[str, datetime]]] = defaultdict(list)
        """The operator's requests by namespace, up to the position in the audit log."""
        self._audit_read = 0

    def _run(self, name: str, command: list[str]) -> None:
        self._commands[name] = command
        if name == "kube-controller-manager":
            controllers = (*CONTROLLERS, *(GANG_CONTROLLERS if gang_gates(BINARIES) else ()))
            names = ",".join(f"{controller}-controller" for controller in controllers)
            self._commands[name] = [*command, f"--controllers={names}"]
        super()._run(name, self._commands[name])

    def restart_apiserver(self, *, without: tuple[str, ...] = ()) -> None:
        """Kills the API server and starts it again with the same command, except for some arguments.

        Tests use the fixture `restart_apiserver`, which resets the gaps of the watches.
        """
        self._end("kube-apiserver")
        super()._run("kube-apiserver", [word for word in self._commands["kube-apiserver"] if word not in without])

    def stop_apiserver(self) -> None:
        """Kills the API server, which `restart_apiserver` starts again."""
        self._end("kube-apiserver")

    def restart_controllers(self, *arguments: str) -> None:
        """Kills the controller manager and starts it again, with these arguments in addition to its own."""
        self._end("kube-controller-manager")
        super()._run("kube-controller-manager", [*self._commands["kube-controller-manager"], *arguments])

    def start_scheduler(self) -> None:
        """Starts the scheduler, which is built if it is missing. Without it, tests bind the pods themselves."""
        BINARIES.ensure(Progress(), ("kube-scheduler",))
        settings, user = self.settings, "kube-scheduler"
        path = settings.component_kubeconfig(user)
        write_kubeconfig(path, settings.pki, user=user, server=settings.server, name="cluster")
        super()._run(user, scheduler_command(BINARIES, settings, secure_port=0))

    def stop_scheduler(self) -> None:
        """Kills the scheduler."""
        self._end("kube-scheduler")

    def _end(self, name: str) -> None:
        process = self._processes[name]
        process.kill()
        process.wait()

    def requests(self, namespace: str) -> list[str]:
        """The operator's requests for this namespace, in order, as `verb resource`, and `(dry run)` behind those."""
        return [request for request, _ in self._audit()[namespace]]

    def all_requests(self) -> set[str]:
        """The kinds of the operator's requests, as `requests` returns them, for all namespaces and for none."""
        return {request for requests in self._audit().values() for request, _ in requests}

    def times(self, namespace: str, request: str) -> list[datetime]:
        """When the API server received each of these requests of the operator."""
        return [time for asked, time in self._audit()[namespace] if asked == request]

    def _audit(self) -> dict[str, list[tuple[str, datetime]]]:
        with self.audit_log.open("rb") as log:
            log.seek(self._audit_read)
            for line in log:
                if not line.endswith(b"\n"):
                    break  # the API server is writing it
                self._audit_read += len(line)
                entry = json.loads(line)
                if entry["user"].get("username") != OPERATOR_USER:
                    continue
                reference = entry.get("objectRef", {})
                sub = f"/{reference['subresource']}" if "subresource" in reference else ""
                time = datetime.fromisoformat(entry["requestReceivedTimestamp"])
                request = f"{entry['verb']} {reference.get('resource', '')}{sub}"
                request += " (dry run)" if "dryRun=All" in entry["requestURI"] else ""
                self._audited[reference.get("namespace", "")].append((request, time))
        return self._audited

    def calls(self, namespace: str) -> Counter[str]:
        """The number of requests of each kind."""
        return Counter(self.requests(namespace))


def is_ready(api: Api) -> bool:
    """Whether the API server is ready."""
    with contextlib.suppress(ApiError, OSError, http.client.HTTPException):
        return bool(api.get("/readyz")["message"] == "ok")
    return False


def install(api: Api) -> None:
    """Installs manifests/base and the rights on queues; the operator runs as a process of the tests."""
    install_definition(api)
    rendered = api.kubectl("kustomize", str(BASE)).stdout
    rendered += "---\n" + QUEUE_RIGHTS.read_text() + f"    namespace: {OPERATOR_NAMESPACE}\n"
    parts = [
        part for part in yaml.safe_load_all(rendered) if part["kind"] not in ("Deployment", "CustomResourceDefinition")
    ]
    done = api.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(parts))
    assert done.returncode == 0, done.stderr


def operator_kubeconfig(api: Api, path: Path, name: str = "horovodjob-operator") -> Path:
    """A kubeconfig of a service account, by default the operator's, with the rights of manifests/base and no others."""
    return account_kubeconfig(api, path, OPERATOR_NAMESPACE, name)


def account_kubeconfig(api: Api, path: Path, namespace: str, name: str) -> Path:
    """A kubeconfig with a token of a service account."""
    account = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}"
    answer = api.create(f"{account}/token", {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"})
    cluster = {
        "server": api.server,
        "certificate-authority-data": base64.b64encode(api.authority_file.read_bytes()).decode(),
    }
    configuration = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": answer["status"]["token"]}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
    }
    path.write_text(yaml.safe_dump(configuration))
    return path


def make_namespace(api: Api, name: str) -> None:
    """A namespace that holds its pods to Pod Security `restricted`, ready for pods."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
    api.create("/api/v1/namespaces", body)
    wait_for("its service account", lambda: api.find(f"/api/v1/namespaces/{name}/serviceaccounts/default"))
