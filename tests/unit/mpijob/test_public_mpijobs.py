"""Constructs of public MPIJobs: what each becomes, and the words of the warning about what it does not become.

Each case is a reduced manifest with one construct; most names end with a public repository whose MPIJobs have it.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from horovodjob.mpijob.launcher import SSH_CONFIG
from horovodjob.mpirun import PARAMETER_VARIABLE
from horovodjob_operator.domain import names
from horovodjob_operator.start_scripts import SCRIPTS
from unit.mpijob.test_conversion import MPIJOB, Object, container, converted, mpijob, pod

KEY = {"name": "API_KEY", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "api"}}}
KEY_OF_WORKERS = {"name": "API_KEY", "valueFrom": {"secretKeyRef": {"name": "other", "key": "api"}}}
HOSTFILE, HOSTS = "/etc/mpi/hostfile", "$(HOROVODJOB_HOSTFILE)"
KUBEFLOW_JOB = "training.kubeflow.org/job-name"
SELECTOR = {
    "matchLabels": {KUBEFLOW_JOB: "train", "training.kubeflow.org/job-role": "worker"},
    "matchExpressions": [
        {"key": "training.kubeflow.org/replica-type", "operator": "In", "values": ["Worker"]},
        {"key": "training.kubeflow.org/operator-name", "operator": "In", "values": ["mpi-operator"]},
    ],
}
OWN_SELECTOR = {
    "matchLabels": {"horovodjob.dev/job": "train", "horovodjob.dev/role": "worker"},
    "matchExpressions": [
        {"key": "horovodjob.dev/role", "operator": "In", "values": ["worker"]},
        {"key": "app.kubernetes.io/managed-by", "operator": "In", "values": ["horovodjob-operator"]},
    ],
}
HOROVODRUN = "horovodrun -np 2 --min-np 2 --blacklist-cooldown-range 30 100 --log-level INFO ./a"
ORDER: Object = {"name": "order", "image": "example/order:1"}
PARAMETERS = (("btl_tcp_if_include", "eth1"), ("btl_tcp_if_exclude", "lo"), ("coll_hcoll_enable", "0"))


@dataclass(frozen=True)
class Case:
    """Changes of the manifest, the expected fields by their path, and words of warnings."""

    change: Callable[[Object], None]
    fields: Object = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    omitted: tuple[str, ...] = ()


def launcher(*command: str, **fields: object) -> Callable[[Object], None]:
    def change(document: Object) -> None:
        container(document, "Launcher").update({"command": list(command), "args": None} | fields)

    return change


def worker(*command: str, **fields: object) -> Callable[[Object], None]:
    def change(document: Object) -> None:
        container(document, "Worker").update(({"command": list(command)} if command else {}) | fields)

    return change


def pods(role: str, **fields: object) -> Callable[[Object], None]:
    return lambda document: pod(document, role).update(fields)


def both(*changes: Callable[[Object], None]) -> Callable[[Object], None]:
    return lambda document: [change(document) for change in changes].clear()


def text(line: str) -> Callable[[Object], None]:
    return launcher("bash", "-c", line)


CASES = {
    # Variables of the launcher that mpirun gives to the ranks
    "a Secret of the launcher, exported (kubeflow/mpi-operator issues)": Case(
        launcher("mpirun", "-x", "API_KEY", "./a", env=[KEY]), {"env": [KEY]}
    ),
    "a Secret of the launcher under another name": Case(
        launcher("mpirun", "-x", "TOKEN=$(API_KEY)", "./a", env=[KEY]), {"env": [KEY | {"name": "TOKEN"}]}
    ),
    "a Secret in the middle of a value": Case(
        launcher("mpirun", "-x", "URL=https://x:$(API_KEY)@y", "./a", env=[KEY]),
        {"env": [KEY, {"name": "URL", "value": "https://x:$(API_KEY)@y"}]},
    ),
    "a literal variable of the launcher in a value (aws/aws-k8s-tester)": Case(
        launcher("mpirun", "-x", "DATA=$(ROOT)/d", "./a", env=[{"name": "ROOT", "value": "/mnt"}]),
        {"env": [{"name": "DATA", "value": "/mnt/d"}]},
    ),
    "an exported variable with another value in the workers": Case(
        both(
            launcher("mpirun", "-x", "MODE", "./a", env=[{"name": "MODE", "value": "launcher"}]),
            worker(env=[{"name": "MODE", "value": "worker"}, {"name": "B", "value": "$(MODE)"}]),
        ),
        {"env": [{"name": "MODE", "value": "launcher"}, {"name": "B", "value": "$(MODE)"}]},
        ("the value of MODE is omitted: mpirun exports that of the launcher",),
    ),
    "a variable that is not exported, with another value in the workers": Case(
        both(
            launcher("mpirun", "./a", env=[{"name": "MODE", "value": "launcher"}]),
            worker(env=[{"name": "MODE", "value": "worker"}]),
        ),
        {
            "env": [{"name": "MODE", "value": "worker"}],
            "launcher.template.spec.containers.0.env": [{"name": "MODE", "value": "launcher"}],
        },
    ),
    "the same, in the middle of a value": Case(
        both(launcher("mpirun", "-x", "A=x$(API_KEY)", "./a", env=[KEY]), worker(env=[KEY_OF_WORKERS])),
        {"env": [KEY_OF_WORKERS, {"name": "A", "value": "x$(API_KEY)"}]},
        ("API_KEY has another source in the workers",),
    ),
    "a Secret of the launcher's envFrom, exported": Case(
        launcher("mpirun", "-x", "API_KEY", "./a", envFrom=[{"secretRef": {"name": "keys"}}]),
        {"envFrom": [{"secretRef": {"name": "keys"}}]},
        ("becomes envFrom of all pods",),
    ),
    "a field of the launcher's pod, exported": Case(
        launcher(
            *("mpirun", "-x", "MASTER_ADDR=$(IP)", "./a"),
            env=[{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
        ),
        {"env": [{"name": "MASTER_ADDR", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]},
        ("MASTER_ADDR is a field of the pod: a rank has that of its worker",),
    ),
    "variables of Intel MPI, which exports all": Case(
        both(
            launcher("mpirun", "-n", "4", "./a", env=[KEY]),
            lambda document: document["spec"].update(mpiImplementation="Intel"),
        ),
        {"env": [KEY]},
    ),
    "variables of horovodrun, which exports all": Case(
        launcher("horovodrun", "-np", "4", "./a", env=[KEY]), {"env": [KEY], "command": ["./a"]}
    ),
    "a list of exported variables": Case(
        both(
            launcher("mpirun", "-genvnone", "-genvlist", "A,B", "./a", env=[{"name": n, "value": n} for n in "ABC"]),
            lambda document: document["spec"].update(mpiImplementation="MPICH"),
        ),
        {"env": [{"name": "A", "value": "A"}, {"name": "B", "value": "B"}]},
    ),
    "variables in a shell's command line": Case(
        launcher("sh", "-c", 'mpirun -np 4 -x "A=$LR" ./a --lr $LR', env=[{"name": "LR", "value": "0.1"}]),
        {"command": ["./a", "--lr", "$(LR)"], "env": [{"name": "A", "value": "0.1"}]},
    ),
    # Where mpirun is
    "mpirun with its directory (aws-samples/awsome-distributed-training, aws-samples/aws-do-eks)": Case(
        launcher("/opt/site/bin/mpirun", "--tag-output", "./a"),
        {"mpi": {"prefix": "/opt/site", "args": ["--tag-output"]}, "command": ["./a"]},
    ),
    "mpirun in another place": Case(
        launcher("/opt/mpirun", "./a"), warnings=("the option /opt/ is omitted",), omitted=("mpi",)
    ),
    "--prefix (aws-samples/aws-do-eks)": Case(
        launcher("mpirun", "--prefix", "/opt/amazon/openmpi", "./a"), {"mpi": {"prefix": "/opt/amazon/openmpi"}}
    ),
    "a mapping of ranks to nodes (aws-samples/awsome-distributed-training)": Case(
        launcher("mpirun", "--map-by", "ppr:4:node", "./a"),
        {"worker.slots": 4},
        ("spec.slotsPerWorker: is omitted: the launcher's command starts 4 on each worker",),
    ),
    "another hostfile": Case(
        launcher("mpirun", "--hostfile", "/data/hosts", "./a"), warnings=("the option --hostfile /data/hosts",)
    ),
    "parameters of Open MPI in the launcher's variables": Case(
        launcher("mpirun", "./a", env=[{"name": f"OMPI_MCA_{name}", "value": value} for name, value in PARAMETERS]),
        {
            "mpi": {"args": ["-mca", "btl_tcp_if_include", "eth1"]},
            "launcher.template.spec.containers.0.env": [{"name": "OMPI_MCA_coll_hcoll_enable", "value": "0"}],
        },
        ("the option -mca btl_tcp_if_exclude is omitted",),
    ),
    "the same, exported": Case(
        launcher("mpirun", "-x", "OMPI_MCA_pml=ucx", "-x", "PRTE_MCA_plm_ssh_args=-p 22", "./a"),
        {"mpi": {"args": ["-mca", "pml", "ucx"]}},
        ("the option -mca plm_ssh_args is omitted",),
        ("env",),
    ),
    "the same, for a command line of a shell": Case(
        launcher("bash", "-c", "cd /x; mpirun ./a", env=[{"name": "OMPI_MCA_pml", "value": "ucx"}]),
        warnings=("OMPI_MCA_pml is omitted",),
        omitted=("launcher.template",),
    ),
    "numbers in variables": Case(
        launcher("mpirun", "-np", "$(NP)", "./a", "$(NP)", env=[{"name": "NP", "value": "6"}]),
        {"command": ["./a", "6"], "worker.slots": 3},
        ("mpirun starts 6 processes: 3 on each of 2 workers",),
    ),
    "options of horovodrun without a counterpart": Case(
        launcher(*HOROVODRUN.split()),
        {"command": ["./a"], "elastic.minReplicas": 1},
        ("the option --blacklist-cooldown-range is omitted", "the option --log-level is omitted"),
    ),
    "a variable that refers to itself (aws-samples/aws-do-eks)": Case(
        launcher("mpirun", "-x", "PATH", "./a", env=[{"name": "PATH", "value": "$PATH:/opt/x/bin"}]),
        {"env": [{"name": "PATH", "value": "$PATH:/opt/x/bin"}]},
        ("nothing replaces $PATH in the value of PATH",),
    ),
    "the entrypoint of an image (kubeflow/mpi-operator)": Case(
        both(
            lambda document: container(document, "Launcher").update(command=None, args=["mpirun", "./a"]),
            lambda document: container(document, "Worker").update(args=["/usr/sbin/sshd", "-De"]),
        ),
        {"command": ["./a"]},
        (
            "Launcher.template.spec.containers[0].args: the entrypoint of the image does not run",
            "Worker.template.spec.containers[0].args: the entrypoint of the image does not run",
        ),
    ),
    # What workers do before their ssh server starts
    "sshd with a configuration (kubeflow/mpi-operator)": Case(
        worker("/usr/sbin/sshd", args=["-De", "-f", "/home/mpiuser/.sshd_config"]),
        warnings=("the options of sshd are omitted",),
        omitted=("preparation",),
    ),
    "only directories for sshd (oracle-quickstart/oci-hpc-oke)": Case(
        worker("/bin/bash", "-c", "mkdir -p /var/run/sshd; /usr/sbin/sshd -D -p 2222;"), omitted=("preparation",)
    ),
    "an installation of sshd": Case(
        worker("bash", "-c", "apt-get update && apt-get install -y openssh-server && /usr/sbin/sshd -De"),
        {"preparation.command": "apt-get update && apt-get install -y openssh-server"},
        ("what runs before sshd is spec.preparation now",),
    ),
    "a preparation in lines (aws-samples/aws-do-eks)": Case(
        worker("bash", "-lc", args=["sed -i s/a/b/ /etc/ssh/sshd_config\npip install x\nexec /usr/sbin/sshd -D -e\n"]),
        {"preparation.command": "sed -i s/a/b/ /etc/ssh/sshd_config\npip install x\n:"},
        ("what runs before sshd is spec.preparation now",),
    ),
    "sshd at the end of a pipe (aws/aws-k8s-tester)": Case(
        worker("/bin/bash", args=["-c", "echo password | sudo -S /usr/sbin/sshd -D"]), omitted=("preparation",)
    ),
    "sshd in the background": Case(
        worker("sh", "-c", "pip install x; /usr/sbin/sshd; sleep infinity"),
        {"preparation.command": "pip install x\n:"},
        ("what runs before sshd is spec.preparation now",),
    ),
    "a monitor beside sshd": Case(
        worker("sh", "-c", "/usr/sbin/sshd; exporter --port 9400"), warnings=("what runs after sshd is omitted",)
    ),
    "sshd in a branch": Case(
        worker("sh", "-c", "if [ -e /x ]; then ./prepare; /usr/sbin/sshd -D; fi"),
        warnings=("what must run before can be spec.preparation",),
        omitted=("preparation",),
    ),
    "bash in the preparation": Case(
        worker("bash", "-c", "source /opt/env.sh && /usr/sbin/sshd -D"),
        {"preparation.command": "exec bash -c 'source /opt/env.sh'"},
        ("what runs before sshd is spec.preparation now",),
    ),
    "no ssh server (version 1, which uses kubectl exec)": Case(
        worker("sleep", "infinity"), warnings=("workers run the operator's ssh server",), omitted=("preparation",)
    ),
    # Names of Kubeflow
    "labels of Kubeflow in selectors (coreweave/nccl-tests)": Case(
        pods("Worker", topologySpreadConstraints=[{"labelSelector": SELECTOR, "matchLabelKeys": [KUBEFLOW_JOB]}]),
        {
            "worker.template.spec.topologySpreadConstraints.0": {
                "labelSelector": OWN_SELECTOR,
                "matchLabelKeys": ["horovodjob.dev/job"],
            }
        },
        (f"{KUBEFLOW_JOB} is horovodjob.dev/job now",),
    ),
    "a label of Kubeflow without a counterpart": Case(
        pods(
            "Worker",
            topologySpreadConstraints=[{"labelSelector": {"matchLabels": {"batch.kubeflow.org/x": "y"}}}],
        ),
        warnings=("no pod of a HorovodJob has the label batch.kubeflow.org/x",),
    ),
    "volumes of Kubeflow's controller (oracle-quickstart/oci-hpc-oke)": Case(
        both(
            pods("Launcher", volumes=[{"name": "ssh-auth", "secret": {"secretName": "train-ssh"}}]),
            pods(
                "Launcher", initContainers=[ORDER | {"volumeMounts": [{"name": "mpi-job-config", "mountPath": "/m"}]}]
            ),
        ),
        {"launcher.template.spec.initContainers": [ORDER | {"volumeMounts": []}]},
        ("the volume ssh-auth is omitted", "the mount of mpi-job-config is omitted"),
        ("launcher.template.spec.volumes",),
    ),
    "MASTER_ADDR (PyTorch and DeepSpeed)": Case(
        worker(env=[{"name": "MASTER_ADDR", "value": "train-worker-0.train"}]),
        {"env.0.value": "train-worker-0.train", "network": {"service": True}},
    ),
    "the Service of earlier controllers (aws-samples/aws-do-eks)": Case(
        launcher("mpirun", "./a", "--dist-url=tcp://train-worker-0.train-worker:23456"),
        {"command": ["./a", "--dist-url=tcp://train-worker-0.train:23456"], "network": {"service": True}},
        ("names of pods are those of the HorovodJob now",),
    ),
    "names that a program composes (aws/aws-k8s-tester)": Case(
        text('for i in 0 1; do getent hosts train-worker-$i.train; done; mpirun "./a"'),
        {"network": {"service": True}},
        ("runs in the launcher, as launcherCommand",),
    ),
    "the launcher as the first worker": Case(
        both(
            launcher("mpirun", "./a", "train-worker-0.train"),
            lambda document: document["spec"].update(runLauncherAsWorker=True),
        ),
        {"command": ["./a", "train-worker-1.train"]},
        ("names of pods are those of the HorovodJob now",),
    ),
    "the hostfile in a variable and as an argument (DeepSpeed)": Case(
        both(
            launcher("mpirun", "./a", "--hostfile", HOSTFILE, env=[{"name": "HOSTS", "value": HOSTFILE}]),
            worker(env=[{"name": "HOSTS", "value": HOSTFILE}]),
        ),
        {"env": [{"name": "HOSTS", "value": HOSTS}], "command": ["./a", "--hostfile", HOSTS]},
    ),
    "another file of the directory": Case(
        text("/etc/mpi/kubexec.sh a; mpirun ./a"), warnings=("/etc/mpi/kubexec.sh does not exist",)
    ),
    # Command lines of a shell
    "a loop around mpirun": Case(
        text("until mpirun -np 4 ./a; do sleep 5; done"),
        {"command": ["./a"]},
        ("the loop around mpirun is omitted",),
        ("launcherCommand",),
    ),
    "a loop that waits for the workers (oracle-quickstart/oci-hpc-oke)": Case(
        text("until ssh -p 2222 $host exit; do sleep 5; done; mpirun -mca plm_rsh_args '-p 2222' ./a"),
        {"launcherCommand.2": f"until ssh -F {SSH_CONFIG} $host exit; do sleep 5; done; mpirun ./a"},
        (
            f"ssh has the option -F {SSH_CONFIG}",
            "has a loop: one that waits for workers is not necessary",
            "the option -mca plm_rsh_args is omitted",
        ),
    ),
    "an interface that mpirun excludes (aws-samples/aws-do-eks)": Case(
        text("./prepare && mpirun --mca btl_tcp_if_exclude lo,docker0 \\\n ./a"),
        {"launcherCommand.2": "./prepare && mpirun \\\n ./a"},
        ("the option -mca btl_tcp_if_exclude is omitted",),
    ),
    "an installation in the launcher": Case(
        text("apt-get install -y openssh-client && mpirun ./a"), warnings=("installs ssh or MPI",)
    ),
    "another user": Case(
        launcher("runuser", "mpiuser", "-l", "-c", "mpirun -n 2 /home/mpiuser/pi"),
        warnings=("runuser can remove the variables",),
    ),
    # Pods
    "claims of devices (coreweave/nccl-tests)": Case(
        worker(resources={"limits": {"nvidia.com/gpu": 2}, "claims": [{"name": "channel"}]}),
        {"worker.template.spec.containers.0.resources": {"claims": [{"name": "channel"}]}, "worker.gpus": 2},
    ),
    "labels of Helm on pods (Azure/ai-infrastructure-on-azure)": Case(
        lambda document: document["spec"]["mpiReplicaSpecs"]["Worker"]["template"].update(
            metadata={"name": "w", "labels": {"app.kubernetes.io/name": "x", "task": "nccl"}}
        ),
        {"worker.template.metadata": {"labels": {"task": "nccl"}}},
        ("app.kubernetes.io/name is omitted", "template.metadata.name: is omitted"),
    ),
    "a generated name": Case(
        lambda document: document.update(metadata={"generateName": "train-"}),
        warnings=("metadata.generateName: is kept: use `kubectl create`",),
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_construct_of_public_mpijobs_is_converted_or_named(case: Case) -> None:
    document = mpijob(["mpirun", "./a"])
    case.change(document)
    result = converted(document)
    spec = result.job["spec"]
    assert {path: value_at(spec, path) for path in case.fields} == case.fields
    assert [path for path in case.omitted if value_at(spec, path) is not None] == []
    said = "\n".join(result.warnings)
    assert [words for words in case.warnings if words not in said] == [], said
    if not case.warnings:
        assert [warning for warning in result.warnings if "the pods run as root" not in warning] == []


def value_at(spec: Object, path: str) -> object:
    value: object = spec
    for key in path.split("."):
        if isinstance(value, list):
            value = value[int(key)] if int(key) < len(value) else None
        else:
            value = value.get(key) if isinstance(value, dict) else None
    return value


def test_names_of_pods_follow_another_name_of_the_job() -> None:
    document = mpijob(["mpirun", "./a", "train-worker-0.train.team.svc", "train-launcher", "pretrain-worker-0"])
    spec = converted(document, name="other").job["spec"]
    assert spec["command"] == ["./a", "other-worker-0.other.team.svc", "other-launcher.other", "pretrain-worker-0"]


def test_a_generated_name_stays_one() -> None:
    document = MPIJOB | {"metadata": {"generateName": "train-", "namespace": "team"}}
    assert converted(document).job["metadata"] == {"generateName": "train-", "namespace": "team"}
    assert converted(document, name="train").job["metadata"]["name"] == "train"


def test_the_options_of_ssh_are_where_the_launcher_writes_them() -> None:
    assert f"{names.RUN_DIRECTORY}/ssh_config" == SSH_CONFIG


def test_each_parameter_that_the_start_scripts_set_is_no_variable() -> None:
    names_set = re.findall(r"\b((?:OMPI|PRTE)_MCA_\w+)=", SCRIPTS["openmpi.sh"])
    assert [name for name in names_set if not PARAMETER_VARIABLE.fullmatch(name)] == []
