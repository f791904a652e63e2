"""Conversion of each toolkit, or its alternative."""

import shlex

import pytest

from horovodjob.api.constants import PodSecurity
from support.batchai_documents import HOROVOD, ROOT, Object, converted, problems, small, spec_of, toolkit, warnings

SCRIPT: Object = {"pythonScriptFilePath": f"{ROOT}/share/train.py"}
TRAINER = "example.azurecr.io/horovodjob-trainer:1.0"
PATH = "$(AZ_BATCHAI_JOB_MOUNT_ROOT)/share/train.py"


def test_a_horovod_script_keeps_its_interpreter_and_arguments() -> None:
    settings = HOROVOD | {"pythonInterpreterPath": "/opt/py/bin/python", "commandLineArgs": f"--dir={ROOT}/share -v"}
    assert spec_of(small(horovodSettings=settings))["script"] == {
        "path": PATH,
        "interpreter": "/opt/py/bin/python",
        "args": ["--dir=$(AZ_BATCHAI_JOB_MOUNT_ROOT)/share", "-v"],
    }


@pytest.mark.parametrize("key", ["chainerSettings", "cntkSettings"])
def test_a_python_script_of_chainer_and_cntk_becomes_the_command_of_each_rank(key: str) -> None:
    spec = spec_of(toolkit(key, **SCRIPT, commandLineArgs="-g 'a b'", processCount=4))
    assert spec["command"] == ["python", PATH, "-g", "a b"]
    assert spec["worker"]["slots"] == 2


def test_a_custom_toolkit_runs_in_a_launcher_that_hosts_ranks() -> None:
    line = f"mpirun --hostfile $AZ_BATCHAI_MPI_HOST_FILE --allow-run-as-root python {ROOT}/share/train.py"
    spec = spec_of(toolkit("customToolkitSettings", commandLine=line))
    assert spec["launcherCommand"][:3] == ["mpirun", "--hostfile", "$(AZ_BATCHAI_MPI_HOST_FILE)"]
    assert spec["launcher"] == {"asWorker": True}
    assert spec["worker"] == {"replicas": 2}
    document = toolkit("customToolkitSettings", commandLine=line)
    assert spec_of(document, as_worker=False)["launcher"] == {"asWorker": False}


def test_excluded_network_interfaces_are_not_repeated() -> None:
    document = toolkit("customToolkitSettings", commandLine="mpirun -mca btl_tcp_if_exclude docker0,lo -np 2 ./a")
    assert spec_of(document)["launcherCommand"] == ["mpirun", "-np", "2", "./a"]
    assert "if_exclude is omitted" in warnings(document)


def test_mpirun_is_not_started_by_each_rank() -> None:
    document = toolkit("customMpiSettings", commandLine="mpirun -np 2 python train.py")
    assert "remove mpirun" in problems(document)["properties.customMpiSettings.commandLine"]


def test_tensorflow_on_one_node_without_parameter_servers_becomes_a_script() -> None:
    document = toolkit("tensorFlowSettings", nodes=1, **SCRIPT, masterCommandLineArgs="--steps 5")
    assert spec_of(document)["script"] == {"path": PATH, "interpreter": "python", "args": ["--steps", "5"]}
    counts = {"workerCount": 1, "parameterServerCount": 0}
    assert spec_of(toolkit("tensorFlowSettings", nodes=1, **SCRIPT, **counts))["worker"] == {"replicas": 1}


@pytest.mark.parametrize(
    ("nodes", "settings", "field"),
    [
        (2, {"parameterServerCount": 1, "workerCount": 1}, ".parameterServerCount"),
        (1, {"parameterServerCommandLineArgs": "--job_name=ps"}, ".parameterServerCommandLineArgs"),
        (1, {"workerCount": 4}, ".workerCount"),
        (2, {"workerCount": 1}, ".workerCount"),
        (2, {}, ""),
    ],
)
def test_distributed_tensorflow_is_rejected_at_the_field_that_requests_it(
    nodes: int, settings: Object, field: str
) -> None:
    document = toolkit("tensorFlowSettings", nodes=nodes, **SCRIPT, **settings)
    found = problems(document)
    assert f"properties.tensorFlowSettings{field}" in found
    assert "Kubeflow Trainer" in " ".join(found.values()) or "nodeCount" in " ".join(found.values())


