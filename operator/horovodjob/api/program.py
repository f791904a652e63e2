"""The program of a job: script, paths, preparation, mpirun and elastic ranks."""

from typing import Annotated

from pydantic import Field, StringConstraints

from horovodjob.api.base import Model, Text, validations
from horovodjob.api.constants import MpiImplementation


class Script(Model):
    """A program file that every rank runs as `interpreter path args`."""

    path: Annotated[str, StringConstraints(min_length=1, max_length=4096)] = Field(
        description="Path of the script in the containers; $(VAR) is replaced, so "
        "$(AZ_BATCHAI_JOB_MOUNT_ROOT)/share/train.py works."
    )
    interpreter: Annotated[str, StringConstraints(min_length=1, max_length=4096)] = Field(
        "python3", description="Program that runs the script."
    )
    args: tuple[Text, ...] = Field(
        (),
        description="Arguments of the script; as in a container, $(VAR) is replaced and $$ stands for $.",
        max_length=4096,
    )


PREFIX_RULE = "self.pathPrefix.startsWith('/') || self.pathPrefix.startsWith('$(')"
PREFIX_MESSAGE = (
    "must be an absolute path on a mounted volume, such as /data/logs or $(AZ_BATCHAI_JOB_MOUNT_ROOT)/share"
)
PathPrefix = Annotated[str, StringConstraints(min_length=1, max_length=4096)]
Identifier = Annotated[str, StringConstraints(min_length=1, max_length=63, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class Input(Model):
    """A path that ranks find in a variable."""

    id: Identifier = Field(description="Ranks find the path in AZ_BATCHAI_INPUT_<id>.")
    path: Annotated[str, StringConstraints(min_length=1, max_length=4096)] = Field(
        description="Any path; $(VAR) is replaced, so $(AZ_BATCHAI_JOB_MOUNT_ROOT)/share/data works."
    )


class Output(Model):
    """A directory that is made for this very job."""

    model_config = validations(
        (PREFIX_RULE, PREFIX_MESSAGE),
        (
            "!has(self.pathSuffix) || !self.pathSuffix.startsWith('/') && "
            "!self.pathSuffix.split('/').exists(part, part == '..')",
            "pathSuffix must be a relative path without .., such as models",
        ),
    )
    id: Identifier = Field(description="Ranks find the directory in AZ_BATCHAI_OUTPUT_<id>.")
    path_prefix: PathPrefix = Field(
        description="Directory on a mounted volume; the output is <pathPrefix>/<status.outputPathSegment>/<pathSuffix>."
    )
    path_suffix: Annotated[str, StringConstraints(max_length=1024)] | None = Field(
        None, description="Last part of the directory's path, which tells outputs with one prefix apart."
    )


class Preparation(Model):
    """What runs on every node with ranks before any rank; what it does to the file system stays."""

    command: Annotated[str, StringConstraints(min_length=1, max_length=131072)] = Field(
        description="Shell command, run once in each worker's container, again only in a worker that was replaced; "
        "$(VAR) is replaced and $$ stands for $."
    )
    timeout_seconds: int = Field(
        1800, ge=1, le=2147483647, description="Seconds after which it has failed if it has not ended."
    )


Cooldown = Annotated[int, Field(ge=1, le=3600)]


class Mpi(Model):
    """How mpirun is called."""

    implementation: MpiImplementation = Field(
        MpiImplementation.OPEN_MPI, description="Whose mpirun the image has: OpenMPI (4 or 5), MPICH or IntelMPI."
    )
    args: tuple[Text, ...] = Field(
        (), description="More options of mpirun, such as -x of Open MPI; $(VAR) is replaced.", max_length=1024
    )


class Elastic(Model):
    """Ranks that come and go while the training goes on."""

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
        description="Workers with which the job starts where there are not nodes for more, and goes on when others "
        "are lost.",
    )
    max_replicas: int = Field(10000, ge=1, le=10000, description="The most that worker.replicas can be set to.")
    reset_limit: int | None = Field(
        None,
        ge=1,
        le=2147483647,
        description="How often the ranks of an attempt can change before the attempt fails; default without limit.",
    )
    cooldown_seconds: tuple[Cooldown, ...] = Field(
        (5, 60),
        min_length=2,
        max_length=2,
        description="After a rank failed, its worker gets no ranks for so long: [least, most], growing with each time.",
    )


class Logs(Model):
    """Files that the job writes while it runs."""

    model_config = validations((PREFIX_RULE, PREFIX_MESSAGE))
    path_prefix: PathPrefix = Field(
        description="Directory on a mounted volume; files appear in "
        "<pathPrefix>/<status.outputPathSegment>/stdouterr/: stdout.txt, stderr.txt, execution-<pod>.log."
    )
