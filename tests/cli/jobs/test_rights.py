"""`hvj` with few rights: one sentence for each that is missing, and nothing is left behind. In a pod, those of it."""

import os
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from cli.cluster_state import ClusterState
from cli.kubelet import NODE, Kubelet
from cli.program import PROGRAM, Hvj
from cli.service_account import RBAC, is_allowed
from horovodjob import Client, ClientError
from support.api_client import Api, wait_for

JOBS = ("horovodjob.dev", "horovodjobs")
RIGHTS = [
    *((*JOBS, verb) for verb in ("get", "list", "watch", "create", "patch", "delete")),
    *(("", "configmaps", verb) for verb in ("get", "list", "create", "patch", "delete")),
    *(("", "pods", verb) for verb in ("get", "list", "watch", "create", "delete")),
    ("", "pods/log", "get"),
    *(("", "pods/exec", verb) for verb in ("get", "create")),
    ("", "persistentvolumeclaims", "get"),
    ("", "events", "list"),
]
# As a pod sees them: the files that the kubelet mounts, and no kubeconfig.
IN_A_POD = """
mount -t tmpfs none /run && mkdir -p /run/secrets/kubernetes.io/serviceaccount &&
cp "$0"/token "$0"/ca.crt "$0"/namespace /run/secrets/kubernetes.io/serviceaccount/ && exec "$@"
"""
RUN = ("run", "--image", "trainer:1", "--gpus", "0")


