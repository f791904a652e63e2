"""Variables whose names a shell cannot have reach every rank, with each MPI, whose directory is not in the PATH."""

from __future__ import annotations

import json
from typing import Any

import pytest

from e2e.namespace import Namespace
from e2e.programs.mpi import INSTALLED

OWN_VARIABLES = {"data-set": 'it\'s  "two" words', "plain": "3"}
VARIABLES = {"train.lr": "0.1", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "3660", **OWN_VARIABLES}
SHOW = (
    f"import json, os, sys; found = {{name: os.environ.get(name) for name in {[*VARIABLES]}}}; "
    "open('/dev/stdout', 'w').write('RANK ' + json.dumps(found) + chr(10))"
)
CONFIG = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"train.lr": "0.1"}}
OWN = 'mpirun -n 2 --hostfile "$HOROVODJOB_HOSTFILE" /opt/venv/bin/python3 -c "$1"'


@pytest.fixture(scope="module")
def namespace(module_namespace: Namespace, images: dict[str, str]) -> Namespace:
    """The namespace, with all jobs in it."""
    env = [{"name": name, "value": value} for name, value in OWN_VARIABLES.items()]
    common: dict[str, Any] = {
        "image": images["mpi"],
        "worker": {"replicas": 2},
        "env": env,
        "envFrom": [{"configMapRef": {"name": "settings"}}],
        "runPolicy": {"backoffLimit": 0, "progressDeadlineSeconds": 600},
    }
    jobs = [
        module_namespace.job(
            name,
            ["/opt/venv/bin/python3", "-c", SHOW],
            **common,
            mpi={"implementation": mpi.implementation, "prefix": mpi.directory},
        )
        for name, mpi in INSTALLED.items()
    ]
    own: dict[str, Any] = {"launcherCommand": ["sh", "-c", OWN, "sh", SHOW], "mpi": {"prefix": "/opt/openmpi"}}
    module_namespace.apply(CONFIG, *jobs, module_namespace.job("own", **common, **own))
    return module_namespace


@pytest.mark.parametrize("name", [*INSTALLED, "own"])
def test_every_rank_has_all_variables(namespace: Namespace, name: str) -> None:
    namespace.wait_phase(name, "Succeeded")
    lines = [line.partition("RANK ")[2] for line in namespace.output(name) if "RANK " in line]
    assert [json.loads(line) for line in lines] == [VARIABLES] * 2
