"""The steps of Microsoft's Batch AI tutorial, from docs/migration.md, to the trained model."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.access import Kubectl
from e2e.install import Operator
from e2e.namespace import RARELY, SLEEPING
from localcluster.settings import Cluster
from support.tutorial import page
from support.tutorial.azure import NODES, STORAGE_ACCOUNT, azure
from support.tutorial.files import MODEL, PAGE, write_files
from support.waiting_ranks import sleeping_library

LIBRARY = f"myshare/{Path(SLEEPING['value']).name}"
COLUMNS = [
    *("Name", "Resource Group", "Workspace", "VM Size", "State"),
    *("Idle", "Running", "Preparing", "Leaving", "Unusable"),
]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The user's directory: the script of 2018, the job.json of the page, an archive of images."""
    directory = tmp_path_factory.mktemp("tutorial")
    write_files(directory)
    # Four ranks share the processors of this machine, so those that wait sleep.
    file = directory / "job.json"
    job = json.loads(file.read_text())
    job["properties"]["environmentVariables"] = [RARELY, SLEEPING | {"value": f"/mnt/batchai/mounts/{LIBRARY}"}]
    file.write_text(json.dumps(job))
    return directory


@pytest.fixture(scope="module")
def outputs(
    local: Cluster,
    operator: Operator,
    gpus_alone: None,
    kubectl: Kubectl,
    images: dict[str, str],
    directory: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[str, str]]:
    """The output of each command of the page."""
    kubectl("delete", "namespace", "batchaidev", "--ignore-not-found")  # from an interrupted run
    with azure(local, tmp_path_factory.mktemp("azure")) as environment:
        environment["TRAINER_IMAGE"] = images["trainer"]
        found = {}
        for ran in page.run(PAGE, directory, environment):
            found[ran.command] = ran.output
            # So that the training has not ended before the commands that look at a running job.
            if ran.command.startswith("kubectl wait"):
                wait_ranks(kubectl)
                signal_mpirun(kubectl, "STOP")
            elif ran.command.startswith("hvj storage share create"):
                library = local.azure_files / STORAGE_ACCOUNT / LIBRARY
                assert sleeping_library(library.parent), "without a C compiler, ranks that wait use all processors"
            elif ran.command.startswith("hvj cluster show") and "nodeStateCounts" in ran.command:
                signal_mpirun(kubectl, "CONT")
        yield found


def wait_ranks(kubectl: Kubectl) -> None:
    """Waits until each worker has started its rank: Open MPI ends if it is stopped and continued before."""
    for index in range(NODES):
        started = "until ls /run/horovodjob/ranks/*; do sleep 0.2; done 2>/dev/null"
        kubectl("exec", "-n", "batchaidev", f"cifar-distributed-worker-{index}", "--", "sh", "-c", started)


def signal_mpirun(kubectl: Kubectl, name: str) -> None:
    kubectl("exec", "-n", "batchaidev", "cifar-distributed-launcher", "--", "pkill", f"-{name}", "mpirun")


def printed(outputs: dict[str, str], words: str) -> str:
    """The output of the only command that begins with these words."""
    (output,) = (output for command, output in outputs.items() if command.startswith(words))
    return output


def test_four_nodes_are_idle_before_the_job_and_run_it(outputs: dict[str, str]) -> None:
    before, during = (output for command, output in outputs.items() if command.startswith("hvj cluster show"))
    header, _, row = before.splitlines()
    assert re.split(r"\s{2,}", header.strip()) == COLUMNS
    assert row.split()[-6:] == ["steady", str(NODES), "0", "0", "0", "0"]
    assert json.loads(during)["runningNodeCount"] == NODES


def test_the_job_runs_with_the_output_format_of_batch_ai(outputs: dict[str, str]) -> None:
    assert json.loads(printed(outputs, "hvj job show")) == "running"


def test_its_files_are_listed_and_streamed(outputs: dict[str, str]) -> None:
    listed = printed(outputs, "hvj job file list")
    assert listed.splitlines()[0].split() == ["Name", "Type", "Size", "Modified"]
    assert {"stdout.txt", "stderr.txt"} <= {line.split()[0] for line in listed.splitlines()[2:]}
    streamed = printed(outputs, "hvj job file stream")
    assert streamed.count("Test accuracy: ") == NODES, "each rank prints, as the script says"


def test_the_model_is_downloaded(outputs: dict[str, str], directory: Path) -> None:
    import h5py  # not part of the environment that the other tests need

    with h5py.File(directory / MODEL) as file:
        assert {"model_weights", "optimizer_weights"} <= file.keys()


def test_the_pool_is_scaled_down_and_the_workspace_deleted(outputs: dict[str, str], kubectl: Kubectl) -> None:
    assert outputs
    assert kubectl("get", "nodes", "-l", "kubernetes.azure.com/agentpool=nc6cluster", "-o", "name") == ""
    assert kubectl("get", "namespace", "batchaidev", "--ignore-not-found", "-o", "name") == ""
