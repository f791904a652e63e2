"""Errors: one sentence on standard error with the cause and the remedy, and an exit code."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from kubernetes.client.exceptions import ApiException

from cli.cluster_state import ClusterState
from cli.program import Hvj, hvj_process, run
from horovodjob.client.errors import to_client_error
from localcluster.control_plane.standalone import free_ports
from support.api_client import Api, job

Kubeconfig = Callable[[str], Path]


@pytest.fixture
def elsewhere(api: Api, tmp_path: Path) -> Kubeconfig:
    """Writes a kubeconfig for another server."""

    def make(server: str) -> Path:
        kubeconfig = yaml.safe_load(api.kubeconfig.read_text())
        kubeconfig["clusters"][0]["cluster"]["server"] = server
        path = tmp_path / "kubeconfig"
        path.write_text(yaml.safe_dump(kubeconfig))
        return path

    return make


def sentence(stderr: str) -> str:
    """The only line of an error."""
    (line,) = stderr.splitlines()
    assert line.startswith("error: ")
    return line


def test_a_server_that_does_not_respond_is_reported(elsewhere: Kubeconfig) -> None:
    (port,) = free_ports(1)
    done = run("job", "list", "--kubeconfig", str(elsewhere(f"https://127.0.0.1:{port}")))
    assert done.code == 1
    assert f"no connection to 127.0.0.1:{port}: " in sentence(done.stderr)


def test_a_server_with_an_untrusted_certificate_is_reported(elsewhere: Kubeconfig, api: Api) -> None:
    path = elsewhere(api.server)
    kubeconfig = yaml.safe_load(path.read_text())
    del kubeconfig["clusters"][0]["cluster"]["certificate-authority-data"]
    path.write_text(yaml.safe_dump(kubeconfig))
    done = run("job", "list", "--kubeconfig", str(path))
    assert done.code == 1
    assert "certificate verify failed" in sentence(done.stderr)


@pytest.mark.parametrize("variable", [True, False])
def test_a_missing_kubeconfig_is_reported(monkeypatch: pytest.MonkeyPatch, variable: bool) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere/a" if variable else "/dev/null")
    done = run("job", "list", *(() if variable else ("--kubeconfig", "/nowhere/a")))
    assert done.code == 1
    assert "no kubeconfig at /nowhere/a; name one with --kubeconfig or in KUBECONFIG" in sentence(done.stderr)


@pytest.mark.parametrize(
    ("text", "words"),
    [("", "empty"), ("a: [", "not a kubeconfig"), ("apiVersion: v1", "current-context"), ("- 1", "not a kubeconfig")],
)
def test_an_invalid_kubeconfig_is_reported(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    done = run("job", "list", "--kubeconfig", str(path))
    assert done.code == 1
    assert str(path) in sentence(done.stderr)
    assert words in done.stderr


def test_a_missing_context_is_reported(hvj: Hvj) -> None:
    done = hvj("job", "list", "--context", "other")
    assert done.code == 1
    assert "no context other; `kubectl config get-contexts` lists them" in sentence(done.stderr)


def test_a_missing_permission_is_reported(api: Api, elsewhere: Kubeconfig, cluster: ClusterState) -> None:
    namespace = cluster.namespace
    api.create(f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": "guest"}})
    token = api.create(f"/api/v1/namespaces/{namespace}/serviceaccounts/guest/token", {"spec": {}})["status"]["token"]
    path = elsewhere(api.server)
    kubeconfig = yaml.safe_load(path.read_text())
    kubeconfig["users"][0]["user"] = {"token": token}
    path.write_text(yaml.safe_dump(kubeconfig))
    done = run("job", "show", "-n", "train", "-w", namespace, "--kubeconfig", str(path))
    assert done.code == 1
    assert 'cannot get resource "horovodjobs"' in sentence(done.stderr)
    kubeconfig["users"][0]["user"] = {"token": "wrong"}
    path.write_text(yaml.safe_dump(kubeconfig))
    done = run("job", "show", "-n", "train", "-w", namespace, "--kubeconfig", str(path))
    assert "does not accept your credentials" in sentence(done.stderr)


def test_a_refusal_by_a_quota_advises_no_permission(api: Api, workspace: str, tmp_path: Path, hvj: Hvj) -> None:
    quota = {"metadata": {"name": "none"}, "spec": {"hard": {"count/horovodjobs.horovodjob.dev": "0"}}}
    api.create(f"/api/v1/namespaces/{workspace}/resourcequotas", quota)
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job("train")))
    done = hvj("job", "create", "-f", str(tmp_path / "job.yaml"))
    assert (done.code, "quota" in done.stderr, "permission" in done.stderr) == (1, True, False), done.stderr


def test_a_frozen_field_advises_no_permission() -> None:
    message = (
        "horovodjobs.horovodjob.dev \"train\" is forbidden: ValidatingAdmissionPolicy 'frozen-spec.horovodjob.dev' "
    )
    message += (
        "with binding 'frozen-spec.horovodjob.dev' denied request: image can change only while the job is suspended"
    )
    error = ApiException(status=403)
    error.body = json.dumps({"message": message})
    assert str(to_client_error(error)) == message


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("job", "show"), "missing option '--name' / '-n'; see `hvj job show --help`"),
        (("job", "show", "-n", "a", "--nmae", "b"), "no such option: --nmae"),
        (("job", "shwo"), "no such command 'shwo'. Did you mean 'show'"),
        (("job", "show", "-n", "a", "-o", "xml"), "'json', 'jsonc', 'yaml', 'table', 'tsv', 'none'"),
        (("job", "show", "-n", "a", "--query", "a.[b"), "--query 'a.[b' is not a valid JMESPath expression"),
        (("job", "show", "-n", "---"), "'---' has no letter and no digit"),
        (("job", "scale", "-n", "a", "-t", "0"), "'--target' / '-t'"),
        (("job", "create", "-f", "a", "--nfs-server", "b"), "must be NAME=HOST:/PATH"),
    ],
)
def test_a_usage_error_is_one_sentence_and_exits_with_2(hvj: Hvj, arguments: tuple[str, ...], words: str) -> None:
    done = hvj(*arguments)
    assert (done.code, done.stdout) == (2, "")
    assert words in sentence(done.stderr)


def test_debug_shows_the_traceback_before_the_message(hvj: Hvj) -> None:
    assert "Traceback" not in hvj("job", "show", "-n", "none").stderr
    lines = hvj("job", "show", "-n", "none", "--debug").stderr.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-1].startswith("error: job none does not exist")


def test_a_closed_pipe_causes_no_error(cluster: ClusterState) -> None:
    for name in ("a", "b"):
        cluster.create(name)
    with hvj_process("job", "list", "-o", "json") as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait() == 141


def test_job_create_without_options_is_wrong_usage() -> None:
    done = run("job", "create")
    assert (done.code, done.stdout) == (2, "")
    assert "missing option '--config-file'" in sentence(done.stderr)
