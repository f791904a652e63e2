"""The program of a job: script, paths, preparation, mpirun and elastic ranks."""

from typing import Annotated

from pydantic import Field, StringConstraints

from horovodjob.api.base import Model, Text, validations
from horovodjob.api.constants import MpiImplementation


class Script(Model):
    """A program file, which each rank runs as `interpreter path args`."""

    path: Annotated[str, StringConstraints(min_length=1, max_length=4096)] = Field(
        description="Path of the script in the containers, such as $(AZ_BATCHAI_JOB_MOUNT_ROOT)/share/train.py; "
        "$(VAR) is replaced by the value of a variable."
    )
    interpreter: Annotated[str, StringConstraints(min_length=1, max_length=4096)] = Field(
        "python3", description="Program that runs the script."
    )
    args: tuple[Text, ...] = Field(
        (),
        description="Arguments of the script. As in a container, $(VAR) is replaced and $$ is an escaped $.",
        max_length=4096,
    )


PREFIX_RULE = "self.pathPrefix.startsWith('/') || self.pathPrefix.startsWith('$(')"
PREFIX_MESSAGE = (
    "must be an absolute path on a mounted volume, such as /data/logs or $(AZ_BATCHAI_JOB_MOUNT_ROOT)/share"
)
PathPrefix = Annotated[str, StringConstraints(min_length=1, max_length=4096)]
Identifier = Annotated[str, StringConstraints(min_length=1, max_length=63, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class Input(Model):
    """A path that is the value of an environment variable."""

    id: Identifier = Field(description="Part of the name of the variable, AZ_BATCHAI_INPUT_<id>.")
    path: Annotated[str, StringConstraints(min_length=1, max_length=4096)] = Field(
        description="Any path, such as $(AZ_BATCHAI_JOB_MOUNT_ROOT)/share/data; $(VAR) is replaced."
    )


class Output(Model):
    """A directory that is created for this job alone."""

    model_config = validations(
        (PREFIX_RULE, PREFIX_MESSAGE),
        (
            "!has(self.pathSuffix) || !self.pathSuffix.startsWith('/') && "
            "!self.pathSuffix.split('/').exists(part, part == '..')",
            "pathSuffix must be a relative path without .., such as models",
        ),
    )
    id: Identifier = Field(description="Part of the name of the variable with the directory, AZ_BATCHAI_OUTPUT_<id>.")
    path_prefix: PathPrefix = Field(
        description="Directory on a mounted volume; the output is <pathPrefix>/<status.outputPathSegment>/<pathSuffix>."
    )
    path_suffix: Annotated[str, StringConstraints(max_length=1024)] | None = Field(
        None, description="Last part of the path of the directory, to distinguish outputs with the same prefix."
    )


class Preparation(Model):
    """A command that runs in each container with ranks before any rank; its changes of the file system persist."""

    command: Annotated[str, StringConstraints(min_length=1, max_length=131072)] = Field(
        description="Shell command that runs once in the container of each worker, and again only in the replacement "
        "of a worker. $(VAR) is replaced and $$ is an escaped $."
    )
    timeout_seconds: int = Field(
        1800, ge=1, le=2147483647, description="Seconds after which the attempt fails if the command has not ended."
    )


Cooldown = Annotated[int, Field(ge=1, le=3600)]


class Mpi(Model):
    """Options of mpirun."""

    implementation: MpiImplementation = Field(
        MpiImplementation.OPEN_MPI, description="MPI implementation of the image: OpenMPI (4 or 5), MPICH or IntelMPI."
    )
    args: tuple[Text, ...] = Field(
        (), description="Additional options of mpirun, such as -x of Open MPI; $(VAR) is replaced.", max_length=1024
    )
    prefix: Annotated[str, StringConstraints(max_length=1024, pattern=r"^/[^:\s]*$")] | None = Field(
        None,
        description="Installation directory of MPI in the image, such as /opt/amazon/openmpi, if its bin is not in the "
        "PATH: bin comes first in the PATH of all pods, and lib in LD_LIBRARY_PATH.",
    )


class Elastic(Model):
    """Elastic training: ranks join and leave while the training continues."""

    model_config = validations(
        (
            "!has(self.cooldownSeconds) || self.cooldownSeconds[0] <= self.cooldownSeconds[1]",
            "cooldownSeconds must be [least, most]",
        ),
    )
    min_replicas: int = Field(
        1,
        ge=1,
        le=10000,
        description="Minimum number of workers. The job starts with fewer than worker.replicas if there are no nodes "
        "for more, and continues when workers are lost.",
    )
    max_replicas: int = Field(10000, ge=1, le=10000, description="Maximum of worker.replicas.")
    reset_limit: int | None = Field(
        None,
        ge=1,
        le=2147483647,
        description="How often the ranks of an attempt can change before the attempt fails; default unlimited.",
    )
    cooldown_seconds: tuple[Cooldown, ...] = Field(
        (5, 60),
        min_length=2,
        max_length=2,
        description="Seconds without new ranks for a worker after one of its ranks failed: [minimum, maximum]. The "
        "time increases with each failure.",
    )


class Logs(Model):
    """Files with the output of the job."""

    model_config = validations((PREFIX_RULE, PREFIX_MESSAGE))
    path_prefix: PathPrefix = Field(
        description="Directory on a mounted volume. The files are in "
        "<pathPrefix>/<status.outputPathSegment>/stdouterr/: stdout.txt, stderr.txt, execution-<pod>.log."
    )
