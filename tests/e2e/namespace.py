"""A namespace of one test, and the actions of a user in it: apply jobs, get them, read logs, delete."""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from e2e.access import DEADLINE_SECONDS, JOBS, MERGE_PATCH, Kubectl, wait_for
from e2e.install import kstatus_program
from e2e.recorder import Recorder
from localcluster.settings import Cluster
from support.api_client import Api, ApiError, Object
from support.gitops.health import disagreements
from support.invariants import false_alarms, violations
from support.phases import FINISHED

PREFIX = "e2e-"
# What Pod Security restricted requires of a container that is not created by the operator.
RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
# By default, ranks poll each other a thousand times a second, which uses a CPU while they wait.
RARELY = {"name": "HOROVOD_CYCLE_TIME", "value": "20"}
SELDOM = RARELY | {"value": "100"}
# A rank that waits for another one in MPI also uses a CPU, unless /data has this library of support.waiting_ranks.
SLEEPING = {"name": "LD_PRELOAD", "value": "/data/sleep_for_yield.so"}
# Trainings whose steps mostly sleep, with `slow_network` of this directory in /data.
SLOW_NETWORK = Path(__file__).parent / "training" / "programs" / "slow_network.py"
SLOWLY = ["python", "-m", "horovodjob_trainer", "--dataset", "digits", "--model", f"{SLOW_NETWORK.stem}:network"]
SLOWLY += ["--threads", "1", "--log-seconds", "1"]
OWN_MODULES = {"name": "PYTHONPATH", "value": "/data"}
# Waits for `Namespace.release`; each turn starts a process.
HELD = "until [ -e /tmp/go ]; do sleep 0.3; done"


