"""Errors: one sentence on standard error with the cause and the remedy, and an exit code."""

from pathlib import Path

import pytest
import yaml

from cli.cluster_state import ClusterState
from cli.program import Hvj, hvj_process, run
from cli.service_account import account_kubeconfig
from localcluster.control_plane.standalone import free_ports
from support.api_client import Api, job


def sentence(stderr: str) -> str:
    """The only line of an error."""
    (line,) = stderr.splitlines()
    assert line.startswith("error: ")
    return line


def test_a_cluster_that_cannot_be_reached_is_reported(
    api: Api, hvj: Hvj, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def error(kubeconfig: object) -> str:
        path = tmp_path / "kubeconfig"
        path.write_text(kubeconfig if isinstance(kubeconfig, str) else yaml.safe_dump(kubeconfig))
        done = run("job", "list", "--kubeconfig", str(path))
        assert done.code == 1
        return sentence(done.stderr)

    valid = yaml.safe_load(api.kubeconfig.read_text())
    assert (
        "no context other; `kubectl config get-contexts` lists them" in hvj("job", "list", "--context", "other").stderr
    )
    (cluster,) = valid["clusters"]
    authority = cluster["cluster"].pop("certificate-authority-data")
    assert "certificate verify failed" in error(valid)
    (port,) = free_ports(1)
    cluster["cluster"] |= {"certificate-authority-data": authority, "server": f"https://127.0.0.1:{port}"}
    assert f"no connection to 127.0.0.1:{port}: " in error(valid)
    for text, words in (("", "empty"), ("a: [", "not a kubeconfig"), ("apiVersion: v1", "current-context")):
        found = error(text)
        assert (str(tmp_path / "kubeconfig") in found, words in found) == (True, True)
    for variable, options in (("/nowhere/a", ()), ("/dev/null", ("--kubeconfig", "/nowhere/a"))):
        monkeypatch.setenv("KUBECONFIG", variable)
        done = run("job", "list", *options)
        words = "no kubeconfig at /nowhere/a; name one with --kubeconfig or in KUBECONFIG"
        assert (done.code, words in sentence(done.stderr)) == (1, True)


def test_a_missing_permission_is_reported_and_not_advised_at_a_quota(
    api: Api, hvj: Hvj, workspace: str, tmp_path: Path
) -> None:
    path = account_kubeconfig(api, workspace, tmp_path)
    show = ("job", "show", "-n", "train", "-w", workspace, "--kubeconfig", str(path))
    done = run(*show)
    assert (done.code, 'cannot get resource "horovodjobs"' in sentence(done.stderr)) == (1, True)
    kubeconfig = yaml.safe_load(path.read_text())
    kubeconfig["users"][0]["user"] = {"token": "wrong"}
    path.write_text(yaml.safe_dump(kubeconfig))
    assert "does not accept your credentials" in sentence(run(*show).stderr)
    quota = {"metadata": {"name": "none"}, "spec": {"hard": {"count/horovodjobs.horovodjob.dev": "0"}}}
    api.create(f"/api/v1/namespaces/{workspace}/resourcequotas", quota)
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job("train")))
    done = hvj("job", "create", "-f", str(tmp_path / "job.yaml"))
    assert (done.code, "quota" in done.stderr, "permission" in done.stderr) == (1, True, False), done.stderr


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


def test_a_usage_error_is_one_sentence_and_exits_with_2(hvj: Hvj) -> None:
    for arguments, words in (
        (("job", "show"), "missing option '--name' / '-n'; see `hvj job show --help`"),
        (("job", "show", "-n", "a", "--nmae", "b"), "no such option: --nmae"),
        (("job", "shwo"), "no such command 'shwo'. Did you mean 'show'"),
        (("job", "show", "-n", "a", "-o", "xml"), "'json', 'jsonc', 'yaml', 'table', 'tsv', 'none'"),
        (("job", "show", "-n", "a", "--query", "a.[b"), "--query 'a.[b' is not a valid JMESPath expression"),
        (("job", "show", "-n", "---"), "'---' has no letter and no digit"),
        (("job", "scale", "-n", "a", "-t", "0"), "'--target' / '-t'"),
        (("job", "create", "-f", "a", "--nfs-server", "b"), "must be NAME=HOST:/PATH"),
        (("job", "create"), "missing option '--config-file'"),
    ):
        done = hvj(*arguments)
        assert (done.code, done.stdout, words in sentence(done.stderr)) == (2, "", True), done.stderr
