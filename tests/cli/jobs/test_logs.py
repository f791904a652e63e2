"""`hvj job logs`: the output of launcher and workers, each line with the name of its pod."""

import pytest
from kubernetes.client import ApiException

from cli.cluster_state import ClusterState
from cli.kubelet import BREAK, NODE, Kubelet, Log
from cli.program import Hvj, hvj_process
from horovodjob.api.constants import MULTIKUEUE_NAME
from horovodjob.client.cluster import queues
from support.api_client import Object


@pytest.fixture
def job(cluster: ClusterState, kubelet: Kubelet) -> Object:
    """A job with a launcher and a worker that have written lines."""
    created = cluster.create()
    for role, line in (("launcher", "loss: 1.1"), ("worker", "ready")):
        pod = cluster.pod(created, role, node=NODE)
        kubelet.log(cluster.namespace, pod["metadata"]["name"]).write(line, "größer")
    return created


def test_each_line_begins_with_the_name_of_its_pod(hvj: Hvj, job: Object) -> None:
    assert hvj("job", "logs", "-n", "train").stdout.splitlines() == [
        "launcher | loss: 1.1",
        "launcher | größer",
        "worker-0 | ready",
        "worker-0 | größer",
    ]


@pytest.mark.parametrize(
    ("options", "lines"),
    [
        (("--role", "launcher", "--no-prefix"), ["loss: 1.1", "größer"]),
        (("--worker", "0"), ["worker-0 | ready", "worker-0 | größer"]),
    ],
)
def test_pods_can_be_selected(hvj: Hvj, job: Object, options: tuple[str, ...], lines: list[str]) -> None:
    assert hvj("job", "logs", "-n", "train", *options).stdout.splitlines() == lines


def test_a_job_without_pods_is_reported_with_the_command_for_its_files(hvj: Hvj, cluster: ClusterState) -> None:
    cluster.create()
    done = hvj("job", "logs", "-n", "train")
    assert done.code == 1
    assert "hvj job file list" in done.stderr


def test_following_continues_after_a_restart_and_ends_with_the_job(
    job: Object, cluster: ClusterState, kubelet: Kubelet
) -> None:
    namespace = cluster.namespace
    first = kubelet.log(namespace, "train-launcher")
    with hvj_process("job", "logs", "-f", "-n", "train", "--role", "launcher") as process:
        assert process.stdout
        assert [process.stdout.readline() for _ in range(2)] == ["launcher | loss: 1.1\n", "launcher | größer\n"]
        first.end()
        cluster.end("train-launcher", "launcher")
        cluster.api.delete(f"{cluster.pods}/train-launcher")
        second = kubelet.logs[f"{namespace}/train-launcher"] = Log()
        second.write("again")
        cluster.pod(job, "launcher", node=NODE, attempt=2)
        assert process.stdout.readline() == "launcher | again\n"
        cluster.succeed()
        second.write("done")
        second.end()
        cluster.end("train-launcher", "launcher")
        assert process.communicate() == ("launcher | done\n", "")
        assert process.returncode == 0


def test_an_interrupted_connection_loses_and_repeats_no_line(
    job: Object, cluster: ClusterState, kubelet: Kubelet
) -> None:
    log = kubelet.log(cluster.namespace, "train-worker-0")
    log.write("before", BREAK, "after")
    with hvj_process("job", "logs", "-f", "-n", "train", "--worker", "0", "--no-prefix") as process:
        assert process.stdout
        lines = [process.stdout.readline().rstrip("\n") for _ in range(5)]
        assert lines == ["ready", "größer", "before", BREAK, "after"]
        assert log.broken.is_set()


@pytest.mark.parametrize("command", ["logs -n", "logs --follow -n", "top -n", "stacks -n", "node list -j"])
def test_a_job_of_multikueue_has_its_pods_in_another_cluster(hvj: Hvj, cluster: ClusterState, command: str) -> None:
    cluster.create(managedBy=MULTIKUEUE_NAME)
    result = hvj("job", *command.split(), "train")
    assert (result.code, result.stdout) == (1, "")
    assert "job train waits for MultiKueue to dispatch it to another cluster" in result.stderr


@pytest.mark.parametrize(
    ("cluster_name", "place"),
    [("west", "cluster west"), (None, "another cluster, which the Workload of the job names")],
)
def test_the_logs_of_a_job_of_multikueue_are_read_in_its_cluster(
    hvj: Hvj, cluster: ClusterState, monkeypatch: pytest.MonkeyPatch, cluster_name: str | None, place: str
) -> None:
    def workload(_job: Object) -> Object:
        if cluster_name is None:
            raise ApiException(status=403)
        return {"status": {"clusterName": cluster_name}}

    monkeypatch.setattr(queues, "workload", workload)
    cluster.create(managedBy=MULTIKUEUE_NAME)
    cluster.run()
    command = f"hvj job logs -n train -w {cluster.namespace} --context CONTEXT"
    for shown in (hvj("job", "logs", "-n", "train"), hvj("job", "show", "-n", "train")):
        assert f"job train runs in {place}" in shown.stderr
        assert f"`{command}`" in shown.stderr
    assert hvj("job", "show", "-n", "train", "-o", "json").data["workerCluster"] == cluster_name
