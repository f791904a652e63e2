"""Kubeflow's MPIJobs as HorovodJobs, with a warning for each field that is not converted."""

import copy
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml

from horovodjob.mpijob.conversion import Conversion, ConversionError, convert
from support.batchai_documents import require_complete

Object = dict[str, Any]
COMMAND = "spec.mpiReplicaSpecs.Launcher.template.spec.containers[0].command"
MPIJOB = yaml.safe_load("""
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: train, namespace: team, labels: {kueue.x-k8s.io/queue-name: gpus}}
spec:
  slotsPerWorker: 2
  mpiReplicaSpecs:
    Launcher:
      template:
        spec:
          containers:
            - name: main
              image: example/train:1
              command: [mpirun, -np, "4", --allow-run-as-root, --bind-to, none, --map-by, slot]
              args: [-x, NCCL_DEBUG=INFO, -x, PATH, -mca, pml, ob1, python, train.py, --batch, "64"]
              resources: {limits: {cpu: 1}}
    Worker:
      replicas: 2
      template:
        spec:
          containers:
            - name: main
              image: example/train:1
              resources: {limits: {nvidia.com/gpu: 2, memory: 8Gi}, requests: {cpu: 4}}
""")


def mpijob(command: list[str] | None = None, **spec: Any) -> Object:
    document: Object = copy.deepcopy(MPIJOB)
    document["spec"] |= spec
    if command is not None:
        container(document, "Launcher").update({"command": command, "args": None})
    return document


def pod(document: Object, role: str) -> Object:
    found: Object = document["spec"]["mpiReplicaSpecs"][role]["template"]["spec"]
    return found


def container(document: Object, role: str) -> Object:
    found: Object = pod(document, role)["containers"][0]
    return found


def converted(document: Object, **options: Any) -> Conversion:
    result = convert(document, **options)
    require_complete(result.job["spec"])
    return result


def spec_of(document: Object, **options: Any) -> Object:
    spec: Object = converted(document, **options).job["spec"]
    return spec


def warnings(document: Object) -> str:
    return "\n".join(converted(document).warnings)


def problems(document: Any, **options: Any) -> dict[str, str]:
    with pytest.raises(ConversionError) as error:
        convert(document, **options)
    return {problem.path: problem.sentence for problem in error.value.problems}


@pytest.mark.parametrize("version", ["v1", "v2beta1"])
def test_the_command_after_mpirun_is_that_of_the_ranks(version: str) -> None:
    result = converted(mpijob() | {"apiVersion": f"kubeflow.org/{version}"})
    assert result.job["metadata"] == {
        "name": "train",
        "namespace": "team",
        "labels": {"kueue.x-k8s.io/queue-name": "gpus"},
    }
    assert result.job["spec"] == {
        "image": "example/train:1",
        "worker": {
            "replicas": 2,
            "gpus": 2,
            "resources": {"requests": {"cpu": 4}, "limits": {"memory": "8Gi"}},
        },
        "launcher": {"resources": {"limits": {"cpu": 1}}},
        "command": ["python", "train.py", "--batch", "64"],
        "mpi": {"args": ["-mca", "pml", "ob1"]},
        "env": [{"name": "NCCL_DEBUG", "value": "INFO"}],
        "podSecurity": "Baseline",
    }


@pytest.mark.parametrize(
    "command",
    [
        ["mpirun", "-n", "4", "python", "a.py", "-n", "x"],
        ["/usr/bin/mpiexec", "--np=4", "python", "a.py", "-n", "x"],
        ["sh", "-c", "exec mpirun -np 4 python a.py -n x"],
        ["/bin/bash", "-lc", "mpirun -np 4 \\\n  python a.py -n 'x'"],
        ["horovodrun", "-np", "4", "-H", "a:2,b:2", "--verbose", "python", "a.py", "-n", "x"],
    ],
)
def test_the_program_is_found_in_every_form_of_the_mpirun_command_line(command: list[str]) -> None:
    spec = spec_of(mpijob(command))
    assert spec["command"] == ["python", "a.py", "-n", "x"]
    assert "mpi" not in spec


@pytest.mark.parametrize("option", [["--bind-to", "core"], ["-mca", "btl_tcp_if_exclude", "lo"], ["-H", "a,b"]])
def test_an_unsupported_option_causes_a_warning(option: list[str]) -> None:
    document = mpijob(["mpirun", *option, "python", "a.py"])
    assert "mpi" not in spec_of(document)
    assert f"{COMMAND}: the option {' '.join(option[:2])}" in warnings(document)


def test_variables_in_hydra_options_become_variables_of_the_job() -> None:
    spec = spec_of(mpijob(["mpirun", "-n", "4", "-genv", "A", "1", "./a"], mpiImplementation="Intel"))
    assert spec["env"] == [{"name": "A", "value": "1"}]
    assert spec["mpi"] == {"implementation": "IntelMPI"}


