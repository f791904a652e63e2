"""The dashboard as in a cluster: a process without rights, and visitors with tokens of service accounts."""

import contextlib
import itertools
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import requests

from cli.dashboard.browser import Browser
from cli.program import SECONDS, preloaded_python
from cli.service_account import RBAC, is_allowed
from support.api_client import Api, Object, wait_for

LISTENS = re.compile(r"the dashboard listens on port (\d+)")
NUMBERS = itertools.count(1)
READER = "horovodjob-reader"
OPERATOR = "horovodjob-changer"
JOBS_OF = {READER: ["get", "list", "watch"], OPERATOR: ["get", "list", "watch", "patch"]}


class Visitor(Browser):
    """A browser at the dashboard of a cluster."""

    def sign_in(self, token: str, **more: str) -> requests.Response:
        return self.keep(self.post("/sign-in", {"token": token, **more}))

    def status(self, path: str) -> int:
        return self.get(path).status_code


class InCluster:
    """The process of the dashboard, and its log."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process, self._log = process, log
        self.origin = f"http://127.0.0.1:{wait_for('the dashboard', self._port)}"

    def log(self) -> str:
        """What the process has written."""
        return self._log.read_text()

    def _port(self) -> str | None:
        found = LISTENS.search(self.log())
        assert found or self._process.poll() is None, self.log()
        return found and found[1]

    def visitor(self, token: str | None = None) -> Visitor:
        """A browser, which has signed in if there is a token."""
        made = Visitor(self.origin)
        if token is not None:
            assert made.sign_in(token).status_code == 200
        return made

    def end(self) -> int:
        """Ends it as the kubelet does; returns its exit code."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(SECONDS)


@contextlib.contextmanager
def in_cluster(
    api: Api, directory: Path, *arguments: str, server: str = "", url: str = "http://localhost"
) -> Iterator[InCluster]:
    """The process, without kubeconfig and with an environment that has no credentials."""
    log = directory / f"dashboard-{next(NUMBERS)}.log"
    command = [*preloaded_python(), "-m", "horovodjob_dashboard", "--port=0", "--review-seconds=0.5"]
    command += [
        f"--url={url}",
        f"--server={server or api.server}",
        f"--certificate-authority={api.authority_file}",
        *arguments,
    ]
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output, env={}) as process:
        try:
            yield InCluster(process, log)
        finally:
            process.kill()


class Accounts:
    """Service accounts with few rights."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._api, self._namespace = api, namespace
        self._bindings: list[str] = []
        for name, verbs in JOBS_OF.items():
            rules = [{"apiGroups": ["horovodjob.dev"], "resources": ["horovodjobs"], "verbs": verbs}]
            api.create(f"/apis/{RBAC}/v1/clusterroles", {"metadata": {"name": name}, "rules": rules})

    def token(self, name: str, *, role: str | None = READER, namespace: str | None = None) -> str:
        """A token of a new account, which has the role in the namespace; without one, in all."""
        accounts = f"/api/v1/namespaces/{self._namespace}/serviceaccounts"
        self._api.create(accounts, {"metadata": {"name": name}})
        if role:
            self.bind(name, role, namespace)
        created = self._api.create(f"{accounts}/{name}/token", {"spec": {"expirationSeconds": 3600}})
        return str(created["status"]["token"])

    def bind(self, name: str, role: str, namespace: str | None) -> str:
        """Gives the account the role; returns the path of the binding."""
        where = f"namespaces/{namespace}/rolebindings" if namespace else "clusterrolebindings"
        body: Object = {"metadata": {"name": f"{self._namespace}-{name}-{role}"}}
        body["subjects"] = [{"kind": "ServiceAccount", "name": name, "namespace": self._namespace}]
        body["roleRef"] = {"apiGroup": RBAC, "kind": "ClusterRole", "name": role}
        path = f"/apis/{RBAC}/v1/{where}"
        self._api.create(path, body)
        rule = self._api.get(f"/apis/{RBAC}/v1/clusterroles/{role}")["rules"][0]
        right = (rule["apiGroups"][0], rule["resources"][0], rule["verbs"][0])
        user = f"system:serviceaccount:{self._namespace}:{name}"
        wait_for("the right of the account", lambda: is_allowed(self._api, user, namespace or "", *right))
        self._bindings.append(f"{path}/{body['metadata']['name']}")
        return self._bindings[-1]

    def unbind(self, *paths: str) -> None:
        """Takes roles away, by default all."""
        for path in paths or tuple(self._bindings):
            self._bindings.remove(path)
            self._api.delete(path)

    def delete(self, name: str) -> None:
        """Deletes an account: the API server no longer accepts its tokens."""
        self._api.delete(f"/api/v1/namespaces/{self._namespace}/serviceaccounts/{name}")

    def close(self) -> None:
        self.unbind()
        for name in JOBS_OF:
            self._api.delete(f"/apis/{RBAC}/v1/clusterroles/{name}")