class Namespace:
    """A namespace with a Pod Security level."""

    def __init__(
        self,
        *,
        api: Api,
        kubectl: Kubectl,
        jobs: Recorder,
        pods: Recorder,
        image: str,
        name: str,
        local: Cluster | None = None,
    ) -> None:
        self.api, self.kubectl, self.recorded_jobs, self.recorded_pods = api, kubectl, jobs, pods
        self.image, self.local = image, local
        self.name = f"{PREFIX}{name[:30].strip('-')}-{secrets.token_hex(3)}"
        self._applied: set[str] = set()
        self.stalled: set[str] = set()
        """The jobs whose training a test has stopped: what is said about that of others is a false alarm."""
        self._known_gaps = [(recorder, len(recorder.gaps)) for recorder in (jobs, pods)]

    # ---- actions

    def create(self, level: str) -> None:
        """Creates the namespace."""
        labels = {"pod-security.kubernetes.io/enforce": level}
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.name, "labels": labels}}
        self.api.request("POST", "/api/v1/namespaces", body)
        # Pods are rejected until the controller manager has created this one.
        path = f"{self.core}/serviceaccounts/default"
        wait_for("the default service account", lambda: self.api.find(path))

    def remove(self) -> None:
        """Checks the histories of the jobs, and deletes the namespace without waiting.

        Raises AssertionError for a history that is invalid or incomplete.
        """
        try:
            self._check_complete_histories()
            self.check_invariants()
        finally:
            with contextlib.suppress(ApiError):
                self.api.request("DELETE", f"/api/v1/namespaces/{self.name}")

    def _check_complete_histories(self) -> None:
        for job in self.api.items(f"{JOBS}/namespaces/{self.name}/horovodjobs"):
            self.recorded_jobs.catch_up(job)
        for recorder, gaps in self._known_gaps:
            recorder.check(gaps)
        histories = self.recorded_jobs.histories(self.name)
        missing = self._applied - {versions[0]["metadata"]["name"] for versions in histories}
        assert not missing, f"no version of {missing} was recorded"
        reported = any("phase" in version.get("status", {}) for versions in histories for version in versions)
        assert reported or not self._applied, f"no job in {self.name} ever had a phase"

    def check_invariants(self) -> None:
        """Raises AssertionError if the history of a job violates an invariant."""
        histories = self.recorded_jobs.histories(self.name)
        found = violations(histories, kstatus_program())
        found += false_alarms(histories, self.stalled)
        found += disagreements(version for history in histories for version in history)
        assert not found, "\n".join(found)

    @property
    def core(self) -> str:
        """Path of the core objects of the namespace."""
        return f"/api/v1/namespaces/{self.name}"

    def job(self, name: str, command: list[str] | str | None = None, **spec: Any) -> Object:
        """A job on CPUs; a string as command is a shell script."""
        argv = ["sh", "-c", command] if isinstance(command, str) else command
        worker = {"gpus": 0, "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}}, **spec.pop("worker", {})}
        launcher = {"resources": {"requests": {"cpu": "10m", "memory": "32Mi"}}, **spec.pop("launcher", {})}
        return {
            "apiVersion": "horovodjob.dev/v1beta1",
            "kind": "HorovodJob",
            "metadata": {"name": name, "namespace": self.name},
            "spec": {
                "image": self.image,
                **({"command": argv} if argv else {}),
                "worker": worker,
                "launcher": launcher,
                **spec,
            },
        }

    def apply(self, *objects: Object) -> None:
        """Runs `kubectl apply -f`."""
        given = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        self.kubectl("apply", "-n", self.name, "-f", "-", given=given)
        self._applied |= {one["metadata"]["name"] for one in objects if one["kind"] == "HorovodJob"}

    def change(self, name: str, spec: Object) -> None:
        """Changes fields of a job's spec."""
        path = f"{JOBS}/namespaces/{self.name}/horovodjobs/{name}"
        self.api.request("PATCH", path, {"spec": spec}, MERGE_PATCH)

    def delete(self, name: str) -> None:
        """Deletes a job."""
        self.api.request("DELETE", f"{JOBS}/namespaces/{self.name}/horovodjobs/{name}")

    def delete_pod(self, name: str, seconds: int | None = None) -> None:
        """Deletes a pod, with an optional grace period."""
        body = {"apiVersion": "v1", "kind": "DeleteOptions"} | (
            {} if seconds is None else {"gracePeriodSeconds": seconds}
        )
        self.api.request("DELETE", f"{self.core}/pods/{name}", body)

    # ---- observed state

    def find(self, name: str) -> Object:
        """The job in the watch cache, or an empty object."""
        return self.recorded_jobs.now.get((self.name, name), {})

    def status(self, name: str) -> Object:
        """The job's status."""
        status: Object = self.find(name).get("status", {})
        return status

    def condition(self, name: str, type_: str) -> Object:
        """One of the job's conditions."""
        conditions = self.status(name).get("conditions", ())
        return next((one for one in conditions if one["type"] == type_), {})

    def conditions(self, name: str, type_: str) -> list[tuple[str, str]]:
        """Reason and message of each version of a condition, in order."""
        conditions = (one for version in self._history(name) for one in version.get("status", {}).get("conditions", ()))
        return [(one["reason"], one["message"]) for one in conditions if one["type"] == type_]

    def _history(self, name: str) -> list[Object]:
        return list(self.recorded_jobs.history.get(self.find(name).get("metadata", {}).get("uid", ""), []))

    def phases(self, name: str) -> list[str]:
        """The phases of the job in order, each once per stay."""
        phases = [version.get("status", {}).get("phase") for version in self._history(name)]
        return [phase for i, phase in enumerate(phases) if phase and (i == 0 or phases[i - 1] != phase)]

    def wait(
        self, name: str, what: str, condition: Callable[[Object], Any], seconds: float = DEADLINE_SECONDS
    ) -> Object:
        """Waits for the condition and returns the status; fails at once if the job has ended otherwise."""

        def poll() -> Object | None:
            status = self.status(name)
            if status.get("phase") and condition(status):
                return status
            assert status.get("phase") not in FINISHED, f"{name} ended {status['phase']} before: {what}"
            return None

        return wait_for(f"{self.name}/{name}: {what}", poll, seconds)

    def wait_phase(self, name: str, *phases: str, seconds: float = DEADLINE_SECONDS) -> Object:
        """Waits for one of the phases and returns the status."""
        return self.wait(name, f"phase {' or '.join(phases)}", lambda s: s.get("phase") in phases, seconds)

    def wait_reason(self, name: str, reason: str, seconds: float = DEADLINE_SECONDS) -> Object:
        """Waits for this reason of the condition Ready and returns the condition."""

        def poll(_: Object) -> bool:
            return self.condition(name, "Ready").get("reason") == reason

        self.wait(name, f"reason {reason}", poll, seconds)
        return self.condition(name, "Ready")

    def wait_progressing(self, name: str, reason: str, status: str = "False") -> str:
        """Waits for this reason and status of the condition Progressing, and returns its message."""

        def poll(_: Object) -> bool:
            found = self.condition(name, "Progressing")
            return (found.get("status"), found.get("reason")) == (status, reason)

        self.wait(name, f"Progressing={status} {reason}", poll)
        return str(self.condition(name, "Progressing")["message"])

    def pod(self, name: str) -> Object | None:
        """A pod in the watch cache."""
        return self.recorded_pods.now.get((self.name, name))

    def pods(self, job: str = "") -> dict[str, Object]:
        """The pods of a job, or of all, by name."""
        pods = {pod["metadata"]["name"]: pod for pod in self.recorded_pods.of(self.name)}
        return {name: pod for name, pod in pods.items() if not job or _job_of(pod) == job}

    def pods_ever(self, job: str) -> list[Object]:
        """Every pod that a job ever had."""
        return [pod for pod in self.recorded_pods.ever(self.name) if _job_of(pod) == job]

    def log(self, pod: str, container: str = "") -> str:
        """The log of a pod."""
        query = f"?container={container}" if container else ""
        return self.api.text(f"{self.core}/pods/{pod}/log{query}")

    def output(self, job: str) -> list[str]:
        """The output of the ranks: the launcher's log without the messages of the start scripts."""
        lines = self.log(f"{job}-launcher", "launcher").splitlines()
        # On a busy machine mpirun warns that ssh was faster than expected; the warning has no consequence.
        others = (" horovodjob: ", "plm:rsh: Warning: setpgid")
        return [line for line in lines if not any(words in line for words in others)]

    def exec(self, pod: str, *command: str, container: str = "") -> str:
        """The output of a command in a container of a pod."""
        chosen = ["-c", container] if container else []
        return self.kubectl("exec", "-n", self.name, pod, *chosen, "--", *command)

    def release(self, *pods: str, container: str = "", file: str = "/tmp/go") -> None:
        """Creates the file that a program in a pod waits for."""
        for pod in pods:
            self.exec(pod, "touch", file, container=container)

    def processes(self, pod: str) -> list[tuple[str, str]]:
        """Attempt and command line of each rank and ssh session in the container of a pod."""
        script = (
            "for e in $(grep -lz '^HOROVODJOB_SESSION=.' /proc/[0-9]*/environ); do "
            "a=$(grep -z '^HOROVODJOB_ATTEMPT=' $e | tr -d '\\0'); "
            '[ -n "$a" ] && echo "${a#*=} $(tr "\\0" " " <${e%environ}cmdline)"; done 2>/dev/null; true'
        )
        lines = self.exec(pod, "sh", "-c", script).splitlines()
        return [(line.split(" ", 1)[0], line.partition(" ")[2]) for line in lines]

    def events(self, job: str) -> list[str]:
        """The reasons of a job's events, in order of time."""
        return [event["reason"] for event in self._events(job)]

    def event_notes(self, job: str, reason: str) -> list[str]:
        """The notes of a job's events with this reason, in order of time."""
        return [event["note"] for event in self._events(job) if event["reason"] == reason]

    def _events(self, job: str) -> list[Object]:
        uid = self.find(job)["metadata"]["uid"]
        events = self.api.items(f"/apis/events.k8s.io/v1/namespaces/{self.name}/events")
        own = [event for event in events if event.get("regarding", {}).get("uid") == uid]
        return sorted(own, key=lambda event: str(event["eventTime"]))

    def nodes_of(self, pod: str) -> set[str]:
        """The nodes that pods of this name ever had."""
        ever = [one["spec"] for one in self.recorded_pods.ever(self.name) if one["metadata"]["name"] == pod]
        return {spec["nodeName"] for spec in ever if "nodeName" in spec}

    def secrets(self) -> list[str]:
        """The names of the Secrets that belong to jobs."""
        metadata = (secret["metadata"] for secret in self.api.items(f"{self.core}/secrets"))
        return [one["name"] for one in metadata if "ownerReferences" in one]

    def diagnostics(self) -> Iterator[tuple[str, str]]:
        """Diagnostics for a failed test: jobs, pods, events and logs."""
        for job in self.recorded_jobs.of(self.name):
            name = job["metadata"]["name"]
            job = job | {"metadata": {**job["metadata"], "managedFields": None}}
            yield f"job {name}", f"phases {self.phases(name)}\n{json.dumps(job, indent=1)}"
        pods = self.pods()
        yield "pods", "\n".join(f"{name}: {json.dumps(pod.get('status', {}))}" for name, pod in pods.items())
        for name in pods:
            yield f"log of {name}", self.log(name)[-3000:]


def _job_of(pod: Object) -> str:
    return str(pod["metadata"].get("labels", {}).get("horovodjob.dev/job", ""))


def volume(namespace: Namespace, directory: Path) -> tuple[list[Object], list[Object]]:
    """spec.volumes and spec.volumeMounts of /data: a directory of the node, in a volume that an administrator created.

    Pod Security restricted does not allow hostPath volumes. The directories of a given
    cluster's nodes are not accessible, so there /data is empty and each pod has its own.
    """
    mounts = [{"name": "data", "mountPath": "/data"}]
    if not namespace.local:
        return [{"name": "data", "emptyDir": {}}], mounts
    name = f"{namespace.name}-data"
    modes = ["ReadWriteMany"]
    namespace.apply(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": modes,
                "persistentVolumeReclaimPolicy": "Retain",
                "storageClassName": "",
                "hostPath": {"path": str(directory)},
                "claimRef": {"namespace": namespace.name, "name": "data"},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "data", "namespace": namespace.name},
            "spec": {
                "accessModes": modes,
                "storageClassName": "",
                "volumeName": name,
                "resources": {"requests": {"storage": "1Gi"}},
            },
        },
    )
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    return volumes, mounts
