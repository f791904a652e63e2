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
    for name in ("first", "second"):
        cluster.create(name, labels={LABEL: "cifar"})
    cluster.run("first")
    table = hvj("experiment", "list", "-o", "table").stdout.splitlines()
    columns = ["Name", "Workspace", "Jobs", "Queued", "Running", "Suspended", "Succeeded", "Failed"]
    assert table[0].split() == columns
    assert table[2].split() == ["cifar", cluster.namespace, "2", "1", "1", "0", "0", "0"]


def test_deleting_an_experiment_deletes_its_jobs_and_no_others(hvj: Hvj, cluster: ClusterState) -> None:
    hvj("experiment", "create", "-n", "cifar")
    cluster.create("inside", labels={LABEL: "cifar"})
    cluster.create("outside", labels={LABEL: "other"})
    assert hvj("experiment", "delete", "-n", "cifar", "-y").code == 0
    assert hvj("experiment", "list", "--query", "[].name").data == ["other"]
    assert hvj("job", "list", "--query", "[].name").data == ["outside"]


def test_an_experiment_that_does_not_exist_is_not_found(hvj: Hvj, workspace: str) -> None:
    for command in ("show", "delete"):
        done = hvj("experiment", command, "-n", "cifar")
        assert done.code == 3
        assert done.stderr.startswith(f"error: experiment cifar does not exist in workspace {workspace};")


def test_two_names_that_are_equal_in_kubernetes_are_rejected(hvj: Hvj) -> None:
    assert hvj("experiment", "create", "-n", "Cifar_1").code == 0
    done = hvj("experiment", "create", "-n", "cifar-1")
    assert done.code == 1
    assert "which already belongs to experiment Cifar_1" in done.stderr


def test_a_missing_workspace_is_reported_with_the_command_that_creates_it(hvj: Hvj) -> None:
    done = hvj("experiment", "create", "-n", "cifar", "-w", "nowhere")
    assert done.code == 3
    assert "`hvj workspace create -w nowhere`" in done.stderr
