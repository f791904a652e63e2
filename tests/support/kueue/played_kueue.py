"""Kueue's controller, played: queues, quota, preemption, admission checks, evictions and limits of time.

It knows one ClusterQueue a LocalQueue, no cohorts and no borrowing, and reads everything from the API server. What it
writes, and when, was compared with the real controller's.
"""

import contextlib
import copy
import http.client
import threading
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from types import TracebackType
from typing import Self

from horovodjob_operator.domain.resources.parts.resource_requests import format_quantity, parse_quantity, pod_requests
from support.api_client import Api, ApiError, Object
from support.control_plane.watch_threads import Watch
from support.kueue.definitions import API

GATE = "kueue.x-k8s.io/topology"
PODS = "/api/v1/pods"
SHORTEST_RETRY_SECONDS = 0.1
# Evictions after which Kueue itself, and nobody else, lets the Workload back into its queue.
RESTARTED = {
    "ClusterQueueStopped": ("ClusterQueueRestarted", "The ClusterQueue was restarted after being stopped"),
    "LocalQueueStopped": ("LocalQueueRestarted", "The LocalQueue was restarted after being stopped"),
    "Deactivated": ("Reactivated", "The workload was reactivated"),
    "AdmissionCheck": ("BackoffFinished", "The workload backoff was finished"),
    "PodsReadyTimeout": ("BackoffFinished", "The workload backoff was finished"),
}
Amounts = dict[tuple[str, str], Fraction]
"""Amounts by flavor and resource."""
NONE = Fraction(0)


class Mirror(Watch):
    """The objects of one kind as the API server has them."""

    def __init__(self, api: Api, path: str, changed: threading.Event) -> None:
        super().__init__(api)
        self.path, self._changed = path, changed
        self._objects: dict[tuple[str, str], Object] = {}

    def handle_event(self, event: Object) -> None:
        """Keeps an object, or forgets it."""
        if event["type"] == "DELETED":
            self._objects.pop(_key(event["object"]), None)
        else:
            self.keep(event["object"])
        self._changed.set()

    def keep(self, found: Object) -> None:
        """Keeps an object unless a newer version is known."""
        known = self._objects.get(_key(found))
        if known is None or known["metadata"]["uid"] != found["metadata"]["uid"] or _version(known) <= _version(found):
            self._objects[_key(found)] = found

    def find(self, name: str, namespace: str = "") -> Object | None:
        """The object of this name, or None."""
        return self._objects.get((namespace, name))

    def all(self) -> list[Object]:
        """All objects, the oldest first."""
        objects = list(self._objects.values())
        return sorted(objects, key=lambda one: (one["metadata"]["creationTimestamp"], _key(one)))