@pytest.mark.parametrize(
    "command",
    [
        ["./start.sh"],
        ["mpirun", "--new-option", "x", "python", "a.py"],
        ["mpirun", "-np", "2", "a", ":", "-np", "2", "b"],
        ["sh", "-c", "mpirun -np $N python a.py"],
        ["sh", "-c", "sleep 5; mpirun python a.py"],
    ],
)
def test_another_command_becomes_the_launcher_command(command: list[str]) -> None:
    spec = spec_of(mpijob(command))
    assert spec["launcherCommand"] == command
    assert {"name": "OMPI_MCA_orte_default_hostfile", "value": "$(HOROVODJOB_HOSTFILE)"} in spec["env"]
    assert COMMAND in warnings(mpijob(command))


def test_the_path_of_the_kubeflow_hostfile_is_replaced() -> None:
    command = ["sh", "-c", "mpirun --hostfile /etc/mpi/hostfile a; mpirun --hostfile $OMPI_MCA_orte_default_hostfile b"]
    text = spec_of(mpijob(command))["launcherCommand"][2]
    assert text == "mpirun --hostfile $(HOROVODJOB_HOSTFILE) a; mpirun --hostfile $(HOROVODJOB_HOSTFILE) b"


def test_the_number_of_processes_determines_the_slots() -> None:
    document = mpijob(["mpirun", "-np", "8", "a"])
    assert spec_of(document)["worker"]["slots"] == 4
    assert "mpirun starts 8 processes: 4 on each of 2 workers" in warnings(document)
    assert "mpirun starts 3 processes, and the job has 4" in warnings(mpijob(["mpirun", "-np", "3", "a"]))


def test_elastic_horovod_becomes_an_elastic_job() -> None:
    options = ["--host-discovery-script", "/etc/mpi/discover_hosts.sh", "--min-np", "2", "--max-np", "8"]
    spec = spec_of(mpijob(["horovodrun", "-np", "4", *options, "--reset-limit", "5", "python", "a.py"]))
    assert spec["elastic"] == {"minReplicas": 1, "maxReplicas": 4, "resetLimit": 5}
    assert spec["command"] == ["python", "a.py"]
    assert spec["worker"]["replicas"] == 2


def test_a_launcher_as_worker_is_one_of_the_replicas() -> None:
    spec = spec_of(mpijob(["mpirun", "a"], runLauncherAsWorker=True))
    assert spec["launcher"]["asWorker"] is True
    assert spec["worker"]["replicas"] == 3


def test_a_job_without_workers_runs_in_its_launcher() -> None:
    document = mpijob(["mpirun", "a"])
    container(document, "Launcher")["resources"] = {"limits": {"nvidia.com/gpu": 1}}
    del document["spec"]["mpiReplicaSpecs"]["Worker"]
    spec = spec_of(document)
    assert spec["worker"] == {"replicas": 1, "gpus": 1, "slots": 2}
    assert spec["launcher"] == {"asWorker": True}


def test_workers_without_gpus_request_none() -> None:
    document = mpijob(["mpirun", "a"], slotsPerWorker=1)
    container(document, "Worker")["resources"] = {"limits": {"cpu": 0.5, "amd.com/gpu": 1}}
    worker = spec_of(document)["worker"]
    assert worker == {"replicas": 2, "gpus": 0, "resources": {"limits": {"cpu": "0.5", "amd.com/gpu": 1}}}
    assert spec_of(document, gpus=4)["worker"]["gpus"] == 4


def test_the_run_policy_is_kept() -> None:
    policy = {
        "cleanPodPolicy": "All",
        "suspend": True,
        "ttlSecondsAfterFinished": 60,
        "activeDeadlineSeconds": 3600,
        "backoffLimit": 2,
    }
    assert spec_of(mpijob(runPolicy=policy))["runPolicy"] == policy
    assert spec_of(mpijob(cleanPodPolicy="None"))["runPolicy"] == {"cleanPodPolicy": "None"}


@pytest.mark.parametrize(
    ("before", "after"), [("kueue.x-k8s.io/multikueue",) * 2, ("kubeflow.org/mpi-operator", None), (None, None)]
)
def test_another_controller_is_kept_at_the_top_of_the_spec(before: str | None, after: str | None) -> None:
    policy = {"managedBy": before} if before else {}
    spec = spec_of(mpijob(runPolicy=policy))
    assert (spec.get("managedBy"), spec.get("runPolicy")) == (after, None)


def test_a_scheduling_policy_becomes_a_volcano_gang() -> None:
    policy = {"queue": "q", "priorityClass": "high", "scheduleTimeoutSeconds": 90, "minAvailable": 3}
    document = mpijob(runPolicy={"schedulingPolicy": policy})
    result = converted(document)
    assert result.job["spec"]["scheduling"] == {"gang": "Volcano", "timeoutSeconds": 90}
    assert result.job["spec"]["priorityClassName"] == "high"
    assert result.job["metadata"]["annotations"] == {"scheduling.volcano.sh/queue-name": "q"}
    assert "spec.runPolicy.schedulingPolicy.minAvailable: is omitted" in "\n".join(result.warnings)


