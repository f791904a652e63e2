"""`hvj run --from`: the job that is run again may be of somebody else, who wants the credentials of its reader."""

from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from cli.cluster_state import ClusterState
from cli.job_share import ACCOUNT, HOSTILE_HOST, ROOT, SHARE, asked, connected_service
from cli.kubelet import NODE, Kubelet
from cli.program import Hvj
from horovodjob import Client, UsageError
from support.api_client import Object, wait_for
from support.azure_fakes.files.server import FilesService

__all__ = ["asked", "connected_service"]
FILES: dict[str, Any] = {
    "azureFiles": [SHARE | {"server": HOSTILE_HOST}],
    "logs": {"pathPrefix": f"{ROOT}/myshare"},
    "outputs": [{"id": "output", "pathPrefix": f"{ROOT}/myshare", "pathSuffix": "output"}],
}


def finish(cluster: ClusterState, kubelet: Kubelet, name: str) -> None:
    """The job succeeds when it exists."""
    job: Object = wait_for("the job", lambda: cluster.api.find(f"{cluster.jobs}/{name}"))
    cluster.pod(job, "launcher", node=NODE)
    cluster.run(name, outputPathSegment="segment")
    kubelet.log(cluster.namespace, f"{name}-launcher").end()
    cluster.succeed(name)
    cluster.end(f"{name}-launcher", "launcher")


def test_a_job_that_is_run_again_does_not_decide_which_host_gets_credentials(
    hvj: Hvj,
    cluster: ClusterState,
    kubelet: Kubelet,
    tmp_path: Path,
    asked: list[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("AZURE_STORAGE_CONNECTION_STRING", raising=False)
    credential = ("--account-name", ACCOUNT, "--sas-token", "sv=1&sig=x")
    cluster.create("theirs", **FILES)
    ending = Thread(target=finish, args=(cluster, kubelet, "again"))
    ending.start()
    results = tmp_path / "results"
    done = hvj("run", "--from", "theirs", "--name", "again", "--download", str(results), *credential)
    ending.join()
    assert (done.code, results.exists()) == (1, False)
    assert f"allow it with --storage-host {HOSTILE_HOST} or HVJ_STORAGE_HOSTS={HOSTILE_HOST}\n" in done.stderr
    assert HOSTILE_HOST not in asked
    assert cluster.api.items(f"/api/v1/namespaces/{cluster.namespace}/secrets") == []


def test_the_share_of_a_new_run_has_the_host_of_the_user(
    hvj: Hvj,
    cluster: ClusterState,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    asked: list[Any],
    connected_service: FilesService,
) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "train.py").touch()
    monkeypatch.chdir(tmp_path / "project")
    cluster.create("train", **FILES)
    done = hvj("run", "--detach", "--quiet", "--share", "myshare", "--name", "mine", "train.py")
    assert done.code == 0, done.stderr
    assert "server" not in cluster.api.get(f"{cluster.jobs}/mine")["spec"]["azureFiles"][0]
    assert HOSTILE_HOST not in asked


def test_the_code_of_a_job_that_is_run_again_is_sent_nowhere_and_not_changed(
    hvj: Hvj, cluster: ClusterState, asked: list[Any]
) -> None:
    cluster.create("theirs", **FILES)
    for arguments, words in (
        (("-m", "package.train"), "--module has no effect with --from"),
        (("--requirements", "requirements.txt"), "--requirements has no effect with --from"),
        (("--share", "myshare"), "--share has no effect with --from"),
        (("--claim", "data"), "--claim has no effect with --from"),
    ):
        done = hvj("run", "--detach", "--from", "theirs", *arguments)
        assert (done.code, words in done.stderr, done.stderr.count("\n")) == (2, True, 1), done.stderr
    with pytest.raises(UsageError, match="a command has no effect with `source=`"):
        Client().run(source="theirs", command=["python3", "train.py"])
    assert [job["metadata"]["name"] for job in cluster.api.items(cluster.jobs)] == ["theirs"]
    assert HOSTILE_HOST not in asked