@pytest.mark.parametrize(
    ("key", "settings", "field", "word"),
    [
        ("cntkSettings", {"configFilePath": "a.cntk"}, ".configFilePath", "BrainScript"),
        ("cntkSettings", {"languageType": "brainscript", "configFilePath": "a"}, ".languageType", "BrainScript"),
        ("caffeSettings", {"configFilePath": "a.prototxt"}, "", "PyTorch"),
        ("caffe2Settings", SCRIPT, "", "Kubeflow Trainer"),
        ("pyTorchSettings", SCRIPT | {"communicationBackend": "gloo"}, ".communicationBackend", "Kubeflow Trainer"),
        ("pyTorchSettings", SCRIPT, ".communicationBackend", "MPI"),
    ],
)
def test_a_toolkit_without_mpi_is_rejected_with_an_alternative(
    key: str, settings: Object, field: str, word: str
) -> None:
    assert word in problems(toolkit(key, **settings))[f"properties.{key}{field}"]


def test_a_job_has_exactly_one_toolkit() -> None:
    assert "give exactly one" in problems(small(horovodSettings=None))["properties"]
    assert "horovodSettings and" in problems(small(customMpiSettings={"commandLine": "true"}))["properties"]


@pytest.mark.parametrize(
    "name", ["AZ_BATCHAI_TASK_INDEX", "AZ_BATCHAI_SHARED_JOB_TEMP", "AZ_BATCHAI_INPUT_NONE", "AZ_BATCH_HOST_LIST"]
)
def test_variables_that_no_rank_has_are_rejected(name: str) -> None:
    settings = HOROVOD | {"commandLineArgs": f"--x ${{{name}}}"}
    (found,) = problems(small(horovodSettings=settings)).items()
    assert found[0] == "properties.horovodSettings.commandLineArgs"
    assert name in found[1]


def test_intel_mpi_is_recognized_by_the_image_name() -> None:
    settings = {"imageSourceRegistry": {"image": "example/chainermn:IntelMPI"}}
    document = small(containerSettings=settings)
    assert spec_of(document)["mpi"] == {"implementation": "IntelMPI"}
    assert "correct spec.mpi.implementation" in warnings(document)


@pytest.mark.parametrize("document", [{}, {"jobPreparation": {"commandLine": "apt update; apt install -y git"}}])
def test_a_container_runs_as_root_as_in_batch_ai_unless_the_image_is_the_trainers(document: Object) -> None:
    assert spec_of(small(**document))["podSecurity"] == "Baseline"
    assert spec_of(small(**document), image="example/other:1")["podSecurity"] == "Baseline"
    assert "so the job has podSecurity: Baseline" in warnings(small(**document), image="example/other:1")
    assert spec_of(small(), image=TRAINER).get("podSecurity") is None


def test_an_option_sets_the_pod_security_level() -> None:
    root = small(jobPreparation={"commandLine": "apt install -y git"})
    assert spec_of(small(), pod_security=PodSecurity.RESTRICTED)["podSecurity"] == "Restricted"
    assert spec_of(small(), image=TRAINER, pod_security=PodSecurity.BASELINE)["podSecurity"] == "Baseline"
    assert "podSecurity" not in warnings(small(), pod_security=PodSecurity.RESTRICTED)
    assert "does not allow" in warnings(root, pod_security=PodSecurity.RESTRICTED)


@pytest.mark.parametrize(
    ("command", "installs_mpi"),
    [
        ("apt update; apt install -y mpi-default-dev mpi-default-bin", True),
        ("apt-get install -y libopenmpi-dev openssh-client", True),
        ("sh $AZ_BATCHAI_JOB_MOUNT_ROOT/share/install_mpi.sh", True),
        ("apt-get install -y intel-mpi-2018.3 mpich", True),
        ("pip install mpi4py", False),
        ("python -m compileall .", False),
        ("apt-get install -y git", False),
    ],
)
def test_the_launcher_hosts_ranks_where_the_preparation_installs_mpi(command: str, installs_mpi: bool) -> None:
    document = small(jobPreparation={"commandLine": command})
    assert spec_of(document).get("launcher") == ({"asWorker": True} if installs_mpi else None)
    assert ("launcher.asWorker is true" in warnings(document)) is installs_mpi
    assert spec_of(document, as_worker=False)["launcher"] == {"asWorker": False}
    assert "asWorker" not in warnings(document, as_worker=False)