def test_fields_of_both_roles_become_fields_of_the_job() -> None:
    document = mpijob()
    for role in ("Launcher", "Worker"):
        pod(document, role).update(
            serviceAccountName="trainer",
            volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        )
        container(document, role).update(
            env=[{"name": "DATA", "value": "/data"}],
            volumeMounts=[{"name": "data", "mountPath": "/data"}],
            imagePullPolicy="Always",
        )
    spec = spec_of(document)
    assert (spec["serviceAccountName"], spec["imagePullPolicy"]) == ("trainer", "Always")
    assert spec["volumes"] == [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    assert spec["volumeMounts"] == [{"name": "data", "mountPath": "/data"}]
    assert {"name": "DATA", "value": "/data"} in spec["env"]
    assert "template" not in spec["worker"] | spec["launcher"]


def test_fields_of_one_role_stay_in_its_template() -> None:
    document = mpijob()
    toleration = {"key": "sku", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"}
    pod(document, "Worker").update(
        tolerations=[toleration],
        initContainers=[{"name": "fetch", "image": "example/fetch:1"}],
        volumes=[{"name": "scratch", "emptyDir": {}}],
    )
    container(document, "Worker").update(
        volumeMounts=[{"name": "scratch", "mountPath": "/scratch"}], workingDir="/work", lifecycle={}
    )
    pod(document, "Launcher")["nodeSelector"] = {"kind": "cpu"}
    pod(document, "Launcher")["containers"].append({"name": "side", "image": "example/side:1"})
    container(document, "Launcher").update(image="example/launch:1", env=[{"name": "ONLY", "value": "1"}])
    spec = spec_of(document)
    assert spec["worker"]["template"]["spec"] == {
        "tolerations": [toleration],
        "initContainers": [{"name": "fetch", "image": "example/fetch:1"}],
        "volumes": [{"name": "scratch", "emptyDir": {}}],
        "containers": [
            {
                "name": "worker",
                "workingDir": "/work",
                "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
            }
        ],
    }
    main, side = spec["launcher"]["template"]["spec"]["containers"]
    assert main == {"name": "launcher", "image": "example/launch:1", "env": [{"name": "ONLY", "value": "1"}]}
    assert side == {"name": "side", "image": "example/side:1"}


@pytest.mark.parametrize(
    ("fields", "level"),
    [
        ({}, "Baseline"),
        ({"sshAuthMountPath": "/home/mpiuser/.ssh"}, None),
    ],
)
def test_pods_run_as_root_where_those_of_the_mpijob_did(fields: Object, level: str | None) -> None:
    document = mpijob(["mpirun", "a"], **fields)
    assert spec_of(document).get("podSecurity") == level
    for role in ("Launcher", "Worker"):
        container(document, role)["securityContext"] = {"runAsUser": 1000}
    assert "podSecurity" not in spec_of(document)
    container(document, "Worker")["securityContext"] = {"runAsUser": 0}
    assert spec_of(document)["podSecurity"] == "Baseline"


def test_the_main_container_of_version_1_can_be_named() -> None:
    document = mpijob(mainContainer="main") | {"apiVersion": "kubeflow.org/v1"}
    pod(document, "Launcher")["containers"].insert(0, {"name": "side", "image": "example/side:1"})
    spec = spec_of(document)
    assert spec["command"] == ["python", "train.py", "--batch", "64"]
    assert spec["launcher"]["template"]["spec"]["containers"] == [{"name": "side", "image": "example/side:1"}]


def test_options_override_the_file() -> None:
    job = converted(mpijob(), name="Other_1", namespace="n", experiment="e", pool="gpunp", image="b:2").job
    assert job["metadata"]["name"] == "other-1"
    assert job["metadata"]["namespace"] == "n"
    assert job["metadata"]["labels"]["horovodjob.dev/experiment"] == "e"
    assert (job["spec"]["pool"], job["spec"]["image"]) == ("gpunp", "b:2")


def test_all_problems_are_reported_at_once() -> None:
    document = mpijob(slotsPerWorker="many", mpiImplementation="LAM", runPolicy={"backoffLimit": -1})
    container(document, "Launcher").update(command=None, args=None)
    container(document, "Worker")["image"] = None
    container(document, "Launcher")["image"] = None
    assert set(problems(document | {"apiVersion": "kubeflow.org/v1alpha1"}, pool="A_B")) == {
        "apiVersion",
        "spec.slotsPerWorker",
        "spec.mpiImplementation",
        "spec.runPolicy.backoffLimit",
        COMMAND,
        "spec.mpiReplicaSpecs.Worker.template.spec.containers[0].image",
        "--cluster",
    }


@pytest.mark.parametrize("document", [None, [], {}, {"kind": "MPIJob"}, {"spec": 5}, {"spec": {"mpiReplicaSpecs": {}}}])
def test_a_document_that_is_no_mpijob_is_rejected(document: object) -> None:
    assert problems(document)


@pytest.mark.parametrize("value", [float("inf"), float("nan"), "\ud800", datetime(2018, 7, 18, tzinfo=UTC)])
def test_a_value_outside_json_is_rejected(value: object) -> None:
    document = mpijob()
    pod(document, "Worker")["affinity"] = {"value": value}
    assert "JSON" in problems(document)[""]
