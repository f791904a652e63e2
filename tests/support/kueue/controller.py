"""Kueue's real controller, as a process beside an API server, with its own definitions, rights and configuration."""

import base64
import contextlib
import itertools
import os
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from localcluster.binaries.cache import GO_ENVIRONMENT, Binaries
from localcluster.control_plane.pki import Certificate, make_certificate
from localcluster.progress import Progress
from localcluster.settings import cache_directory
from support.api_client import Api, ApiError, Object, machine_address, own_address, wait_for
from support.control_plane.operator_control_plane import account_kubeconfig
from support.kueue.queues import API, GROUP

SYSTEM, VISIBILITY = "kueue-system", "kueue-visibility-server"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/{}webhookconfigurations/kueue-{}-webhook-configuration"
EXTERNAL_FRAMEWORK = "HorovodJob.v1beta1.horovodjob.dev"
# Where Kueue looks for its certificates, and where its root directory has the rest.
CERTIFICATES = ("etc/kueue/metrics/certs", "visibility", "tmp/k8s-webhook-server/serving-certs")
# Ports that the kernel gives to no connection. That of the positions is on an address which processes share.
PORTS = itertools.count(20000 + os.getpid() % 3000 * 4, 4)
# The tests run the Deployment as a process, and nobody uses the roles for users.
OMITTED = re.compile(r"Deployment |Secret |ClusterRole .*-(editor|viewer)-role")
# The rights that docs/jobs.md names for `externalFrameworks`.
FRAMEWORK_RIGHTS: tuple[Object, ...] = (
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "kueue-horovodjobs"},
        "rules": [{"apiGroups": ["horovodjob.dev"], "resources": ["horovodjobs"], "verbs": ["get", "list", "watch"]}],
    },
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "kueue-horovodjobs"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "kueue-horovodjobs"},
        "subjects": [{"kind": "ServiceAccount", "name": "kueue-controller-manager", "namespace": SYSTEM}],
    },
)


