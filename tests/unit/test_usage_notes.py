"""Notes of `hvj job top`: the slowest rank, and what `hvj experiment compare` shows of the time."""

from typing import Any

from horovodjob.client.jobs.batchai_records import job_record
from horovodjob.client.jobs.usage import usage_record
from horovodjob.training_history import goodput_percent

TRAINING = {
    "slowestRank": {"rank": 3, "pod": "train-worker-1", "node": "gpu-7", "ratio": 1.6, "section": "input"},
    "goodput": {"percent": 71.4, "seconds": {"steps": 714, "input": 286}},
}
JOB: dict[str, Any] = {
    "metadata": {"name": "train", "namespace": "team", "creationTimestamp": "2026-11-26T12:00:00Z"},
    "spec": {"worker": {"replicas": 2, "gpus": 2}, "command": ["train"], "image": "a"},
    "status": {"phase": "Running", "training": TRAINING},
}


def note(index: int) -> object:
    labels = {"horovodjob.dev/role": "worker", "horovodjob.dev/replica-index": str(index)}
    pod = {"metadata": {"name": f"train-worker-{index}", "labels": labels}, "spec": {"nodeName": f"gpu-{index}"}}
    gpus = [{"index": 0, "percent": 0, "usedMiB": 1, "totalMiB": 2}] if index else None
    return usage_record(JOB, pod, None, gpus)["note"]


def test_the_pod_of_the_slowest_rank_has_a_note() -> None:
    assert note(1) == "GPU 0 idle; rank 3 is slow: 1.60 times the median, mostly input"
    assert note(0) is None


def test_the_record_of_a_job_has_sentences_about_its_time() -> None:
    record = job_record(JOB)
    assert record["goodput"] == "71.4 % (input 28.6 %)"
    assert record["slowRank"].startswith("rank 3 (train-worker-1, node gpu-7) needs 1.60 times as long")
    assert goodput_percent(JOB) == 71.4
    assert goodput_percent({}) is None