class Account:
    """A service account of the workspace with the rights that a test gives it; `hvj` uses it."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._api, self._namespace = api, namespace
        self._rights: set[tuple[str, str, str]] = set()
        accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        api.create(accounts, {"metadata": {"name": "user"}})
        self.token: str = api.create(f"{accounts}/user/token", {"spec": {}})["status"]["token"]
        subject = {"kind": "ServiceAccount", "name": "user", "namespace": namespace}
        role = {"apiGroup": RBAC, "kind": "Role", "name": "user"}
        self._create("roles", {"rules": []})
        self._create("rolebindings", {"subjects": [subject], "roleRef": role})

    def may(self, *rights: tuple[str, str, str]) -> None:
        """The account has these rights and no others."""
        rules = [{"apiGroups": [group], "resources": [name], "verbs": [verb]} for group, name, verb in rights]
        self._api.patch(self._path("roles/user"), {"rules": rules})
        changed, self._rights = self._rights ^ set(rights), set(rights)
        user = f"system:serviceaccount:{self._namespace}:user"
        allowed = partial(is_allowed, self._api, user, self._namespace)
        wait_for("the rights", lambda: all(allowed(*each) == (each in self._rights) for each in changed))

    def may_all_but(self, group: str, resource: str, *verbs: str) -> None:
        """The account has all rights that `hvj` uses for jobs, but not these."""
        self.may(*(each for each in RIGHTS if each[:2] != (group, resource) or each[2] not in verbs))

    def _create(self, kind: str, body: dict[str, Any]) -> None:
        self._api.create(self._path(kind), {"metadata": {"name": "user"}, **body})

    def _path(self, name: str) -> str:
        return f"/apis/{RBAC}/v1/namespaces/{self._namespace}/{name}"


@pytest.fixture
def account(api: Api, cluster: ClusterState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Account:
    """The account, in whose name `hvj` runs in a directory with a script."""
    made = Account(api, cluster.namespace)
    kubeconfig = yaml.safe_load(Path(os.environ["KUBECONFIG"]).read_text())
    kubeconfig["users"][0]["user"] = {"token": made.token}
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
    (tmp_path / "train.py").write_text("print(1)")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    monkeypatch.chdir(tmp_path)
    return made


@pytest.fixture
def job(cluster: ClusterState, kubelet: Kubelet) -> None:
    """A running job with a launcher and files on a claim."""
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    mount = {"name": "data", "mountPath": "/data"}
    experiment = {"horovodjob.dev/experiment": "digits"}
    created = cluster.create("train", experiment, volumes=[claim], volumeMounts=[mount], logs={"pathPrefix": "/data"})
    cluster.run("train", outputPathSegment="segment")
    cluster.pod(created, "launcher", node=NODE)


COMMANDS = (
    ("job", "list"),
    ("job", "show", "-n", "train"),
    ("job", "wait", "-n", "train"),
    ("job", "logs", "-n", "train"),
    ("job", "terminate", "-y", "-n", "train"),
    ("job", "scale", "-n", "train", "-t", "2"),
    ("job", "delete", "-y", "-n", "train"),
    ("job", "node", "exec", "-j", "train", "-n", "launcher", "--", "true"),
    ("job", "top", "-n", "train"),
    ("job", "plot", "train"),
    ("job", "file", "list", "-j", "train"),
    ("attach", "train"),
    (*RUN, "train.py"),
    (*RUN, "--sweep", "lr=0.1,0.2", "train.py"),
    (*RUN, "--claim", "data", "train.py"),
    ("run", "--from", "train"),
    ("experiment", "list"),
    ("experiment", "delete", "-y", "-n", "digits"),
)


def test_without_any_right_each_command_is_one_sentence(
    hvj: Hvj, cluster: ClusterState, account: Account, job: None
) -> None:
    for command in COMMANDS:
        done = hvj(*command)
        assert (done.code, done.stdout, done.stderr.count("\n")) == (1, "", 1), (command, done.stderr)
        assert " is forbidden: User " in done.stderr
        assert done.stderr.endswith("; ask the cluster's administrator for this permission\n"), (command, done.stderr)
    with pytest.raises(ClientError, match="ask the cluster's administrator for this permission"):
        Client().list()
    assert [each["metadata"]["name"] for each in cluster.api.items(cluster.jobs)] == ["train"]
    assert cluster.codes() == []


MISSING: tuple[tuple[tuple[str, str, str], tuple[str, ...]], ...] = (
    ((*JOBS, "get"), ("job", "show", "-n", "train")),
    ((*JOBS, "list"), ("experiment", "delete", "-y", "-n", "digits")),
    ((*JOBS, "list"), (*RUN, "--sweep", "lr=0.1,0.2", "--quiet", "train.py")),
    ((*JOBS, "watch"), ("job", "wait", "-n", "train", "--quiet")),
    ((*JOBS, "watch"), ("job", "logs", "-f", "-n", "train")),
    ((*JOBS, "create"), (*RUN, "--detach", "train.py")),
    ((*JOBS, "create"), (*RUN, "--sweep", "lr=0.1,0.2", "--quiet", "train.py")),
    ((*JOBS, "patch"), ("job", "suspend", "-n", "train")),
    ((*JOBS, "delete"), ("job", "delete", "-y", "-n", "train")),
    (("", "configmaps", "create"), (*RUN, "--detach", "train.py")),
    (("", "configmaps", "list"), ("experiment", "list")),
    (("", "pods", "list"), ("job", "node", "list", "-j", "train")),
    (("", "pods", "create"), (*RUN, "--claim", "data", "--quiet", "train.py")),
    (("", "pods/log", "get"), ("job", "logs", "-n", "train")),
    (("", "persistentvolumeclaims", "get"), (*RUN, "--claim", "data", "--quiet", "train.py")),
)


def test_a_missing_right_is_named_and_nothing_is_left(
    hvj: Hvj, cluster: ClusterState, account: Account, job: None
) -> None:
    cluster.claim()
    for (group, resource, verb), command in MISSING:
        account.may_all_but(group, resource, verb)
        done = hvj(*command)
        assert (done.code, done.stdout, done.stderr.count("\n")) == (1, "", 1), (command, done.stderr)
        assert f'cannot {verb} resource "{resource}" in API group "{group}"' in done.stderr
        assert [each["metadata"]["name"] for each in cluster.api.items(cluster.jobs)] == ["train"]
        assert (cluster.codes(), cluster.pods_of_hvj()) == ([], [])


def test_what_was_done_before_a_right_was_missing_is_named(
    hvj: Hvj, cluster: ClusterState, account: Account, job: None
) -> None:
    account.may_all_but(*JOBS, "watch")
    done = hvj(*RUN, "--name", "followed", "train.py")
    assert (done.code, 'cannot watch resource "horovodjobs"' in done.stderr) == (1, True), done.stderr
    assert f"job followed continues in namespace {cluster.namespace}\n" in done.stderr
    assert cluster.api.get(f"{cluster.jobs}/followed")

    account.may_all_but("", "configmaps", "patch")
    done = hvj(*RUN, "--detach", "--quiet", "--name", "owned", "train.py")
    (code,) = [name for each in cluster.codes() if (name := each["metadata"]["name"]).startswith("owned")]
    assert (done.code, done.stdout) == (0, "owned\n"), done.stderr
    assert done.stderr.startswith(f"warning: ConfigMap {code} of job owned is not deleted with it: configmaps ")

    for right, kind, name in (((*JOBS, "list"), "jobs", "followed"), (("", "pods", "list"), "pods", "train")):
        account.may_all_but(*right)
        done = hvj("job", "delete", "-y", "-n", name)
        assert (done.code, done.stdout, cluster.api.find(f"{cluster.jobs}/{name}")) == (0, "", None)
        assert (done.stderr.count("\n"), f"you may not list and watch {kind} in namespace" in done.stderr) == (1, True)


@pytest.fixture
def in_a_pod(api: Api, cluster: ClusterState, account: Account, tmp_path: Path) -> Callable[..., Any]:
    """Runs `hvj` where the kubelet has mounted the account of a pod, and where there is no kubeconfig."""
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    (mounted / "token").write_text(account.token)
    (mounted / "namespace").write_text(cluster.namespace)
    (mounted / "ca.crt").write_bytes(api.authority_file.read_bytes())
    host, _, port = urlsplit(api.server).netloc.partition(":")
    environment = {key: value for key, value in os.environ.items() if key != "KUBECONFIG"}
    environment |= {"HOME": str(tmp_path), "KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        unshare = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-ec", IN_A_POD, str(mounted)]
        return subprocess.run([*unshare, PROGRAM, *arguments], env=environment, text=True, capture_output=True)

    return run


def test_in_a_pod_the_account_of_the_pod_and_its_namespace_are_used(
    cluster: ClusterState, account: Account, in_a_pod: Callable[..., Any]
) -> None:
    account.may(*RIGHTS)
    done = in_a_pod("run", "--image", "trainer:1", "--detach", "--name", "inner", "train.py")
    assert (done.returncode, done.stdout) == (0, "inner\n"), done.stderr
    assert cluster.api.get(f"{cluster.jobs}/inner")["metadata"]["namespace"] == cluster.namespace