class Kueue:
    """The controller with the rights of its service account; `pki` is the API server's directory of certificates."""

    def __init__(self, api: Api, pki: Path, directory: Path) -> None:
        self._api, self._pki, self._root = api, pki, directory
        self._binaries = Binaries(cache_directory())
        self._binaries.ensure(Progress(), ("kueue",))
        self._process: subprocess.Popen[bytes] | None = None
        self._address, port = own_address(), next(PORTS)
        self._health, self._webhook, self._visibility = port, port + 1, port + 2
        self._manifests: list[Object] = []
        self._configuration: Object = {}
        self.settings: Object = {}
        """What the tests change of Kueue's default configuration."""

    # ---- installation -------------------------------------------------------------------------------------

    def install(self) -> None:
        """Creates the definitions, rights and webhooks of Kueue's `config/default`."""
        self._create_root()
        config = self._binaries.file("kueue", "config")
        rendered = self._api.kubectl("kustomize", str(config / "default")).stdout
        parts = list(yaml.load_all(rendered, Loader=yaml.CSafeLoader))
        configuration = next(part for part in parts if part["kind"] == "ConfigMap")["data"]
        self._configuration = yaml.safe_load(configuration["controller_manager_config.yaml"])
        self._manifests = [
            self._adapted(part) for part in parts if not OMITTED.match(f"{part['kind']} {part['metadata']['name']}")
        ]
        self._manifests += [*FRAMEWORK_RIGHTS, *self._visibility_endpoints()]
        self._apply("apply", "--server-side", "--force-conflicts")
        kinds = {part["spec"]["names"]["plural"] for part in parts if part["kind"] == "CustomResourceDefinition"}
        wait_for("the kinds of Kueue", lambda: kinds <= self._discovered())
        account_kubeconfig(self._api, self._root / "kubeconfig", SYSTEM, "kueue-controller-manager")

    def _discovered(self) -> set[str]:
        """The kinds that a client finds, which can be later than their collections."""
        return {one["name"] for one in (self._api.find(API) or {}).get("resources", ())}

    def uninstall(self) -> None:
        """Ends the controller and deletes everything of Kueue that is still there, also what its finalizers keep."""
        self.kill()
        if not self._manifests:
            return
        for kind in ("mutating", "validating"):
            self._api.delete(WEBHOOKS.format(kind, kind))
        self._apply("delete", "--wait=false", "--ignore-not-found")
        for plural in ("workloads", "localqueues", "clusterqueues", "resourceflavors", "admissionchecks", "topologies"):
            wait_for(f"{plural} to be gone", lambda: self._is_gone(plural))  # noqa: B023
        self._manifests = []

    def _is_gone(self, plural: str) -> bool:
        """Whether no object is left of a kind, and its definition neither; removes finalizers."""
        try:
            items = self._api.items(f"{API}/{plural}")
            for item in items:
                metadata = item["metadata"]
                if metadata.get("finalizers"):
                    place = f"namespaces/{metadata['namespace']}/{plural}" if "namespace" in metadata else plural
                    self._api.patch(f"{API}/{place}/{metadata['name']}", {"metadata": {"finalizers": None}})
        except ApiError as error:
            if error.status not in (404, 405, 409):
                raise
        path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{plural}.{GROUP}"
        return self._api.find(path) is None

    def _apply(self, *arguments: str) -> None:
        done = self._api.kubectl(*arguments, "-f", "-", stdin=yaml.dump_all(self._manifests, Dumper=yaml.CSafeDumper))
        assert done.returncode == 0, done.stderr

    def _adapted(self, part: Object) -> Object:
        """A manifest with the addresses of this process instead of those of Services."""
        authority = base64.b64encode((self._pki / "ca.crt").read_bytes()).decode()
        for client in _webhook_clients(part):
            path = client.pop("service").get("path", "/convert")
            client |= {"url": f"https://{self._address}:{self._webhook}{path}", "caBundle": authority}
        if part["kind"] == "Service" and part["metadata"]["name"] == VISIBILITY:
            del part["spec"]["selector"]
        return part

    def _visibility_endpoints(self) -> tuple[Object, Object]:
        """The server of the positions, which the API server calls through a Service, and not on loopback.

        That of Kubernetes 1.31 reads the first object, that of 1.36 the second.
        """
        metadata = {"name": VISIBILITY, "namespace": SYSTEM}
        skip = {"endpointslice.kubernetes.io/skip-mirror": "true"}
        port, address = {"name": "https", "port": self._visibility, "protocol": "TCP"}, machine_address()
        return {
            "apiVersion": "v1",
            "kind": "Endpoints",
            "metadata": {**metadata, "labels": skip},
            "subsets": [{"addresses": [{"ip": address}], "ports": [port]}],
        }, {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {**metadata, "labels": {"kubernetes.io/service-name": VISIBILITY}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
            "ports": [port],
        }

    def _create_root(self) -> None:
        """The root directory of the process: Kueue has fixed paths for its certificates."""
        shutil.rmtree(self._root, ignore_errors=True)
        self._root.mkdir(parents=True)
        addresses = (f"IP:{self._address}",)
        certificate = Certificate("tls", "/CN=kueue", server=True, client=False, addresses=addresses)
        make_certificate(self._root, certificate, self._pki)
        for place in CERTIFICATES:
            (self._root / place).mkdir(parents=True)
            for file in ("tls.crt", "tls.key"):
                shutil.copy(self._root / file, self._root / place)
        source = self._binaries.path("kueue")
        try:
            os.link(source, self._root / "kueue")
        except OSError:  # another file system
            shutil.copy(source, self._root)

    # ---- the process --------------------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process id of the controller."""
        assert self._process
        return self._process.pid

    def start(self, **settings: Any) -> None:
        """Starts the controller, with these changes of its default configuration, and waits until it is ready."""
        self.settings = settings
        ports = {
            "health": {"healthProbeBindAddress": f"{self._address}:{self._health}"},
            "metrics": {"bindAddress": "0"},
            "webhook": {"port": self._webhook, "host": self._address},
            "leaderElection": {"leaderElect": False},  # there is one, and an election takes seconds
            "internalCertManagement": {"enable": False},
            "visibilityServer": {"bindAddress": machine_address(), "bindPort": self._visibility},
        }
        configuration = self._configuration | ports | settings
        (self._root / "configuration.yaml").write_text(yaml.safe_dump(configuration))
        arguments = ["/kueue", "--config=/configuration.yaml", "--kubeconfig=/kubeconfig", "--zap-log-level=2"]
        namespaces = [] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--"]
        command = [*namespaces, "setpriv", "--pdeathsig=KILL", "--", "chroot", str(self._root), *arguments]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=os.environ | GO_ENVIRONMENT
            )
        wait_for("Kueue to be ready", lambda: self._is_ready() or not self.is_running)
        assert self.is_running, self.log.read_text()[-3000:]

    @property
    def log(self) -> Path:
        """The log of all processes."""
        return self._root.with_name(f"{self._root.name}.log")

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self._address}:{self._health}/readyz", timeout=5) as answer:
                return int(answer.status) == 200
        except OSError:
            return False

    def kill(self) -> None:
        """Kills the process, as the loss of its node would."""
        if self._process:
            self._process.kill()
            self._process.wait()

    def restart(self, **settings: Any) -> None:
        """Kills the process and starts it with another configuration."""
        self.kill()
        self.start(**settings)

    @contextlib.contextmanager
    def without_webhooks(self, kind: str) -> Iterator[None]:
        """Within this context, writes of this kind do not need the webhooks."""
        self._set_failure_policy(kind, "Ignore")
        try:
            yield
        finally:
            self._set_failure_policy(kind, "Fail")

    def _set_failure_policy(self, kind: str, policy: str) -> None:
        for each in ("mutating", "validating"):
            path = WEBHOOKS.format(each, each)
            configuration = self._api.get(path)
            for webhook in configuration["webhooks"]:
                if webhook["name"] == f"{each[0]}{kind}.kb.io":
                    webhook["failurePolicy"] = policy
            self._api.replace(path, configuration)

    def with_framework(self) -> Object:
        """The part of the configuration that docs/jobs.md demands where the integration for pods is on."""
        return {"integrations": self._configuration["integrations"] | {"externalFrameworks": [EXTERNAL_FRAMEWORK]}}


def _webhook_clients(part: Object) -> Iterator[Object]:
    """The `clientConfig` of each webhook of a manifest."""
    if part["kind"] in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        yield from (webhook["clientConfig"] for webhook in part["webhooks"])
    if part["kind"] == "CustomResourceDefinition":
        yield from (
            conversion["webhook"]["clientConfig"]
            for conversion in [part["spec"].get("conversion", {})]
            if conversion.get("strategy") == "Webhook"
        )
