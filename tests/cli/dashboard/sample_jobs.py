"""Jobs of every phase in one namespace, as operator and kubelet report them, for tests and pictures of the pages."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from cli.cluster_state import ClusterState
from cli.kubelet import NODE
from horovodjob.api.constants import ExecutionState
from support.api_client import Object

EXPERIMENT, SWEEP = "imagenet", "learning-rate"
RUNNING, FAILED, RESTARTING, QUEUED = "resnet50-b256", "unet-lungs", "whisper-small", "bert-large"
COMPARED = ("resnet50-lr-100", "resnet50-lr-30", "resnet50-lr-10")
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
BLOCKED = "couldn't assign flavors: insufficient unused quota for nvidia.com/gpu in flavor a100, 16 more needed"
LOST_WORKER = "worker-2 was evicted from gpu-03: the node had condition DiskPressure"
TRACEBACK = (
    "the container exited with code 1; its last lines:\n"
    '  File "/app/train.py", line 41, in <module>\n'
    '    images = np.load("/data/scans/train.npz")\n'
    "FileNotFoundError: [Errno 2] No such file or directory: '/data/scans/train.npz'"
)


MISSING_FILE = (
    "FileNotFoundError: [Errno 2] No such file or directory: '/data/scans/train.npz' "
    "(RankFailed: mpirun ended with exit code 1; attempt 1; runPolicy.backoffLimit is 0)"
)
OWNERS = {EXPERIMENT: "ada", SWEEP: "ada", "segmentation": "grace", "speech": "lin", "language": "grace"}


def minutes_ago(minutes: float) -> str:
    """A time in the past, or with a negative number in the future."""
    return (datetime.now(UTC) - timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")


def history(epochs: int, rate: float, floor: float) -> list[Object]:
    """Epochs of a plausible training: it is noisier with a higher learning rate, and ends near `floor`."""
    entries = []
    for epoch in range(1, epochs + 1):
        noise = rate * math.sin(7 * epoch) * 0.6
        loss = floor + 4.2 * math.exp(-epoch * (0.12 + 2 * rate)) + noise * 0.2
        metrics = {
            "loss": round(loss, 4),
            "val_loss": round(loss + 0.12 + 0.012 * epoch + noise * 0.5, 4),
            "accuracy": round(0.86 - 0.19 * loss, 4),
            "val_accuracy": round(0.83 - 0.19 * loss - noise * 0.08, 4),
        }
        speed = round(11900 - 1400 / epoch + 90 * math.sin(2.1 * epoch), 1)
        entry = {"epoch": epoch, "time": minutes_ago(6 * (epochs - epoch) + 1), "metrics": metrics}
        entries.append({**entry, "learningRate": round(rate * 0.94**epoch, 5), "samplesPerSecond": speed})
    return entries


def training(epoch: int, epochs: int, rate: float = 0.1, floor: float = 0.6, **more: Any) -> Object:
    """The progress of a training."""
    share = epoch / epochs
    status = {"progress": share, "percent": f"{share:.0%}", "epoch": epoch, "epochs": epochs}
    return status | {"history": history(min(epoch, 24), rate, floor)} | more


def condition(type_: str, reason: str, message: str, minutes: float) -> Object:
    """A condition that has been True for some minutes."""
    words = {"type": type_, "status": "True", "reason": reason, "message": message}
    return words | {"lastTransitionTime": minutes_ago(minutes), "observedGeneration": 1}


@dataclass(frozen=True)
class Sample:
    """A job, and what the operator reports of it."""

    name: str
    phase: str
    workers: int = 4
    gpus: int = 8
    experiment: str = ""
    queue: str = ""
    options: tuple[str, ...] = ()
    status: Object = field(default_factory=dict)


def samples() -> list[Sample]:
    """A job of every phase, and three to compare."""
    eta = {"eta": minutes_ago(-47), "samplesPerSecond": 11842.0}
    ended = {"startTime": minutes_ago(190), "completionTime": minutes_ago(46), "exitCode": 0}
    ended |= {"runningTime": minutes_ago(186)}
    now = {"step": 2816, "stepsPerEpoch": 5004, "metrics": {"loss": 1.0431, "accuracy": 0.7421}}
    lost = {"time": minutes_ago(9), "attempt": 1, "pod": f"{RESTARTING}-worker-2", "node": "gpu-03"}
    crash = {"time": minutes_ago(31), "attempt": 1, "pod": f"{FAILED}-launcher", "node": NODE, "exitCode": 1}
    return [
        Sample(
            FAILED,
            "Failed",
            2,
            1,
            "segmentation",
            status={
                "startTime": minutes_ago(34),
                "completionTime": minutes_ago(31),
                "exitCode": 1,
                "errors": [crash | {"reason": "ProgramFailed", "message": TRACEBACK, "container": "launcher"}],
                "conditions": [condition("Failed", "BackoffLimitExceeded", MISSING_FILE, 31)],
            },
        ),
        *(
            Sample(
                name,
                "Succeeded",
                2,
                8,
                SWEEP,
                options=(f"--learning-rate={rate}", "--batch-size=256"),
                status=ended | {"training": training(20, 20, rate, floor)},
            )
            for name, rate, floor in zip(COMPARED, (0.1, 0.03, 0.01), (0.71, 0.62, 0.8), strict=True)
        ),
        Sample("gpt-tiny", "Terminating", 1, 4, status={"startTime": minutes_ago(58)}),
        Sample(
            "efficientnet-b7",
            "Suspended",
            4,
            4,
            EXPERIMENT,
            status={
                "training": training(12, 40),
                "activeSeconds": 5100,
                "conditions": [condition("Suspended", "Suspended", "spec.runPolicy.suspend is true", 20)],
            },
        ),
        Sample(
            RESTARTING,
            "Restarting",
            4,
            2,
            "speech",
            status={
                "attempt": 2,
                "preemptions": 1,
                "startTime": minutes_ago(95),
                "errors": [lost | {"reason": "PodEvicted", "message": LOST_WORKER}],
                "training": training(7, 30, 0.05, 0.9),
                "conditions": [condition("Reconciling", "PodEvicted", LOST_WORKER, 9)],
            },
        ),
        Sample(
            QUEUED,
            "Queued",
            8,
            8,
            "language",
            "research",
            status={
                "queue": {"name": "research", "clusterQueue": "gpu", "position": 2},
                "conditions": [condition("Queued", "QuotaPending", BLOCKED, 14)],
            },
        ),
        Sample("vit-base", "Starting", 4, 8, EXPERIMENT, status={"startTime": minutes_ago(2), "workersReady": "3/4"}),
        Sample(
            RUNNING,
            "Running",
            4,
            8,
            EXPERIMENT,
            options=("--learning-rate=0.1", "--batch-size=256"),
            status={
                "startTime": minutes_ago(101),
                "runningTime": minutes_ago(96),
                "workersReady": "4/4",
                "training": training(16, 24, 0.06, 0.9, **eta, **now),
                "conditions": [condition("Running", "AllRanksRun", "32 ranks run on 4 nodes", 96)],
            },
        ),
    ]


def create_samples(cluster: ClusterState, nodes: Sequence[str] = (NODE,) * 4) -> dict[str, Object]:
    """Creates the jobs, and the pods of the running one with its workers on these nodes; the jobs by name."""
    created = {}
    for one in samples():
        labels = {"horovodjob.dev/experiment": one.experiment} if one.experiment else {}
        labels |= {QUEUE_LABEL: one.queue} if one.queue else {}
        labels |= {"horovodjob.dev/owner": OWNERS[one.experiment]} if one.experiment in OWNERS else {}
        worker = {"replicas": one.workers, "gpus": one.gpus}
        command = ["python3", "train.py", *one.options]
        policy = {"suspend": one.phase == "Suspended", "terminate": one.phase == "Terminating"}
        created[one.name] = cluster.create(one.name, labels, worker=worker, command=command, runPolicy=policy)
        state = one.phase.lower() if one.phase.lower() in set(ExecutionState) else "queued"
        cluster.report(one.name, phase=one.phase, executionState=state, **one.status)
    cluster.pod(created[RUNNING], "launcher", node=NODE)
    for index, node in enumerate(nodes):
        cluster.pod(created[RUNNING], "worker", index, node=node, gpus=8)
    cluster.event(created[RUNNING], "AllRanksRun", "all 32 ranks have started", minute=5)
    return created
