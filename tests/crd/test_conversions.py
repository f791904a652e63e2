"""The API server accepts the output of the converters from job.json and MPIJobs."""

import copy
from typing import Any

import pytest

from crd.every_field import holds
from horovodjob.batchai.choices import Choices
from horovodjob.batchai.conversion import convert
from horovodjob.mpijob import conversion as mpijob
from support.api_client import Api
from support.batchai_documents import EVERYTHING, NFS_SERVERS, SMALL, toolkit
from unit.mpijob.test_conversion import MPIJOB

SCRIPT: dict[str, Any] = {"pythonScriptFilePath": "$AZ_BATCHAI_JOB_MOUNT_ROOT/share/train.py"}
DOCUMENTS = {
    "small": SMALL,
    "everything": EVERYTHING,
    "custom toolkit": toolkit("customToolkitSettings", commandLine="mpirun ./a > out"),
    "custom mpi": toolkit("customMpiSettings", commandLine="./a; ./b"),
    "tensorflow": toolkit("tensorFlowSettings", 1, **SCRIPT),
    "chainer": toolkit("chainerSettings", **SCRIPT, processCount=8),
}
COMMANDS = {
    "mpirun": None,
    "a program of the launcher": ["./start"],
    "elastic": ["horovodrun", "-np", "4", "--min-np", "2", "--max-np", "8", "./a"],
}


@pytest.mark.parametrize("document", DOCUMENTS.values(), ids=DOCUMENTS)
def test_a_converted_job_is_accepted(api: Api, jobs: str, document: Any) -> None:
    name = "Name_that_is_as_long_as_Batch_AI_allows_and_has_64_characters_0_"
    choices = Choices(experiment="Exp_1", nfs_servers=NFS_SERVERS)
    result = convert(document, name=name, namespace="default", choices=choices)
    for secret in result.secrets:
        api.create("/api/v1/namespaces/default/secrets?dryRun=All", secret)
    assert holds(api.create(f"{jobs}?dryRun=All", result.job)["spec"], result.job["spec"])


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_converted_mpijob_is_accepted(api: Api, jobs: str, command: list[str] | None) -> None:
    document = copy.deepcopy(MPIJOB)
    (container,) = document["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"]
    if command:
        container |= {"command": command, "args": []}
    result = mpijob.convert(document, namespace="default")
    assert holds(api.create(f"{jobs}?dryRun=All", result.job)["spec"], result.job["spec"])