@pytest.mark.parametrize("command", ["apt update; apt install -y git", "sudo true", "cd /x && pip install keras git"])
def test_a_preparation_that_needs_root_in_the_trainer_image_is_reported(command: str) -> None:
    document = small(jobPreparation={"commandLine": command})
    spec = spec_of(document, image=TRAINER)
    assert spec["preparation"] == {"command": command}
    assert spec["podSecurity"] == "Baseline"
    assert "properties.jobPreparation.commandLine: needs root" in warnings(document, image=TRAINER)


def test_a_preparation_without_root_keeps_pod_security_restricted_in_the_trainer_image() -> None:
    spec = spec_of(
        small(jobPreparation={"commandLine": "pip install --user keras x && echo $(date) $$"}), image=TRAINER
    )
    assert spec["preparation"]["command"] == "pip install --user keras x && echo $$(date) $$$"
    assert "podSecurity" not in spec


def test_a_preparation_with_bash_syntax_runs_in_bash() -> None:
    spec = spec_of(small(jobPreparation={"commandLine": "source /opt/env && echo 'a b'"}))
    assert shlex.split(spec["preparation"]["command"]) == ["/bin/bash", "-c", "source /opt/env && echo 'a b'"]


@pytest.mark.parametrize(
    ("command", "is_kept"),
    [
        ("apt update; apt install mpi-default-dev mpi-default-bin -y; pip install keras horovod", False),
        ("sudo apt-get -y install openmpi-bin openssh-server && pip3 install 'horovod[tensorflow]==0.13' keras", False),
        ("apt update; apt install -y git; pip install keras", True),
        ("pip install 'keras", True),
        ("pip install keras; ./fetch-data", True),
    ],
)
def test_a_preparation_that_installs_packages_of_the_trainer_image_is_removed(command: str, is_kept: bool) -> None:
    document = small(jobPreparation={"commandLine": command})
    trainer = converted(document, image="example.azurecr.io/horovodjob-trainer:1.0")
    assert ("preparation" in trainer.job["spec"]) is is_kept
    assert ("podSecurity" in trainer.job["spec"]) is is_kept
    assert ("properties.jobPreparation.commandLine: is omitted" in "\n".join(trainer.warnings)) is not is_kept
    assert "preparation" in spec_of(document, image="example/other:1")


def test_a_script_for_tensorflow_1_runs_unchanged_in_the_trainer_image() -> None:
    old = {"imageSourceRegistry": {"image": "tensorflow/tensorflow:1.8.0-gpu"}}
    trainer = "registry.example.com/horovodjob/trainer-gpu@sha256:0"
    document = small(containerSettings=old)
    assert spec_of(document, image=trainer)["script"]["interpreter"] == "horovodjob-compat"
    assert spec_of(document, image="example/other:1")["script"]["interpreter"] == "python"
    assert spec_of(small(), image=trainer)["script"]["interpreter"] == "python"
    given = small(containerSettings=old, horovodSettings=HOROVOD | {"pythonInterpreterPath": "python3"})
    assert spec_of(given, image=trainer)["script"]["interpreter"] == "python3"


@pytest.mark.parametrize(
    "toolkits",
    [
        {"horovodSettings": None, "customMpiSettings": {"commandLine": "./train"}},
        {"horovodSettings": None, "customToolkitSettings": {"commandLine": "mpirun ./train"}},
        {"horovodSettings": HOROVOD | {"pythonInterpreterPath": "python3"}},
    ],
)
def test_a_program_that_horovodjob_compat_does_not_run_is_not_warned_about(toolkits: Object) -> None:
    old = {"imageSourceRegistry": {"image": "tensorflow/tensorflow:1.8.0-gpu"}}
    assert "horovodjob-compat" not in warnings(small(containerSettings=old, **toolkits), image=TRAINER)


@pytest.mark.parametrize(
    ("toolkit_key", "framework"),
    [("pyTorchSettings", "PyTorch"), ("cntkSettings", "CNTK"), ("chainerSettings", "Chainer")],
)
def test_a_framework_that_the_trainer_image_lacks_is_warned_about(toolkit_key: str, framework: str) -> None:
    settings = HOROVOD | ({"communicationBackend": "MPI"} if framework == "PyTorch" else {})
    document = toolkit(toolkit_key, **settings)
    assert f"needs {framework}, which {TRAINER} does not have" in warnings(document, image=TRAINER)
    assert framework not in warnings(document, image="example/other:1")
