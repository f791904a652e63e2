"""The control plane that the operator is run against: an API server and its controllers."""

import contextlib
import http.client
import json
from collections import Counter, defaultdict
from datetime import datetime
from pathlib import Path

import yaml

from api.client import BASE, Api, ApiError, install_definition, wait_for
from localcluster.apiserver import ControlPlane

OPERATOR_NAMESPACE = "horovodjob-system"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{OPERATOR_NAMESPACE}/leases/horovodjob-operator"
OPERATOR_USER = f"system:serviceaccount:{OPERATOR_NAMESPACE}:horovodjob-operator"
# Those that look at nodes would mistake the node that is not there for one that is lost.
CONTROLLERS = ",".join(
    f"{name}-controller"
    for name in ("garbage-collector", "namespace", "serviceaccount", "resourcequota", "podgroup-protection")
)


class OperatorControlPlane(ControlPlane):
    """A control plane without the controllers that would look after nodes, whose API server can be restarted."""

    def __init__(self) -> None:
        super().__init__(controllers=True)
        self._commands: dict[str, list[str]] = {}
        self._audited: dict[str, list[tuple[str, datetime]]] = defaultdict(list)
        """The operator's requests by namespace, as far as the log has been read."""
        self._audit_read = 0

    def _run(self, name: str, command: list[str]) -> None:
        extra = [f"--controllers={CONTROLLERS}"] if name == "kube-controller-manager" else []
        self._commands[name] = [*command, *extra]
        super()._run(name, self._commands[name])

    def restart_apiserver(self, *, without: tuple[str, ...] = ()) -> None:
        """Kills the API server and starts it again with the same command, but for some arguments.

        Tests use the fixture `restart_apiserver`, which forgives the watches what they miss.
        """
        process = self._processes["kube-apiserver"]
        process.kill()
        process.wait()
        super()._run("kube-apiserver", [word for word in self._commands["kube-apiserver"] if word not in without])

    def requests(self, namespace: str) -> list[str]:
        """What the operator has asked of the API server about this namespace, in order, as `verb resource`."""
        return [request for request, _ in self._audit()[namespace]]

    def times(self, namespace: str, request: str) -> list[datetime]:
        """When the API server got each of these requests of the operator."""
        return [time for asked, time in self._audit()[namespace] if asked == request]

    def _audit(self) -> dict[str, list[tuple[str, datetime]]]:
        with self.audit_log.open("rb") as log:
            log.seek(self._audit_read)
            for line in log:
                if not line.endswith(b"\n"):
                    break  # the API server is writing it
                self._audit_read += len(line)
                entry = json.loads(line)
                if entry["user"]["username"] != OPERATOR_USER:
                    continue
                reference = entry.get("objectRef", {})
                sub = f"/{reference['subresource']}" if "subresource" in reference else ""
                time = datetime.fromisoformat(entry["requestReceivedTimestamp"])
                request = f"{entry['verb']} {reference.get('resource', '')}{sub}"
                self._audited[reference.get("namespace", "")].append((request, time))
        return self._audited

    def calls(self, namespace: str) -> Counter[str]:
        """How often each of them was asked."""
        return Counter(self.requests(namespace))


def served(api: Api) -> bool:
    """Whether the API server answers and says that it is ready."""
    with contextlib.suppress(ApiError, OSError, http.client.HTTPException):
        return bool(api.get("/readyz")["message"] == "ok")
    return False


def install(api: Api) -> None:
    """Installs what manifests/base has, but for the Deployment: the operator runs beside the tests."""
    install_definition(api)
    rendered = api.kubectl("kustomize", str(BASE)).stdout
    parts = [
        part for part in yaml.safe_load_all(rendered) if part["kind"] not in ("Deployment", "CustomResourceDefinition")
    ]
    done = api.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(parts))
    assert done.returncode == 0, done.stderr


def operator_kubeconfig(api: Api, path: Path, name: str = "horovodjob-operator") -> Path:
    """A kubeconfig of a service account, by default the operator's, with the rights of manifests/base and no others."""
    account = f"/api/v1/namespaces/{OPERATOR_NAMESPACE}/serviceaccounts/{name}"
    answer = api.create(f"{account}/token", {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"})
    cluster = {"server": api.server, "certificate-authority-data": api.authority}
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
