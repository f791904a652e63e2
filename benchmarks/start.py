"""How long a job takes to start and to end, beside the floor: the same pods and command from a plain script.

    python benchmarks/start.py [--rounds 5]

Needs a warm cluster: `make demo` leaves one, with the operator and the trainer image. Both ways take turns in one
run. The floor has no operator and no start scripts: a script creates the workers, which run sshd, and the launcher,
sees the workers' addresses, writes them into an annotation that the launcher mounts, and sees its container end; its
keys are in a Secret made beforehand. Both ways create their objects over the same open connection to the API server,
so neither pays for the start of kubectl. Exit status: 0 if the target is met, 1 if not.
"""

import argparse
import tempfile
import time
from pathlib import Path
from subprocess import run
from typing import Any

from cluster_client import (
    Watch,
    administrator,
    annotate,
    apply,
    create,
    fresh_namespace,
    kubectl,
    log_moment,
    median,
    trainer_image,
)

from support.api_client import Api

NAMESPACE = "benchmark-start"
WORKERS = 2
# One step of data-parallel training with the trainer's own layer, and the line that marks it.
PROGRAM = """
import os
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import keras, numpy, tensorflow, horovod.tensorflow as hvd
from horovodjob_trainer.hvd import DistributedOptimizer
hvd.init()
model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
model.compile(optimizer=DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse", jit_compile=False)
model.train_on_batch(numpy.ones((8, 4)), numpy.ones((8, 1)))
if hvd.rank() == 0:
    print("first step", flush=True)
"""
STAGES = ("created", "scheduled", "mpirun", "first step", "mpirun ended", "Succeeded")
SECURE = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
HOSTS = "metadata.annotations['hosts']"
KEYS = "mkdir -p /tmp/s && cp /keys/* /tmp/s/ && chmod 600 /tmp/s/*"
SSH = "-p 2222 -i /tmp/s/id -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"


def pod(name: str, image: str, script: str, *arguments: str) -> dict[str, Any]:
    """A pod of the floor."""
    container = {
        "name": "c",
        "image": image,
        "command": ["bash", "-c", script, "floor", *arguments],
        "securityContext": SECURE,
        "volumeMounts": [{"name": "keys", "mountPath": "/keys"}, {"name": "pod", "mountPath": "/pod"}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
            "volumes": [
                {"name": "keys", "secret": {"secretName": "floor", "defaultMode": 0o444}},
                {"name": "pod", "downwardAPI": {"items": [{"path": "hosts", "fieldRef": {"fieldPath": HOSTS}}]}},
            ],
        },
    }


def floor_keys() -> None:
    """The Secret of the floor."""
    with tempfile.TemporaryDirectory() as folder:
        for key in ("id", "host"):
            run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{folder}/{key}"], check=True)
        files = {file.name: file.read_text() for file in Path(folder).iterdir()}
        files["authorized"] = files["id.pub"]
    metadata = {"name": "floor", "namespace": NAMESPACE}
    apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": files})


SSHD = (
    f"{KEYS}; exec /usr/sbin/sshd -De -p 2222 -h /tmp/s/host -o AuthorizedKeysFile=/tmp/s/authorized "
    "-o PidFile=none -o UsePAM=no -o StrictModes=no"
)
LAUNCH = (
    f"{KEYS}; until [ -s /pod/hosts ]; do sleep 0.1; done; hosts=$(cat /pod/hosts); "
    f"for h in ${{hosts//,/ }}; do until ssh {SSH} $h true; do sleep 0.1; done; done; echo mpirun starts; "
    f"mpirun -np {WORKERS} -H $hosts --bind-to none -mca plm_rsh_args '{SSH}' "
    "-mca oob_tcp_if_include eth0 -mca btl_tcp_if_include eth0 -mca pml ob1 -mca btl ^openib "
    '-mca mpi_yield_when_idle 1 -mca plm_rsh_no_tree_spawn 1 -x PATH "$(command -v python3)" -c "$1"; '
    "code=$?; echo mpirun ended; exit $code"
)


