"""`hvj experiment`: jobs with one label."""

from cli.cluster_state import ClusterState
from cli.program import Hvj

LABEL = "horovodjob.dev/experiment"


def test_an_experiment_without_jobs_exists_after_its_creation(hvj: Hvj, workspace: str) -> None:
    created = hvj("experiment", "create", "-g", "batchai.horovod", "-w", workspace, "--name", "cifar").data
    assert (created["name"], created["jobs"]["total"]) == ("cifar", 0)
    assert hvj("experiment", "create", "-n", "cifar").data == created
    assert hvj("experiment", "show", "-n", "cifar").data == created
    assert hvj("experiment", "list", "--query", "[].name").data == ["cifar"]


def test_an_experiment_of_jobs_created_with_kubectl_is_listed_with_their_states(
    hvj: Hvj, cluster: ClusterState
) -> None:
    for name in ("first", "second", "third"):
        cluster.create(name, labels={LABEL: "cifar"})
    cluster.run("first")
    cluster.report("third", phase="Suspended", executionState="queued")
    table = hvj("experiment", "list", "-o", "table").stdout.splitlines()
    columns = ["Name", "Workspace", "Jobs", "Queued", "Running", "Suspended", "Succeeded", "Failed"]
    assert table[0].split() == columns
    assert table[2].split() == ["cifar", cluster.namespace, "3", "1", "1", "1", "0", "0"]
    assert hvj("job", "list", "--query", "[?name=='third'].[state, executionState]").data == [["suspended", "queued"]]


def test_deleting_an_experiment_deletes_its_jobs_and_no_others(hvj: Hvj, cluster: ClusterState) -> None:
    hvj("experiment", "create", "-n", "cifar")
    cluster.create("inside", labels={LABEL: "cifar"})
    cluster.create("outside", labels={LABEL: "other"})
    assert hvj("experiment", "delete", "-n", "cifar", "-y").code == 0
    assert hvj("experiment", "list", "--query", "[].name").data == ["other"]
    assert hvj("job", "list", "--query", "[].name").data == ["outside"]


def test_names_that_do_not_exist_or_are_equal_in_kubernetes_are_errors(hvj: Hvj, workspace: str) -> None:
    for command in ("show", "delete"):
        done = hvj("experiment", command, "-n", "cifar")
        assert done.code == 3
        assert done.stderr.startswith(f"error: experiment cifar does not exist in workspace {workspace};")
    assert hvj("experiment", "create", "-n", "Cifar_1").code == 0
    done = hvj("experiment", "create", "-n", "cifar-1")
    assert done.code == 1
    assert "which already belongs to experiment Cifar_1" in done.stderr
    done = hvj("experiment", "create", "-n", "cifar", "-w", "nowhere")
    assert done.code == 3
    assert "`hvj workspace create -w nowhere`" in done.stderr
