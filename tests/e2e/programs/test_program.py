"""The command line and the environment of a program: launcherCommand, mpi.args, inputs, outputs, umask."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from e2e.access import wait_for
from e2e.namespace import HELD, Namespace, volume

TWO = {"replicas": 2}
OWN_MPI = 'mpirun -np 2 --hostfile "$HOROVODJOB_HOSTFILE" sh -c \'echo "rank on $HOSTNAME"\'; echo once; exit 7'
SHOWS = 'echo "rank has ${#TOKEN} letters, $HOROVOD_STALL_SHUTDOWN_TIME_SECONDS s"'
WAITS = f"{SHOWS}; {HELD}"
LOOK_UP = 'until found=$(getent hosts named-worker-1.named); do sleep 0.2; done; echo "$found" | sed "s/ .*//"'
# Processes that could show a job's environment, by the way in which its ranks start.
TOKEN = "do-not-show-me"
SHOWN: dict[str, dict[str, Any]] = {
    "shown-mpirun": {"command": ["sh", "-c", WAITS]},
    "shown-elastic": {"command": ["sh", "-c", WAITS], "elastic": {}},
    "shown-own": {"launcherCommand": ["mpirun", "--hostfile", "$(HOROVODJOB_HOSTFILE)", "sh", "-c", WAITS]},
}
# A process can end before its command line is read.
COMMAND_LINES = 'for process in /proc/[0-9]*; do cat "$process/cmdline" 2>/dev/null; done; true'
WRITE = 'umask; echo "$AZ_BATCHAI_INPUT_SET"; echo x >"$AZ_BATCHAI_OUTPUT_MODEL/$OMPI_COMM_WORLD_RANK"'


@pytest.fixture(scope="module")
def share(shared_directory: Callable[[str], Path]) -> Path:
    return shared_directory("program")


@pytest.fixture(scope="module")
def namespace(module_namespace: Namespace, share: Path) -> Namespace:
    """The namespace, with all jobs in it."""
    volumes, mounts = volume(module_namespace, share)
    own: dict[str, Any] = {"launcherCommand": ["sh", "-c", OWN_MPI], "runPolicy": {"backoffLimit": 0}}
    module_namespace.apply(
        module_namespace.job("own", worker=TWO, **own),
        module_namespace.job(
            "options",
            ["sh", "-c", 'echo "<$GREETING> <$1>"', "sh", "a  'b' $(AZ_BATCHAI_NUM_GPUS)"],
            mpi={"args": ["-x", "GREETING=two  words", "--tag-output"]},
        ),
        *(
            module_namespace.job(
                name,
                env=[{"name": "TOKEN", "value": TOKEN}],
                worker=TWO,
                runPolicy={"progressDeadlineSeconds": 600},
                **spec,
            )
            for name, spec in SHOWN.items()
        ),
        module_namespace.job("named", LOOK_UP, worker=TWO, network={"service": True}),
        module_namespace.job(
            "paths",
            WRITE,
            worker=TWO,
            volumes=volumes,
            volumeMounts=mounts,
            inputs=[{"id": "SET", "path": "$(AZ_BATCHAI_JOB_MOUNT_ROOT)/share/my set"}],
            outputs=[{"id": "MODEL", "pathPrefix": "/data/", "pathSuffix": "models/best"}],
        ),
    )
    return module_namespace


def test_a_launchers_own_command_runs_once_starts_mpi_itself_and_has_the_exit_code(namespace: Namespace) -> None:
    status = namespace.wait_phase("own", "Failed")
    assert (status["exitCode"], status["errors"][-1]["reason"]) == (7, "RankFailed")
    assert "the launcher's command ended with exit code 7" in namespace.condition("own", "Failed")["message"]
    assert sorted(namespace.output("own")) == ["once", "rank on own-worker-0", "rank on own-worker-1"]


@pytest.mark.parametrize("name", SHOWN)
def test_ranks_have_the_environment_and_no_command_line_shows_it(namespace: Namespace, name: str) -> None:
    pods = [f"{name}-{which}" for which in ("launcher", "worker-0", "worker-1")]
    # Horovod's own check of stalls ends a minute after the least time of a first step.
    wait_for("the ranks", lambda: namespace.output(name).count(f"rank has {len(TOKEN)} letters, 3660 s") == 2)
    shown = {pod: namespace.exec(pod, "sh", "-c", COMMAND_LINES) for pod in pods}
    assert [pod for pod, words in shown.items() if "rank has" in words] == pods
    assert not [pod for pod, words in shown.items() if TOKEN in words]
    namespace.release(*pods[1:])
    namespace.wait_phase(name, "Succeeded")


def test_mpirun_gets_its_options_and_the_program_its_arguments_unchanged(namespace: Namespace) -> None:
    namespace.wait_phase("options", "Succeeded")
    assert namespace.output("options") == ["[1,0]<stdout>:<two  words> <a  'b' 0>"]


def test_workers_resolve_each_other_by_name_with_a_service(namespace: Namespace) -> None:
    namespace.wait_phase("named", "Succeeded")
    (worker,) = (pod for pod in namespace.pods_ever("named") if pod["metadata"]["name"] == "named-worker-1")
    assert namespace.output("named") == [worker["status"]["podIP"]] * 2


def test_variables_contain_the_paths_of_inputs_and_outputs_and_output_directories_exist(
    namespace: Namespace, share: Path
) -> None:
    status = namespace.wait_phase("paths", "Succeeded")
    assert sorted(namespace.output("paths")) == ["/mnt/batchai/mounts/share/my set"] * 2 + ["0022"] * 2
    made = share / status["outputPathSegment"] / "models" / "best"
    assert {file.name: file.stat().st_mode & 0o777 for file in made.iterdir()} == {"0": 0o644, "1": 0o644}