def floor(image: str, api: Api, pods: Watch) -> dict[str, float]:
    """One round of the floor: moments of the stages, from the start."""
    workers = [pod(f"floor-worker-{index}", image, SSHD) for index in range(WORKERS)]
    launcher = pod("floor-launcher", image, LAUNCH, PROGRAM)
    names = [one["metadata"]["name"] for one in (*workers, launcher)]
    start = time.time()
    for one in (*workers, launcher):
        create(api, one)

    def addresses(objects: dict[str, Any]) -> list[str]:
        found = [objects.get(name, {}).get("status", {}).get("podIP", "") for name in names[:WORKERS]]
        return found if all(found) else []

    created = pods.when(lambda objects: all(name in objects for name in names))
    scheduled = pods.when(lambda objects: all(objects[name]["spec"].get("nodeName") for name in names))
    pods.when(addresses)
    annotate(api, launcher, hosts=",".join(addresses(pods.objects)))
    done = pods.when(lambda objects: container_ended(objects["floor-launcher"]))
    moments = stages("floor-launcher", created, scheduled, done)
    kubectl("delete", "pod", "-n", NAMESPACE, "--all", "--wait=true", "--grace-period=0", "--force")
    return {stage: moment - start for stage, moment in moments.items()}


def stages(launcher: str, created: float, scheduled: float, done: float) -> dict[str, float]:
    """Times of all stages: observed ones, and those in the launcher's log."""
    log = kubectl("logs", "-n", NAMESPACE, launcher, "--timestamps").splitlines()
    return {
        "created": created,
        "scheduled": scheduled,
        "mpirun": log_moment(log, "mpirun starts"),
        "first step": log_moment(log, "first step"),
        "mpirun ended": log_moment(log, "mpirun ended"),
        "Succeeded": done,
    }


def container_ended(one: dict[str, Any]) -> bool:
    """Whether the only container of a pod has ended, which is known before the pod's phase says so."""
    return any("terminated" in container["state"] for container in one["status"].get("containerStatuses", ()))


def phase(objects: dict[str, Any], name: str) -> str:
    """Phase of an object, as far as it has one."""
    return str(objects.get(name, {}).get("status", {}).get("phase", ""))


def horovodjob(image: str, api: Api, pods: Watch, jobs: Watch) -> dict[str, float]:
    """One round of a HorovodJob: moments of the stages, from the start."""
    names = ["job-launcher", *(f"job-worker-{index}" for index in range(WORKERS))]
    start = time.time()
    create(
        api,
        {
            "apiVersion": "horovodjob.dev/v1beta1",
            "kind": "HorovodJob",
            "metadata": {"name": "job", "namespace": NAMESPACE},
            "spec": {
                "image": image,
                "worker": {"replicas": WORKERS, "gpus": 0},
                "command": ["python3", "-c", PROGRAM],
                "runPolicy": {"backoffLimit": 0},
            },
        },
    )
    created = pods.when(lambda objects: all(name in objects for name in names))
    scheduled = pods.when(lambda objects: all(objects[name]["spec"].get("nodeName") for name in names))
    done = jobs.when(lambda objects: phase(objects, "job") in ("Succeeded", "Failed"))
    moments = stages("job-launcher", created, scheduled, done)
    kubectl("delete", "horovodjob", "-n", NAMESPACE, "job", "--wait=true")
    pods.when(lambda objects: not objects)
    return {stage: moment - start for stage, moment in moments.items()}


def main() -> None:
    """Prints the table; exit code 1 if the target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="rounds that are counted, after one that is not")
    rounds = parser.parse_args().rounds
    image = trainer_image()
    fresh_namespace(NAMESPACE)
    floor_keys()
    api, pods, jobs = administrator(), Watch("pods", NAMESPACE), Watch("horovodjobs", NAMESPACE)
    floors, ours = [], []
    for number in range(rounds + 1):
        floors.append(floor(image, api, pods))
        ours.append(horovodjob(image, api, pods, jobs))
        shown = "warm-up" if number == 0 else f"round {number}"
        print(f"{shown}: floor {floors[-1]['Succeeded']:.1f} s, HorovodJob {ours[-1]['Succeeded']:.1f} s", flush=True)
    pods.close()
    jobs.close()
    kubectl("delete", "namespace", NAMESPACE, "--wait=false")
    print(f"\nseconds from the first call, medians of {rounds}   floor   HorovodJob   ratio")
    for stage in STAGES:
        a, b = (median([one[stage] for one in many[1:]]) for many in (floors, ours))
        print(f"  {stage:<32} {a:8.2f} {b:12.2f} {b / a:7.2f}")
    a, b = (median([one["Succeeded"] for one in many[1:]]) for many in (floors, ours))
    allowed = max(0.2 * a, 1.0)
    verdict = "met" if b - a <= allowed else "missed"
    print(f"operator and start scripts add {b - a:+.2f} s; target at most {allowed:.2f} s: {verdict}")
    raise SystemExit(b - a > allowed)


if __name__ == "__main__":
    main()
