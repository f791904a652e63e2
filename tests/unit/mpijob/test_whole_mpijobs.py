"""MPIJobs of public repositories as a whole, with other programs and images: the outcome, and every warning.

Each row has the structure of the manifest that it names: its command lines, and what is unusual in it.
"""

import json
from dataclasses import dataclass, field

import pytest
import yaml

from unit.mpijob.test_conversion import Object, converted
from unit.mpijob.test_public_mpijobs import value_at

ROOT = "the pods run as root"
SSHD = "the options of sshd are omitted"
SHELL = "runs in the launcher, as launcherCommand"
ENTRYPOINT = "the entrypoint of the image does not run"
NOT_REPLACED = "nothing replaces $"
POLICY = "restartPolicy"
MOUNT_PATH = "sshAuthMountPath: is omitted"
USER = "securityContext: {runAsUser: 1000}"
PI_WORKER = "command: [/usr/sbin/sshd], args: [-De, -f, /home/mpiuser/.sshd_config]"
SSH_LOOP = r"""
  for host in $(awk '{print $1}' /etc/mpi/hostfile); do
    for i in $(seq 1 40); do ssh $OPTS "$host" true && break; sleep 3; done
  done
  /opt/hpcx/ompi/bin/mpirun --allow-run-as-root -np 2 -N 1 --hostfile /etc/mpi/hostfile --bind-to none \
    --mca plm_rsh_args "-o StrictHostKeyChecking=no" --mca btl tcp,self --mca btl_tcp_if_exclude lo,docker0,veth \
    -x PATH -x NCCL_SOCKET_IFNAME='^lo,docker,veth' ./gather
"""
ORACLE = r"""
  set -e -o pipefail; trap 'exit 1' SIGINT
  NP=$(($(sed -n '$=' /etc/mpi/hostfile)*8))
  while ! (for host in $(awk '{print $1}' /etc/mpi/hostfile); do ssh -p 2222 $host exit || exit 1; done); do
    sleep 5
  done
  mpirun --allow-run-as-root -mca coll ^hcoll -mca plm_rsh_args "-p 2222" --hostfile /etc/mpi/hostfile -np $NP \
    -npernode 8 --bind-to numa -x NCCL_IB_HCA==mlx5_1,mlx5_2 ./reduce
"""
ORACLE_SAID = ("-mca plm_rsh_args is omitted", "ssh has the option -F", SHELL, "has a loop", ROOT)


@dataclass(frozen=True)
class Row:
    """Fields of both main containers in YAML, other parts of the MPIJob, and what becomes of it."""

    launcher: str
    worker: str = ""
    replicas: int = 2
    spec: str = ""
    launcher_pod: str = ""
    worker_pod: str = ""
    version: str = "v2beta1"
    fields: Object = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def ranks(*program: str, **worker: object) -> Object:
    return {"command": list(program), "launcherCommand": None} | {f"worker.{key}": each for key, each in worker.items()}


def words(text: str) -> str:
    return f"command: {json.dumps(text.split())}"


def line(text: str) -> str:
    return f"command: [bash, -c], args: [{json.dumps(text)}]"


