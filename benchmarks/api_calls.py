"""Counts the operator's API calls per job, from the API server's audit log, against the budget.

    python benchmarks/api_calls.py [--workers 1 2 8] [--idle 60]

Needs the local cluster with the operator in it (`make demo` leaves one). The budget for a job of N workers from
apply to success and clean-up: N + 3 creates, one patch of the launcher, one deletecollection, one delete of the
Secret, at most 4 status writes, at most 5 events, and no read. With nothing to do, the operator renews its Lease and
nothing else.
"""

import argparse
import json
import sys
import time
from collections import Counter
from typing import Any

from audit import budget, requested
from cluster_client import AUDIT_LOG, OPERATOR_USER, Watch, apply, fresh_namespace, kubectl, trainer_image

NAMESPACE = "benchmark-calls"


def calls(position: int, namespace: str | None) -> Counter[str]:
    """The operator's calls since a position of the audit log; those in a namespace, or all."""
    counted: Counter[str] = Counter()
    with AUDIT_LOG.open() as log:
        log.seek(position)
        for line in log:
            try:
                event: dict[str, Any] = json.loads(line)
            except ValueError:
                continue
            reference = event.get("objectRef", {})
            if event["user"]["username"] != OPERATOR_USER or event["stage"] != "ResponseComplete":
                continue
            if namespace is None or reference.get("namespace") == namespace:
                counted[requested(event)] += 1
    return counted


def one_job(image: str, workers: int) -> Counter[str]:
    """Calls for one job, from apply until its workers are gone."""
    position = AUDIT_LOG.stat().st_size
    pods, jobs = Watch("pods", NAMESPACE), Watch("horovodjobs", NAMESPACE)
    name = f"workers-{workers}"
    apply(
        {
            "apiVersion": "horovodjob.dev/v1beta1",
            "kind": "HorovodJob",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"image": image, "worker": {"replicas": workers, "gpus": 0}, "command": ["sleep", "3"]},
        }
    )
    jobs.when(lambda objects: objects.get(name, {}).get("status", {}).get("phase") == "Succeeded")
    pods.when(lambda objects: list(objects) == [f"{name}-launcher"])
    pods.close()
    jobs.close()
    counted = calls(position, NAMESPACE)
    kubectl("delete", "horovodjob", "-n", NAMESPACE, name, "--wait=true")
    return counted


def main() -> None:
    """Prints the counts; exit code 1 if a budget is not kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 8])
    parser.add_argument("--idle", type=int, default=60, help="seconds to watch the operator doing nothing")
    options = parser.parse_args()
    if not AUDIT_LOG.exists():
        sys.exit(f"there is no audit log at {AUDIT_LOG}: this benchmark needs the local cluster (make cluster-up)")
    image, over = trainer_image(), False
    fresh_namespace(NAMESPACE)
    for workers in options.workers:
        counted, allowed = one_job(image, workers), budget(workers)
        print(f"\n{workers} workers: {sum(counted.values())} calls, the budget is {sum(allowed.values())}")
        for call in sorted({*counted, *allowed}):
            verdict = "ok" if counted[call] <= allowed.get(call, 0) else "OVER"
            over |= verdict == "OVER"
            print(f"  {call:<28} {counted[call]:4d} of {allowed.get(call, 0):4d}  {verdict}", flush=True)
    kubectl("delete", "namespace", NAMESPACE, "--wait=true")
    position = AUDIT_LOG.stat().st_size
    time.sleep(options.idle)
    idle = calls(position, None)
    print(f"\nidle for {options.idle} s: {dict(idle) or 'no calls'}")
    reads = [call for call in idle if call.startswith(("list ", "get "))]
    raise SystemExit(over or bool(reads))


if __name__ == "__main__":
    main()