class PlayedKueue:
    """A thread that does what Kueue's controller does; `pods_ready_seconds` is its `waitForPodsReady.timeout`."""

    def __init__(self, api: Api, *, pods_ready_seconds: float = 0) -> None:
        self._api, self._pods_ready_seconds = api, pods_ready_seconds
        self._changed, self._ended = threading.Event(), threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self) -> Self:
        """Watches and acts until `stop`."""
        self._ended.clear()

        def mirror(plural: str) -> Mirror:
            made = Mirror(self._api, plural if "/" in plural else f"{API}/{plural}", self._changed)
            self._threads.append(made)
            return made

        self._workloads, self._locals, self._clusters = (
            mirror(plural) for plural in ("workloads", "localqueues", "clusterqueues")
        )
        self._flavors, self._pods = mirror("resourceflavors"), mirror(PODS)
        self._threads.append(threading.Thread(target=self._run, daemon=True))
        for thread in self._threads:
            thread.start()
        return self

    def stop(self) -> None:
        """Ends without a trace, as a controller that is killed."""
        self._ended.set()
        for thread in self._threads:
            if isinstance(thread, Watch):
                thread.end()
        for thread in self._threads[-1:]:  # a watch ends with its next event
            thread.join()
        self._threads.clear()

    def wait(self) -> None:
        """Returns when it has ended."""
        self._ended.wait()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    # ---- the loop -----------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._ended.is_set():
            self._changed.wait(SHORTEST_RETRY_SECONDS)
            self._changed.clear()
            with contextlib.suppress(OSError, http.client.HTTPException):
                for workload in self._workloads.all():
                    self._reconcile(workload)
                for queue in self._clusters.all():
                    self._schedule(queue)
                for pod in self._pods.all():
                    self._place(pod)

    def _write(self, workload: Object, status: Object) -> Object | None:
        """Writes fields of the status; None if somebody else has written meanwhile, else the Workload."""
        metadata = workload["metadata"]
        body = {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "status": status}
        return self._patch(f"{_path(workload)}/status", body)

    def _patch(self, path: str, body: Object) -> Object | None:
        try:
            changed = self._api.patch(path, body)
        except ApiError as error:
            if error.status not in (404, 409):
                raise
            return None
        self._workloads.keep(changed)
        return changed

    # ---- one Workload -------------------------------------------------------------------------------------

    def _reconcile(self, workload: Object) -> None:
        """Everything but the assignment of quota, one write at a time."""
        if is_true(workload, "Finished") or "deletionTimestamp" in workload["metadata"]:
            return
        conditions = Conditions(workload)
        status: Object = {}
        if not workload["spec"].get("active", True):
            if not is_true(workload, "Evicted"):
                self._deactivate(workload, conditions, status)
        elif is_true(workload, "DeactivationTarget"):
            self._patch(_path(workload), {"spec": {"active": False}})
            return
        elif self._evict_if_due(workload, conditions, status):
            pass
        elif is_true(workload, "QuotaReserved"):
            self._admit_if_ready(workload, conditions, status)
        if not is_true(workload, "QuotaReserved"):
            self._requeue(workload, conditions)
            self._explain(workload, conditions)
        if conditions.changed:
            status["conditions"] = conditions.entries
        if status:
            self._write(workload, status)

    def _deactivate(self, workload: Object, conditions: "Conditions", status: Object) -> None:
        target = condition(workload, "DeactivationTarget")
        due = f"DueTo{target['reason']}" if target else ""
        message = "The workload is deactivated" + (f" due to {target['message']}" if target else "")
        conditions.remove("DeactivationTarget")
        self._evict(workload, conditions, status, f"Deactivated{due}", message)
        status["requeueState"] = None

    def _evict(self, workload: Object, conditions: "Conditions", status: Object, reason: str, message: str) -> None:
        conditions.set("Evicted", "True", reason, message)
        if checks := workload.get("status", {}).get("admissionChecks"):
            again = [
                {key: value for key, value in check.items() if key != "podSetUpdates"}
                | {"state": "Pending", "message": "Reset to Pending after eviction"}
                for check in checks
            ]
            status["admissionChecks"] = again

    def _evict_if_due(self, workload: Object, conditions: "Conditions", status: Object) -> bool:
        """Evicts a Workload with a reservation where a queue, a check or a limit of time demands it."""
        if not is_true(workload, "QuotaReserved") or is_true(workload, "Evicted"):
            return False
        checks = workload["status"].get("admissionChecks", ())
        for state, what in (("Rejected", ""), ("Retry", "Evicted due to ")):
            if found := [check for check in checks if check["state"] == state]:
                names = "; ".join(
                    f'"{check["name"]}" ({check["message"]})' if check["message"] else f'"{check["name"]}"'
                    for check in found
                )
                message = f"{what}AdmissionCheck{'s' if found[1:] else ''} in {state} state: {names}"
                if state == "Rejected":
                    conditions.set("DeactivationTarget", "True", "AdmissionCheck", message)
                else:
                    self._evict(workload, conditions, status, "AdmissionCheck", message)
                return True
        local, cluster = self._queues(workload)
        if is_true(workload, "Admitted"):
            for kind, queue in (("LocalQueue", local), ("ClusterQueue", cluster)):
                if queue and queue["spec"].get("stopPolicy") == "HoldAndDrain":
                    self._evict(workload, conditions, status, f"{kind}Stopped", f"The {kind} is stopped")
                    return True
            return self._evict_late(workload, conditions, status)
        return False

    def _evict_late(self, workload: Object, conditions: "Conditions", status: Object) -> bool:
        """Evicts a Workload whose pods are not ready in time, or that has run too long."""
        began = datetime.fromisoformat(condition(workload, "Admitted")["lastTransitionTime"])
        now = datetime.now(UTC)
        if limit := workload["spec"].get("maximumExecutionTimeSeconds"):
            past = workload["status"].get("accumulatedPastExecutionTimeSeconds", 0)
            if now >= began + timedelta(seconds=limit - past):
                message = "exceeding the maximum execution time"
                conditions.set("DeactivationTarget", "True", "MaximumExecutionTimeExceeded", message)
                return True
        ready = condition(workload, "PodsReady")
        if self._pods_ready_seconds and ready.get("status") != "True":
            if ready.get("reason") == "WaitForRecovery":
                began = datetime.fromisoformat(ready["lastTransitionTime"])
            if now >= began + timedelta(seconds=self._pods_ready_seconds):
                metadata = workload["metadata"]
                message = f"Exceeded the PodsReady timeout {metadata['namespace']}/{metadata['name']}"
                self._evict(workload, conditions, status, "PodsReadyTimeout", message)
                count = workload["status"].get("requeueState", {}).get("count", 0) + 1
                at = (now + timedelta(seconds=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
                status["requeueState"] = {"count": count, "requeueAt": at}
                return True
        return False

    def _admit_if_ready(self, workload: Object, conditions: "Conditions", status: Object) -> None:
        checks = self._checks(workload, status)
        if is_true(workload, "Admitted"):
            return
        if all(check["state"] == "Ready" for check in checks):
            conditions.set("Admitted", "True", "Admitted", "The workload is admitted")
        else:
            message = "The workload has not all checks ready"
            conditions.set("Admitted", "False", "UnsatisfiedAdmissionChecks", message)

    def _checks(self, workload: Object, status: Object) -> list[Object]:
        """The admission checks that the ClusterQueue demands; writes those that are new."""
        _, cluster = self._queues(workload)
        strategy = cluster["spec"].get("admissionChecksStrategy", {}) if cluster else {}
        known = {check["name"]: check for check in workload["status"].get("admissionChecks", ())}
        fresh = {"state": "Pending", "message": "", "lastTransitionTime": _now()}
        wanted = [known.get(one["name"], {"name": one["name"]} | fresh) for one in strategy.get("admissionChecks", ())]
        if wanted != list(known.values()):
            status["admissionChecks"] = wanted
        return wanted

    def _requeue(self, workload: Object, conditions: "Conditions") -> None:
        """Lets a Workload back into its queue as soon as the reason of its eviction has passed."""
        requeued = condition(workload, "Requeued")
        if requeued.get("status") != "False" or not workload["spec"].get("active", True):
            return
        reason = "Deactivated" if requeued["reason"].startswith("Deactivated") else requeued["reason"]
        local, cluster = self._queues(workload)
        queue = {"ClusterQueueStopped": cluster, "LocalQueueStopped": local}.get(reason)
        if queue and queue["spec"].get("stopPolicy", "None") != "None":
            return
        if reason in RESTARTED and not self._is_backing_off(workload):
            conditions.set("Requeued", "True", *RESTARTED[reason])

    def _is_backing_off(self, workload: Object) -> bool:
        at = workload.get("status", {}).get("requeueState", {}).get("requeueAt")
        return bool(at) and datetime.now(UTC) < datetime.fromisoformat(at)

    def _explain(self, workload: Object, conditions: "Conditions") -> None:
        """Says why a Workload waits, where it is not for quota."""
        reason, message = self._obstacle(workload)
        if reason:
            conditions.set("QuotaReserved", "False", reason, message)
            conditions.set("Admitted", "False", "NoReservation", "The workload has no reservation")

    def _obstacle(self, workload: Object) -> tuple[str, str]:
        if not workload["spec"].get("active", True):
            return "Deactivated", "The workload is deactivated"
        name = workload["spec"].get("queueName", "")
        local, cluster = self._queues(workload)
        if local is None:
            return "Misconfigured", f"LocalQueue {name} doesn't exist"
        if local["spec"].get("stopPolicy", "None") != "None":
            return "Suspended", f"LocalQueue {name} is inactive"
        if cluster is None:
            return "Misconfigured", f"ClusterQueue {local['spec']['clusterQueue']} doesn't exist"
        flavors = [flavor["name"] for group in cluster["spec"]["resourceGroups"] for flavor in group["flavors"]]
        if cluster["spec"].get("stopPolicy", "None") != "None" or not all(map(self._flavors.find, flavors)):
            return "Suspended", f"ClusterQueue {cluster['metadata']['name']} is inactive"
        return "", ""

    def _queues(self, workload: Object) -> tuple[Object | None, Object | None]:
        """LocalQueue and ClusterQueue."""
        local = self._locals.find(workload["spec"].get("queueName", ""), workload["metadata"]["namespace"])
        return local, self._clusters.find(local["spec"]["clusterQueue"]) if local else None

    # ---- quota --------------------------------------------------------------------------------------------

    def _schedule(self, cluster: Object) -> None:
        """Reserves quota for the Workloads that wait in a ClusterQueue, the most urgent and oldest first."""
        members = [one for one in self._workloads.all() if self._queues(one)[1] == cluster]
        held = [one for one in members if is_true(one, "QuotaReserved") and not is_true(one, "Finished")]
        pending = [one for one in members if one not in held and self._may_be_scheduled(one)]
        for workload in sorted(pending, key=_urgency):
            used = _sum(map(_usage, held))
            admission, reason, message = self._fit(workload, cluster, used)
            if admission:
                if not self._is_current(cluster):
                    return
                if reserved := self._reserve(workload, admission):
                    held.append(reserved)
                continue
            if reason == "WaitingForQuota" and (victims := self._victims(workload, cluster, held)):
                for victim in victims:
                    self._preempt(victim, workload)
                reason, message = (
                    "WaitingForPreemptedWorkloads",
                    (f"{message}. Pending the preemption of {len(victims)} workload(s)"),
                )
            conditions = Conditions(workload)
            conditions.set("QuotaReserved", "False", reason, message)
            conditions.set("Admitted", "False", "NoReservation", "The workload has no reservation")
            if conditions.changed:
                self._write(workload, {"conditions": conditions.entries})

    def _is_current(self, cluster: Object) -> bool:
        """Whether a ClusterQueue is as the API server has it.

        The watches are independent of each other, so a job can be seen before a change of its queue that precedes it.
        """
        current = self._api.find(f"{API}/clusterqueues/{cluster['metadata']['name']}")
        if current:
            self._clusters.keep(current)
        return current is not None and _version(current) == _version(cluster)

    def _may_be_scheduled(self, workload: Object) -> bool:
        return not (
            is_true(workload, "Finished")
            or "deletionTimestamp" in workload["metadata"]
            or condition(workload, "Requeued").get("status") == "False"
            or self._is_backing_off(workload)
            or self._obstacle(workload)[0]
        )

    def _fit(self, workload: Object, cluster: Object, used: Amounts) -> tuple[Object | None, str, str]:
        """An admission with as many pods as possible, or why there is none."""
        answer = self._fit_counts(workload, cluster, used, {})
        for pod_set in workload["spec"]["podSets"]:
            for count in range(pod_set["count"] - 1, pod_set.get("minCount", pod_set["count"]) - 1, -1):
                if answer[0]:
                    break
                fewer = self._fit_counts(workload, cluster, used, {pod_set["name"]: count})
                answer = fewer if fewer[0] else answer
        return answer

    def _fit_counts(
        self, workload: Object, cluster: Object, used: Amounts, counts: dict[str, int]
    ) -> tuple[Object | None, str, str]:
        wanted: Amounts = {}
        assignments, reasons, sentences = [], [], []
        done = _reclaimed(workload)
        for pod_set in workload["spec"]["podSets"]:
            count = counts.get(pod_set["name"], pod_set["count"]) - done.get(pod_set["name"], 0)
            requests = {name: amount * count for name, amount in pod_requests(pod_set["template"]).items()}
            flavors: dict[str, str] = {}
            for resource, amount in requests.items():
                flavors[resource], reason, sentence = self._flavor(pod_set, resource, amount, cluster, used, wanted)
                if reason:
                    reasons.append(reason)
                    sentences.append(f"couldn't assign flavors to pod set {pod_set['name']}: {sentence}")
                    break
            if reasons and reasons[-1] != "WaitingForQuota":
                break
            share = {(flavors[resource], resource): requests[resource] for resource in flavors}
            wanted = _sum((wanted, share))
            usage = {resource: format_quantity(amount) for resource, amount in requests.items()}
            assignments.append(
                {"name": pod_set["name"], "count": count, "flavors": flavors, "resourceUsage": usage}
                | _topology(pod_set, count)
            )
        if reasons:
            return None, reasons[-1], "; ".join(sentences)
        return {"clusterQueue": cluster["metadata"]["name"], "podSetAssignments": assignments}, "", ""

    def _flavor(
        self, pod_set: Object, resource: str, amount: Fraction, cluster: Object, used: Amounts, wanted: Amounts
    ) -> tuple[str, str, str]:
        """The first flavor with room; or the last one, and the reason and the sentence why it has none."""
        answer = ("", "Misconfigured", f"resource {resource} unavailable in ClusterQueue")
        selector = pod_set["template"]["spec"].get("nodeSelector", {})
        for group in cluster["spec"]["resourceGroups"]:
            if resource not in group["coveredResources"]:
                continue
            for flavor in group["flavors"]:
                labels = (self._flavors.find(flavor["name"]) or {})["spec"].get("nodeLabels", {})
                if any(labels[key] != value for key, value in selector.items() if key in labels):
                    answer = ("", "NoMatchingFlavor", f"flavor {flavor['name']} doesn't match node affinity")
                    continue
                quota = next(
                    parse_quantity(one["nominalQuota"]) for one in flavor["resources"] if one["name"] == resource
                )
                where = (flavor["name"], resource)
                if amount + wanted.get(where, NONE) > quota:
                    answer = (
                        flavor["name"],
                        "ExceedsMaxQuota",
                        f"insufficient quota for {resource} in flavor {flavor['name']}, previously considered podsets "
                        f"requests ({format_quantity(wanted.get(where, NONE))}) + current podset request "
                        f"({format_quantity(amount)}) > maximum capacity ({format_quantity(quota)})",
                    )
                elif (missing := amount + wanted.get(where, NONE) + used.get(where, NONE) - quota) > 0:
                    answer = (
                        flavor["name"],
                        "WaitingForQuota",
                        f"insufficient unused quota for {resource} in flavor {flavor['name']}, "
                        f"{format_quantity(missing)} more needed",
                    )
                else:
                    return flavor["name"], "", ""
        return answer

    def _reserve(self, workload: Object, admission: Object) -> Object | None:
        conditions = Conditions(workload)
        conditions.set(
            "QuotaReserved", "True", "QuotaReserved", f"Quota reserved in ClusterQueue {admission['clusterQueue']}"
        )
        for kind in ("Evicted", "Preempted"):
            if before := condition(workload, kind):
                conditions.set(kind, "False", "QuotaReserved", f"Previously: {before['message']}")
        status: Object = {"admission": admission}
        reserved = workload | {"status": workload.get("status", {}) | {"conditions": conditions.entries}}
        self._admit_if_ready(reserved, conditions, status)
        return self._write(workload, status | {"conditions": conditions.entries})

    def _victims(self, workload: Object, cluster: Object, held: list[Object]) -> list[Object]:
        """The Workloads of lower priority whose quota is enough: least important first, the newest first."""
        if cluster["spec"].get("preemption", {}).get("withinClusterQueue") != "LowerPriority":
            return []
        lower = [one for one in held if _priority(one) < _priority(workload)]
        lower.sort(key=lambda one: (not is_true(one, "Evicted"), _priority(one), -_seconds(one)))
        victims: list[Object] = []
        for candidate in lower:
            victims.append(candidate)
            rest = [one for one in held if one not in victims]
            if self._fit_counts(workload, cluster, _sum(map(_usage, rest)), {})[0]:
                return victims
        return []

    def _preempt(self, victim: Object, preemptor: Object) -> None:
        if is_true(victim, "Evicted"):
            return
        metadata = preemptor["metadata"]
        job = metadata.get("labels", {}).get("kueue.x-k8s.io/job-uid", "UNKNOWN")
        path = f"/{victim['status']['admission']['clusterQueue']}"
        message = (
            f"Preempted to accommodate a workload (UID: {metadata['uid']}, JobUID: {job}) due to prioritization "
            f"in the ClusterQueue; preemptor path: {path}; preemptee path: {path}"
        )
        conditions = Conditions(victim)
        status: Object = {}
        self._evict(victim, conditions, status, "Preempted", message)
        conditions.set("Preempted", "True", "InClusterQueue", message)
        self._write(victim, status | {"conditions": conditions.entries})

    # ---- topology -----------------------------------------------------------------------------------------

    def _place(self, pod: Object) -> None:
        """Removes the gate of a pod whose Workload is admitted."""
        gates = pod["spec"].get("schedulingGates", [])
        name = pod["metadata"].get("annotations", {}).get("kueue.x-k8s.io/workload", "")
        workload = self._workloads.find(name, pod["metadata"]["namespace"])
        if {"name": GATE} not in gates or workload is None or not is_true(workload, "Admitted"):
            return
        metadata = pod["metadata"]
        body = {"spec": {"schedulingGates": [gate for gate in gates if gate["name"] != GATE]}}
        with contextlib.suppress(ApiError):
            self._pods.keep(
                self._api.patch(f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}", body)
            )


class Conditions:
    """The conditions of a Workload, and whether one was changed."""

    def __init__(self, workload: Object) -> None:
        self._generation = workload["metadata"]["generation"]
        self.entries: list[Object] = copy.deepcopy(workload.get("status", {}).get("conditions", []))
        self.changed = False

    def set(self, kind: str, status: str, reason: str, message: str) -> None:
        """Writes a condition; its time changes only with its status."""
        wanted = {"type": kind, "status": status, "reason": reason, "message": message}
        known = next((entry for entry in self.entries if entry["type"] == kind), None)
        if known and wanted.items() <= known.items():
            return
        time = known["lastTransitionTime"] if known and known["status"] == status else _now()
        self.remove(kind)
        self.entries.append(wanted | {"lastTransitionTime": time, "observedGeneration": self._generation})
        self.changed = True

    def remove(self, kind: str) -> None:
        """Removes a condition."""
        rest = [entry for entry in self.entries if entry["type"] != kind]
        self.changed = self.changed or rest != self.entries
        self.entries[:] = rest


def condition(workload: Object, kind: str) -> Object:
    """The condition of this type, or an empty object."""
    return next((one for one in workload.get("status", {}).get("conditions", ()) if one["type"] == kind), {})


def is_true(workload: Object, kind: str) -> bool:
    """Whether a condition is True."""
    return bool(condition(workload, kind).get("status") == "True")


def _usage(workload: Object) -> Amounts:
    """The quota that a Workload holds, without pods that are done."""
    status = workload["status"]
    done = _reclaimed(workload)
    asked = {one["name"]: one["count"] for one in workload["spec"]["podSets"]}
    shares: list[Amounts] = []
    for one in status["admission"]["podSetAssignments"]:
        count = min(one["count"], asked[one["name"]] - done.get(one["name"], 0))
        for resource, amount in one.get("resourceUsage", {}).items():
            share = parse_quantity(amount) * count / one["count"] if one["count"] else NONE
            shares.append({(one["flavors"][resource], resource): share})
    return _sum(shares)


def _reclaimed(workload: Object) -> dict[str, int]:
    """How many pods of each pod set have given their quota back."""
    return {one["name"]: one["count"] for one in workload.get("status", {}).get("reclaimablePods", ())}


def _sum(amounts: Iterable[Amounts]) -> Amounts:
    total: Amounts = {}
    for one in amounts:
        for where, amount in one.items():
            total[where] = total.get(where, NONE) + amount
    return total


def _topology(pod_set: Object, count: int) -> Object:
    """All pods on one node, where the pod set asks for a topology."""
    if not pod_set.get("topologyRequest"):
        return {}
    values = [{"universal": "node-1"}]
    piece = {"domainCount": 1, "podCounts": {"universal": count}, "valuesPerLevel": values}
    return {"topologyAssignment": {"levels": ["kubernetes.io/hostname"], "slices": [piece]}}


def _priority(workload: Object) -> int:
    return int(workload["spec"].get("priority", 0))


def _seconds(workload: Object) -> float:
    """When the Workload got its reservation."""
    return datetime.fromisoformat(condition(workload, "QuotaReserved")["lastTransitionTime"]).timestamp()


def _urgency(workload: Object) -> tuple[int, str, str]:
    evicted = condition(workload, "Evicted")
    since = workload["metadata"]["creationTimestamp"]
    if evicted.get("status") == "True" and evicted["reason"] == "PodsReadyTimeout":
        since = evicted["lastTransitionTime"]
    return -_priority(workload), since, workload["metadata"]["name"]


def _key(found: Object) -> tuple[str, str]:
    return found["metadata"].get("namespace", ""), found["metadata"]["name"]


def _version(found: Object) -> int:
    return int(found["metadata"]["resourceVersion"])


def _path(workload: Object) -> str:
    return f"{API}/namespaces/{workload['metadata']['namespace']}/workloads/{workload['metadata']['name']}"


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