HOROVOD = "-bind-to none -map-by slot -x LD_LIBRARY_PATH -x PATH -mca pml ob1 -mca btl ^openib"
ROWS = {
    "kubeflow/mpi-operator examples/v2beta1/horovod": Row(
        words(f"mpirun -np 2 --allow-run-as-root {HOROVOD} python a.py") + ", resources: {limits: {cpu: 1}}",
        "resources: {limits: {cpu: 2}}",
        fields=ranks("python", "a.py", replicas=2, gpus=0)
        | {"mpi.args": ["-mca", "pml", "ob1", "-mca", "btl", "^openib"]},
        warnings=(ROOT,),
    ),
    "kubeflow/mpi-operator examples/v2beta1/tensorflow-benchmarks": Row(
        words(f"mpirun --allow-run-as-root -np 2 -x NCCL_DEBUG=INFO {HOROVOD} python a.py"),
        "resources: {limits: {nvidia.com/gpu: 1}}",
        fields=ranks("python", "a.py", gpus=1, slots=None) | {"env": [{"name": "NCCL_DEBUG", "value": "INFO"}]},
        warnings=(ROOT,),
    ),
    "kubeflow/mpi-operator examples/v2beta1/pi/pi-intel": Row(
        f"args: [mpirun, -n, '2', /home/mpiuser/pi], {USER}",
        f"args: [/usr/sbin/sshd, -De, -f, /x], {USER}, readinessProbe: {{tcpSocket: {{port: 2222}}}}",
        spec="sshAuthMountPath: /home/mpiuser/.ssh, mpiImplementation: Intel",
        fields=ranks("/home/mpiuser/pi") | {"mpi": {"implementation": "IntelMPI"}, "podSecurity": None},
        warnings=(ENTRYPOINT, ENTRYPOINT, SSHD, "readinessProbe: is omitted", MOUNT_PATH),
    ),
    "kubernetes-sigs/kueue site/static/examples/jobs/sample-mpijob": Row(
        f"command: [mpirun], args: [-n, '2', /home/mpiuser/pi], {USER}",
        f"{PI_WORKER}, {USER}",
        spec="sshAuthMountPath: /home/mpiuser/.ssh, runPolicy: {cleanPodPolicy: Running, ttlSecondsAfterFinished: 60}",
        fields=ranks("/home/mpiuser/pi") | {"runPolicy": {"cleanPodPolicy": "Running", "ttlSecondsAfterFinished": 60}},
        warnings=(SSHD, MOUNT_PATH),
    ),
    "kubernetes-sigs/kueue keps/2724-topology-aware-scheduling": Row(
        f"command: [mpirun], args: [-n, '2', ./pi], {USER}",
        f"{PI_WORKER}, {USER}",
        spec="runLauncherAsWorker: true",
        fields=ranks("./pi", replicas=3) | {"launcher.asWorker": True},
        warnings=("mpirun starts 2 processes, and the job has 3", SSHD),
    ),
    "computeops/k8s-mpi mpich": Row(
        f"args: [mpirun, -n, '2', ./a], {USER}",
        f"{PI_WORKER}, {USER}",
        spec="sshAuthMountPath: /home/mpiuser/.ssh, mpiImplementation: MPICH",
        fields=ranks("./a") | {"mpi": {"implementation": "MPICH"}},
        warnings=(ENTRYPOINT, SSHD, MOUNT_PATH),
    ),
    "NVIDIA/deepops workloads/examples/k8s/roce": Row(
        line("/bin/bash << 'EOF'\nmpirun \\\n -mca btl_tcp_if_exclude lo \\\n -mca btl ^openib ./a && sleep 5\nEOF\n"),
        "resources: {limits: {nvidia.com/gpu: 8, intel.com/sriov_111: 1}}",
        spec="slotsPerWorker: 8, cleanPodPolicy: Running",
        version="v1",
        fields={
            "launcherCommand.2": "/bin/bash << 'EOF'\nmpirun \\\n \\\n -mca btl ^openib ./a && sleep 5\nEOF\n",
            "worker": {"replicas": 2, "gpus": 8, "resources": {"limits": {"intel.com/sriov_111": 1}}},
        },
        warnings=("-mca btl_tcp_if_exclude is omitted", SHELL, ROOT),
    ),
    "NVIDIA/deepops workloads/examples/k8s/tensorflow-mpi-job": Row(
        words(f"mpirun --allow-run-as-root -np 4 {HOROVOD} -x NCCL_DEBUG=INFO python a.py"),
        "resources: {limits: {nvidia.com/gpu: 1}}",
        replicas=4,
        version="v1alpha2",
        fields=ranks("python", "a.py", replicas=4, gpus=1),
        warnings=(ROOT,),
    ),
    "aws-samples/aws-do-eks pytorch/mpijob/imagenet-cpu": Row(
        "command: [mpirun], args: [-np, '4', --allow-run-as-root, -bind-to, none, python, a.py, --dist-backend=gloo, "
        "'--dist-url=tcp://train-worker-0.train-worker:23456'], imagePullPolicy: Always",
        "volumeMounts: [{name: shmem, mountPath: /dev/shm}]",
        replicas=4,
        worker_pod="volumes: [{name: shmem, hostPath: {path: /dev/shm}}]",
        fields=ranks("python", "a.py", "--dist-backend=gloo", "--dist-url=tcp://train-worker-0.train:23456")
        | {"network.service": True, "worker.template.spec.volumes.0.name": "shmem"},
        warnings=("names of pods are those of the HorovodJob now", ROOT),
    ),
    "aws-samples/aws-do-eks hpc/do-gromacs": Row(
        words(
            "/opt/view/bin/mpirun --allow-run-as-root --oversubscribe -x FI_PROVIDER=efa -npernode 36 --bind-to core "
            "-x OMP_NUM_THREADS /opt/view/bin/gmx_mpi mdrun"
        )
        + ", env: [{name: OMP_NUM_THREADS, value: '2'}, {name: DATA_DIR, value: /d}]",
        "resources: {limits: {nvidia.com/gpu: 0, hugepages-2Mi: 5120Mi}}",
        launcher_pod="restartPolicy: OnFailure, initContainers: [{name: init, image: b, command: [sleep, '5']}]",
        fields=ranks("/opt/view/bin/gmx_mpi", "mdrun", slots=36)
        | {
            "mpi": {"prefix": "/opt/view", "args": ["--oversubscribe"]},
            "env": [{"name": "OMP_NUM_THREADS", "value": "2"}, {"name": "FI_PROVIDER", "value": "efa"}],
            "launcher.template.spec.containers.0.env": [{"name": "DATA_DIR", "value": "/d"}],
        },
        warnings=("--bind-to core is omitted", "slotsPerWorker: is omitted", ROOT, POLICY),
    ),
    "aws-samples/aws-do-eks kubeflow/mpi-operator/test/nccl-all-gather": Row(
        line(SSH_LOOP),
        line(
            "\nsed -i s/a/b/ /etc/ssh/sshd_config\nmkdir -p /var/run/sshd; ssh-keygen -A\nexec /usr/sbin/sshd -D -e\n"
        ),
        spec="runPolicy: {backoffLimit: 20}",
        worker_pod="affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 100, "
        "podAffinityTerm: {topologyKey: zone, labelSelector: {matchLabels: {training.kubeflow.org/job-name: train, "
        "training.kubeflow.org/replica-type: worker}}}}]}}",
        fields={
            "preparation.command": "sed -i s/a/b/ /etc/ssh/sshd_config\nmkdir -p /var/run/sshd; ssh-keygen -A\n:",
            "worker.template.spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution.0."
            "podAffinityTerm.labelSelector.matchLabels": {
                "horovodjob.dev/job": "train",
                "horovodjob.dev/role": "worker",
            },
        },
        warnings=(
            "training.kubeflow.org/job-name is horovodjob.dev/job now",
            "training.kubeflow.org/replica-type is horovodjob.dev/role now",
            "-mca plm_rsh_args is omitted",
            "-mca btl_tcp_if_exclude is omitted",
            "ssh has the option -F",
            SHELL,
            "what runs before sshd is spec.preparation now",
            ROOT,
        ),
    ),
    "aws-samples/aws-do-eks kubeflow/mpi-operator/test/nccl-tests-efa": Row(
        words(
            "/opt/amazon/openmpi/bin/mpirun --allow-run-as-root --tag-output --oversubscribe -np 2 -N 1 -x PATH "
            "-x LD_LIBRARY_PATH ./reduce"
        )
        + ", env: [{name: PATH, value: '$PATH:/opt/amazon/efa/bin'}, "
        "{name: LD_LIBRARY_PATH, value: '/opt/nccl/lib:${LD_LIBRARY_PATH}'}]",
        version="v1alpha2",
        fields=ranks("./reduce", slots=None)
        | {"mpi": {"prefix": "/opt/amazon/openmpi", "args": ["--tag-output", "--oversubscribe"]}},
        warnings=(f"{NOT_REPLACED}PATH", f"{NOT_REPLACED}LD_LIBRARY_PATH", ROOT),
    ),
    "aws-samples/aws-do-eks tensorflow/habana/mpijob-mnist": Row(
        line("mpirun --allow-run-as-root --bind-to core -np 16 --map-by ppr:4:socket:PE=6 -x A=1:${B} ./a"),
        "resources: {limits: {habana.ai/gaudi: 8}}",
        spec="slotsPerWorker: 8",
        fields={"launcherCommand.0": "bash", "worker.gpus": 0, "worker.slots": 8},
        warnings=(SHELL, ROOT),
    ),
    "aws-samples/aws-do-eks gpu-profile": Row(
        line("cd /; mpirun -x PATH=/shared/bin:$PATH --allow-run-as-root -np 16 /profile.sh"),
        "resources: {limits: {nvidia.com/gpu: 8}}",
        spec="slotsPerWorker: 8",
        worker_pod="restartPolicy: Never",
        fields={"launcherCommand.2": "cd /; mpirun -x PATH=/shared/bin:$PATH --allow-run-as-root -np 16 /profile.sh"},
        warnings=(SHELL, ROOT, POLICY),
    ),
    "aws-samples/awsome-distributed-training nccl-tests-gb200": Row(
        words(
            "/opt/amazon/openmpi/bin/mpirun --allow-run-as-root -np 72 -npernode 4 --map-by ppr:4:node --bind-to none "
            "-x NCCL_MNNVL_ENABLE=1 --mca btl tcp,self --mca btl_tcp_if_exclude lo,docker0 ./reduce"
        ),
        "resources: {limits: {nvidia.com/gpu: 4}, claims: [{name: channel}]}",
        replicas=18,
        spec="slotsPerWorker: 4",
        worker_pod="resourceClaims: [{name: channel, resourceClaimTemplateName: t}]",
        fields=ranks("./reduce", replicas=18, gpus=4, slots=None)
        | {
            "mpi.prefix": "/opt/amazon/openmpi",
            "worker.template.spec.resourceClaims.0.resourceClaimTemplateName": "t",
            "worker.template.spec.containers.0.resources": {"claims": [{"name": "channel"}]},
        },
        warnings=("--mca btl_tcp_if_exclude is omitted", ROOT),
    ),
    "coreweave/nccl-tests a100-64-gdrcopy": Row(
        line("mpirun -np 64 -x LD_LIBRARY_PATH -x NCCL_IB_HCA=ibp ./reduce -b 512M ")
        + ", env: [{name: OMPI_ALLOW_RUN_AS_ROOT, value: '1'}]",
        "resources: {limits: {nvidia.com/gpu: 8, rdma/ib: 1}}",
        replicas=8,
        spec="slotsPerWorker: 8",
        fields=ranks("./reduce", "-b", "512M", replicas=8, gpus=8) | {"env": [{"name": "NCCL_IB_HCA", "value": "ibp"}]},
        warnings=(ROOT,),
    ),
    "coreweave/nccl-tests gb300-roce-128-multirack-dra": Row(
        line(
            "mpirun -bind-to none -x LD_LIBRARY_PATH=/opt/lib:$LD_LIBRARY_PATH -x OMPI_MCA_coll_hcoll_enable=0 ./reduce"
        ),
        "resources: {requests: {cpu: '140'}, limits: {nvidia.com/gpu: 4}}",
        replicas=32,
        spec="slotsPerWorker: 4",
        fields={"launcherCommand.0": "bash", "worker.replicas": 32, "worker.gpus": 4},
        warnings=(SHELL, ROOT),
    ),
    "oracle-quickstart/oci-hpc-oke nccl-tests/kueue/BM.GPU.A100": Row(
        line(ORACLE) + ", env: [{name: PRTE_MCA_plm_ssh_args, value: -p 2222}], ports: [{containerPort: 2222}]",
        line("mkdir -p /var/run/sshd; /usr/sbin/sshd -D -p 2222;")
        + ", resources: {limits: {nvidia.com/gpu: 8}}, ports: [{containerPort: 2222}]",
        spec="slotsPerWorker: 8, sshAuthMountPath: /root/.ssh",
        launcher_pod="hostNetwork: true, dnsPolicy: ClusterFirstWithHostNet",
        fields={
            "preparation": None,
            "launcher.template.spec.hostNetwork": True,
            "launcher.template.spec.containers": None,
            "worker.gpus": 8,
        },
        warnings=(*ORACLE_SAID, "PRTE_MCA_plm_ssh_args is omitted", "ports: is", "ports: is", MOUNT_PATH),
    ),
    "oracle-quickstart/oci-hpc-oke rccl-tests/kueue/BM.GPU.MI300X": Row(
        line(ORACLE) + ", workingDir: /workspace",
        "resources: {limits: {amd.com/gpu: 8, ephemeral-storage: 32Gi}}, workingDir: /workspace",
        spec="slotsPerWorker: 8",
        launcher_pod="terminationGracePeriodSeconds: 2",
        fields={
            "worker.gpus": 0,
            "worker.slots": 8,
            "worker.resources.limits": {"amd.com/gpu": 8, "ephemeral-storage": "32Gi"},
            "launcher.template.spec.containers.0.workingDir": "/workspace",
            "worker.template.spec.containers.0.workingDir": "/workspace",
        },
        warnings=ORACLE_SAID,
    ),
    "oracle-quickstart/oci-hpc-oke docs/using-rdma-network-locality": Row(
        line("NP=$(($(wc -l < /o/hosts)*8)); mpirun --mca oob_tcp_if_exclude lo -hostfile /o/hosts -N 8 -np $NP ./a"),
        line("mkdir -p /var/run/sshd; /usr/sbin/sshd -D -p 2222 || sleep 999999999;"),
        launcher_pod="initContainers: [{name: order, image: b, volumeMounts: [{name: order, mountPath: /o}, "
        "{name: mpi-job-config, mountPath: /etc/mpi}, {name: ssh-auth, mountPath: /root/.ssh}]}], "
        "volumes: [{name: order, emptyDir: {}}]",
        fields={"launcher.template.spec.initContainers.0.volumeMounts": [{"name": "order", "mountPath": "/o"}]},
        warnings=(
            "the mount of mpi-job-config is omitted",
            "the mount of ssh-auth is omitted",
            "-mca oob_tcp_if_exclude is omitted",
            "mpirun reads its hosts from /o/hosts",
            SHELL,
            ROOT,
        ),
    ),
    "heyfey/vodascheduler examples/test_yaml/tensorflow2-keras-mnist-elastic": Row(
        "command: [horovodrun], args: [-np, '2', --min-np, '1', --max-np, '8', --host-discovery-script, "
        "/etc/mpi/discover_hosts.sh, python, a.py]",
        "resources: {limits: {nvidia.com/gpu: 1}}",
        spec="cleanPodPolicy: Running",
        version="v1",
        fields=ranks("python", "a.py", replicas=2, gpus=1) | {"elastic": {"minReplicas": 1, "maxReplicas": 8}},
        warnings=(ROOT,),
    ),
    "heyfey/vodascheduler examples/yaml/tensorflow2/tf2-keras-transformer-elastic": Row(
        line(
            "horovodrun --num-proc $(MIN_NP) --min-num-proc $(MIN_NP) --max-num-proc $(MAX_NP) --host-discovery-script "
            "/etc/mpi/discover_hosts.sh --blacklist-cooldown-range 30 100 --network-interface eth0 python a.py"
        )
        + ", env: [{name: MIN_NP, value: '1'}, {name: MAX_NP, value: '4'}]",
        "resources: {limits: {nvidia.com/gpu: 1}}",
        version="v1",
        fields=ranks("python", "a.py", replicas=2) | {"elastic": {"minReplicas": 1, "maxReplicas": 4}},
        warnings=("--blacklist-cooldown-range is omitted", "--network-interface eth0 is omitted", ROOT),
    ),
}


def manifest(row: Row) -> Object:
    """The MPIJob of a row."""

    def replica(container: str, pod: str) -> Object:
        main = {"name": "main", "image": "example/train:1"} | yaml.safe_load(f"{{{container}}}")
        return {"template": {"spec": {"containers": [main]} | yaml.safe_load(f"{{{pod}}}")}}

    replicas = {"Launcher": replica(row.launcher, row.launcher_pod), "Worker": replica(row.worker, row.worker_pod)}
    replicas["Worker"]["replicas"] = row.replicas
    spec = {"slotsPerWorker": 1, "mpiReplicaSpecs": replicas} | yaml.safe_load(f"{{{row.spec}}}")
    version = f"kubeflow.org/{row.version}"
    return {"apiVersion": version, "kind": "MPIJob", "metadata": {"name": "train"}, "spec": spec}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_a_public_mpijob_has_the_expected_outcome_and_no_other_warning(row: Row) -> None:
    result = converted(manifest(row))
    assert {path: value_at(result.job["spec"], path) for path in row.fields} == row.fields
    left = list(result.warnings)
    for words in row.warnings:
        found = next((warning for warning in left if words in warning), None)
        assert found, (words, result.warnings)
        left.remove(found)
    assert left == []
