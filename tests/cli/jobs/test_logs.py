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


def test_each_line_begins_with_the_name_of_its_pod_and_pods_can_be_selected(
    hvj: Hvj, job: Object, cluster: ClusterState
) -> None:
    launcher, worker = ["loss: 1.1", "größer"], ["worker-0 | ready", "worker-0 | größer"]
    for options, lines in (
        ((), [*(f"launcher | {line}" for line in launcher), *worker]),
        (("--role", "launcher", "--no-prefix"), launcher),
        (("--worker", "0"), worker),
    ):
        assert hvj("job", "logs", "-n", "train", *options).stdout.splitlines() == lines
    cluster.create("waits")
    done = hvj("job", "logs", "-n", "waits")
    assert (done.code, "hvj job file list" in done.stderr) == (1, True)


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


def test_a_job_of_multikueue_has_its_pods_in_another_cluster(
    hvj: Hvj, cluster: ClusterState, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[Object | None] = [{"status": {"clusterName": "west"}}, None]

    def workload(_job: Object) -> Object:
        if answers[0] is None:
            raise ApiException(status=403)
        return answers[0]

    cluster.create(managedBy=MULTIKUEUE_NAME)
    for command in ("logs -n", "logs --follow -n", "top -n", "stacks -n", "node list -j"):
        result = hvj("job", *command.split(), "train")
        assert (result.code, result.stdout) == (1, "")
        assert "job train waits for MultiKueue to dispatch it to another cluster" in result.stderr
    monkeypatch.setattr(queues, "workload", workload)
    cluster.run()
    for place in ("cluster west", "another cluster, which the Workload of the job names"):
        for shown in (hvj("job", "logs", "-n", "train"), hvj("job", "show", "-n", "train")):
            assert f"job train runs in {place}" in shown.stderr
            assert f"`hvj job logs -n train -w {cluster.namespace} --context CONTEXT`" in shown.stderr
        name = answers[0] and "west"
        assert hvj("job", "show", "-n", "train", "-o", "json").data["workerCluster"] == name
        answers.reverse()
