"""The scripts of the pipelines of manifests/ci, as GitHub and GitLab run them."""

import os
import shlex
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from cli.cluster_state import ClusterState
from cli.kubelet import NODE, Kubelet
from cli.program import Process, hvj_command
from support.api_client import ROOT, binary, wait_for

FILES = ROOT / "manifests" / "ci"
GITHUB, GITLAB = FILES / "github-actions.yaml", FILES / "gitlab-ci.yml"
NAME = "train-123-1"
BOTH = pytest.mark.parametrize("file", [GITHUB, GITLAB], ids=["github", "gitlab"])


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The repository of a commit, which is the current directory, and `hvj` on the path."""
    (tmp_path / "train.py").write_text("print('trained')\n")
    monkeypatch.chdir(tmp_path)
    program = tmp_path / "bin" / "hvj"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.join(hvj_command())} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return tmp_path


def scripts(file: Path) -> tuple[str, str]:
    """The script that trains, and the one that runs after a cancellation."""
    pipeline = yaml.safe_load(file.read_text())
    if file == GITLAB:
        return tuple("\n".join(pipeline["train"][key]) for key in ("script", "after_script"))  # type: ignore[return-value]
    steps = {step.get("name"): step.get("run") for step in pipeline["jobs"]["train"]["steps"]}
    return "\n".join([steps["Connect to the cluster"], steps["Train"]]), steps["Terminate the job"]


def environment(file: Path, directory: Path) -> dict[str, str]:
    """The variables that the script finds."""
    pipeline = yaml.safe_load(file.read_text())["train" if file == GITLAB else "jobs"]
    own = pipeline["variables"] if file == GITLAB else pipeline["train"]["env"]
    given = os.environ | {"JOB": NAME, "IMAGE": own["IMAGE"], "CI_JOB_STATUS": "canceled"}
    if file == GITHUB:
        given |= {"CONTENT": Path(given["KUBECONFIG"]).read_text(), "RUNNER_TEMP": str(directory)}
        given |= {"GITHUB_ENV": str(directory / "env"), "KUBECONFIG": str(directory / "kubeconfig")}
    return given


@contextmanager
def running(file: Path, cluster: ClusterState, directory: Path) -> Iterator[Process]:
    """The script of the pipeline, whose job runs."""
    command = ["bash", "-e", "-c", scripts(file)[0]]
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with Process(command, env=environment(file, directory), start_new_session=True, **output) as process:  # type: ignore[call-overload]
        try:
            job = wait_for("the job", lambda: cluster.api.find(f"{cluster.jobs}/{NAME}"))
            assert job["metadata"]["labels"]["horovodjob.dev/experiment"] == "commits"
            cluster.pod(job, "launcher", node=NODE)
            cluster.run(NAME)
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize(("file", "exit_code"), [(GITHUB, 0), (GITLAB, 3)], ids=["github", "gitlab"])
def test_the_pipeline_shows_the_output_and_ends_as_its_job(
    file: Path, exit_code: int, checkout: Path, cluster: ClusterState, kubelet: Kubelet
) -> None:
    with running(file, cluster, checkout) as process:
        log = kubelet.log(cluster.namespace, f"{NAME}-launcher")
        log.write("Epoch 1/10")
        log.end()
        cluster.succeed(NAME) if exit_code == 0 else cluster.fail(NAME, exit_code)
        cluster.end(f"{NAME}-launcher", "launcher")
        output = process.communicate()[0]
    assert process.returncode == exit_code, output
    assert "Epoch 1/10" in output


@BOTH
def test_a_pipeline_that_is_cancelled_terminates_its_job(
    file: Path, checkout: Path, cluster: ClusterState, kubelet: Kubelet
) -> None:
    with running(file, cluster, checkout) as process:
        kubelet.log(cluster.namespace, f"{NAME}-launcher").write("Epoch 1/10")
        os.killpg(process.pid, signal.SIGINT)
        process.communicate()
    assert not cluster.api.get(f"{cluster.jobs}/{NAME}")["spec"].get("runPolicy", {}).get("terminate")
    after = ["bash", "-e", "-c", scripts(file)[1]]
    with Process(after, env=environment(file, checkout)) as process_after:
        wait_for(
            "the termination",
            lambda: cluster.api.get(f"{cluster.jobs}/{NAME}")["spec"].get("runPolicy", {}).get("terminate"),
        )
        cluster.fail(NAME)
        assert process_after.wait() == 0


def test_the_workflow_passes_actionlint() -> None:
    command = [
        binary("actionlint"),
        "-no-color",
        "-shellcheck",
        str(ROOT / ".venv" / "bin" / "shellcheck"),
        str(GITHUB),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
