"""Environment variables of Batch AI that command lines and paths of job.json refer to."""

import re
from collections.abc import Collection, Mapping

from horovodjob.command_line import VARIABLE, argument, literal
from horovodjob.conversion import Notes

JOB_MOUNT_ROOT = "AZ_BATCHAI_JOB_MOUNT_ROOT"
JOB_TEMP = "AZ_BATCHAI_JOB_TEMP"
# Defined before everything else in the containers, so that other values can refer to them.
GENERATED = (JOB_MOUNT_ROOT, JOB_TEMP, "AZ_BATCHAI_STDOUTERR_DIR", "AZ_BATCHAI_MPI_HOST_FILE", "AZ_BATCHAI_NUM_GPUS")
# Variables with a new name: mounts of a cluster are now mounts of its jobs.
RENAMED = {
    "AZ_BATCHAI_MOUNT_ROOT": JOB_MOUNT_ROOT,
    "AZ_BATCHAI_JOB_TEMP_DIR": JOB_TEMP,
    "AZ_BATCHAI_NUM_GPUS_PER_NODE": "AZ_BATCHAI_NUM_GPUS",
}
RANK = "a rank finds its number in OMPI_COMM_WORLD_RANK (Open MPI) or PMI_RANK"
ABSENT = {
    "AZ_BATCHAI_SHARED_JOB_TEMP": "use a directory on a share",
    "AZ_BATCHAI_TASK_INDEX": RANK,
    "AZ_BATCHAI_PS_HOSTS": "there are no parameter servers",
    "AZ_BATCHAI_WORKER_HOSTS": "the addresses of the workers are in the file $AZ_BATCHAI_MPI_HOST_FILE",
    "AZ_BATCHAI_PYTORCH_INIT_METHOD": "ranks find each other through MPI",
    "AZ_BATCHAI_PYTORCH_BACKEND": "ranks find each other through MPI",
    "AZ_BATCH_HOST_LIST": "the addresses of the workers are in the file $AZ_BATCHAI_MPI_HOST_FILE",
    "AZ_BATCH_MASTER_NODE": "the first line of the file $AZ_BATCHAI_MPI_HOST_FILE is the address of worker 0",
    "AZ_BATCH_IS_CURRENT_NODE_MASTER": RANK,
}
MOUNT = re.compile(rf"\$\(?\{{?{JOB_MOUNT_ROOT}[)}}]?/([^\s\"';&|<>$]+)")


def with_todays_names(text: str) -> str:
    """The text with the new names of renamed variables."""
    pattern = rf"\$(\{{?|\()({'|'.join(RENAMED)})\b"
    return re.sub(pattern, lambda match: f"${match[1]}{RENAMED[match[2]]}", text)


def report_absent(text: str, known: Collection[str], path: str, notes: Notes) -> None:
    """Refuses references to variables of Batch AI that HorovodJob does not set."""
    for match in VARIABLE.finditer(text):
        name = match[1] or match[2] or match[3]
        if not name.startswith(("AZ_BATCHAI_", "AZ_BATCH_")) or name in known or name in RENAMED:
            continue
        if name.startswith(("AZ_BATCHAI_INPUT_", "AZ_BATCHAI_OUTPUT_")):
            kind = "inputDirectories" if "_INPUT_" in name else "outputDirectories"
            advice = f"add an entry with that id to {kind}"
        else:
            advice = ABSENT.get(name, "write the value that it stands for")
        notes.refuse(path, f"HorovodJob does not set ${name}: {advice}")


def expandable_path(text: str, variables: Mapping[str, bool], path: str, notes: Notes) -> str:
    """A path with its variables as $(NAME); refuses a variable that is not defined before it."""
    result = argument(text, variables)
    if result is None:
        names = ", ".join(f"${name}" for name in variables)
        notes.refuse(path, f"refers to a variable that is not defined there: the path can use {names}")
        return text
    return result


def environment_value(text: str, variables: Mapping[str, bool]) -> str:
    """A variable's value, with references to variables of Batch AI; any other `$` is literal."""
    result, position = [], 0
    for match in VARIABLE.finditer(text):
        name = match[1] or match[2] or match[3]
        if name in variables and name.startswith("AZ_BATCHAI_"):
            result += [literal(text[position : match.start()]), f"$({name})"]
            position = match.end()
    return "".join([*result, literal(text[position:])])
