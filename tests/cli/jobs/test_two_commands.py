"""Two commands of `hvj` at once: each deletes only what it has created itself and nobody else uses."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from cli.cluster_state import ClusterState
from cli.program import Hvj, Process, hvj_command
from horovodjob.client.cluster import kube
from horovodjob.client.errors import ClientError
from horovodjob.client.jobs.sweep import Sweep
from support.api_client import Object, wait_for

RUN = ("run", "--detach", "--quiet", "--name", "train", "train.py")
SWEEP = ("run", "--quiet", "--name", "digits", "--sweep", "lr=0.1,0.01", "train.py")


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with a script."""
    (tmp_path / "train.py").write_text("print(1)")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def has_its_code(cluster: ClusterState, job: Object) -> bool:
    """Whether the ConfigMap that the job mounts exists and belongs to the job."""
    mounted = [volume["configMap"]["name"] for volume in job["spec"]["volumes"] if "configMap" in volume]
    owners = {each["metadata"]["name"]: each["metadata"].get("ownerReferences") for each in cluster.codes()}
    return bool(mounted) and all([each["uid"] for each in owners[name]] == [job["metadata"]["uid"]] for name in mounted)


def test_of_two_runs_with_one_name_one_wins_and_keeps_its_code(cluster: ClusterState) -> None:
    processes = [Process(hvj_command(*RUN), stderr=subprocess.PIPE, text=True) for _ in range(2)]
    errors = [process.communicate()[1] for process in processes]
    assert sorted(process.returncode for process in processes) == [0, 1], errors
    job = cluster.api.get(f"{cluster.jobs}/train")
    assert has_its_code(cluster, job)
    assert len(cluster.codes()) == 1


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_run_that_loses_its_name_leaves_its_code_to_the_winner(
    hvj: Hvj, cluster: ClusterState, monkeypatch: pytest.MonkeyPatch, is_killed: bool
) -> None:
    create = kube.create_job

    def lose(job: Object, *, dry_run: bool = False) -> Object:
        if not dry_run and is_killed:  # the other command has found the same code, and is killed with its new job
            cluster.api.create(cluster.jobs, job)
        elif not dry_run:  # the code is created, and the other command is faster with the job
            subprocess.run(hvj_command(*RUN), check=True)
        return create(job, dry_run=dry_run)

    monkeypatch.setattr(kube, "create_job", lose)
    assert hvj(*RUN).code == 1
    assert has_its_code(cluster, cluster.api.get(f"{cluster.jobs}/train"))


def test_a_run_whose_code_the_loser_deletes_creates_it_again(
    hvj: Hvj, cluster: ClusterState, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = kube.create_job

    def win(job: Object, *, dry_run: bool = False) -> Object:
        made = create(job, dry_run=dry_run)
        if not dry_run:
            (code,) = cluster.codes()
            cluster.api.delete(f"/api/v1/namespaces/{cluster.namespace}/configmaps/{code['metadata']['name']}")
        return made

    monkeypatch.setattr(kube, "create_job", win)
    assert hvj(*RUN).code == 0
    assert has_its_code(cluster, cluster.api.get(f"{cluster.jobs}/train"))


def test_a_run_that_is_refused_leaves_no_code(hvj: Hvj, cluster: ClusterState, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(job: Object, *, dry_run: bool = False) -> Object:
        assert len(cluster.codes()) == (0 if dry_run else 1)
        return {} if dry_run else create({**job, "spec": {}})

    create = kube.create_job
    monkeypatch.setattr(kube, "create_job", refuse)
    assert hvj(*RUN).code == 1
    assert cluster.codes() == []


def test_a_run_after_the_deletion_of_its_predecessor_gets_code_of_its_own(hvj: Hvj, cluster: ClusterState) -> None:
    for _ in range(2):  # the garbage collector is about to delete the code of the first job
        assert hvj(*RUN).code == 0
        job = cluster.api.get(f"{cluster.jobs}/train")
        assert has_its_code(cluster, job)
        cluster.api.delete(f"{cluster.jobs}/train")
    wait_for("the code to be deleted with its job", lambda: cluster.codes() == [])


def test_a_sweep_that_fails_keeps_the_code_that_another_command_has_begun_to_use(
    hvj: Hvj, cluster: ClusterState, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        monkeypatch.setattr(Sweep, "run", lambda *_: None)
        assert hvj(*SWEEP).code == 1  # "no trial is complete": it has created the code's user, and no job
        raise ClientError("the first command fails now")

    monkeypatch.setattr(Sweep, "run", fail)
    done = hvj(*SWEEP)
    assert "the first command fails now" in done.stderr
    assert len(cluster.codes()) == 1


def test_the_pods_and_the_code_of_others_survive_the_end_of_a_command(
    hvj: Hvj, cluster: ClusterState, monkeypatch: pytest.MonkeyPatch
) -> None:
    from horovodjob.client.files import volume_pods

    labels = {"horovodjob.dev/role": "files", "app.kubernetes.io/managed-by": "hvj"}
    body: dict[str, Any] = {"metadata": {"name": "other", "labels": labels}}
    body["spec"] = {"containers": [{"name": "files", "image": "trainer:1"}]}
    cluster.api.create(cluster.pods, body)
    cluster.api.patch(f"{cluster.pods}/other/status", {"status": {"phase": "Failed"}})
    mine = volume_pods.volume_pod(cluster.create("train"), [], [])
    made = cluster.api.create(cluster.pods, mine)
    mine["metadata"]["uid"] = made["metadata"]["uid"]
    cluster.api.delete(f"{cluster.pods}/{made['metadata']['name']}", {"gracePeriodSeconds": 0})
    cluster.api.create(cluster.pods, {**mine, "metadata": {**mine["metadata"], "uid": ""}})  # another with its name
    volume_pods.delete(mine)
    assert {each["metadata"]["name"] for each in cluster.pods_of_hvj()} == {"other", made["metadata"]["name"]}


def test_the_code_of_a_sweep_that_begins_during_the_deletion_of_its_experiment_stays(
    hvj: Hvj, cluster: ClusterState, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert hvj("experiment", "create", "-n", "digits").code == 0
    labels = {"horovodjob.dev/experiment": "digits", "app.kubernetes.io/managed-by": "hvj"}
    metadata = {"name": "digits-code-1", "labels": labels}
    list_jobs = kube.jobs

    def begin(*arguments: Any) -> list[Object]:
        monkeypatch.setattr(kube, "jobs", begin_now)
        return list_jobs(*arguments)

    def begin_now(*arguments: Any) -> list[Object]:
        cluster.api.create(f"/api/v1/namespaces/{cluster.namespace}/configmaps", {"metadata": metadata})
        return list_jobs(*arguments)

    monkeypatch.setattr(kube, "jobs", begin)
    assert hvj("experiment", "delete", "-n", "digits", "-y").code == 0
    assert [each["metadata"]["name"] for each in cluster.codes()] == ["digits-code-1"]
