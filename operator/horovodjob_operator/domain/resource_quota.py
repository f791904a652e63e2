"""ResourceQuotas: which of the jobs that wait for one can start, all pods of a job or none. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Any

from horovodjob_operator.domain.resources.parts.resource_requests import (
    Amounts,
    format_quantity,
    parse_quantity,
    pod_limits,
    pod_requests,
)

# Resources that a quota names without a prefix too. (pkg/quota/v1/evaluator/core/pods.go, podComputeUsageHelper)
_STANDARD = ("cpu", "memory", "ephemeral-storage")


@dataclass(frozen=True, slots=True)
class PodUsage:
    """What a pod counts in a quota, and what scopes of quotas ask about it."""

    amounts: Mapping[str, Fraction]
    priority_class: str = ""
    is_best_effort: bool = False
    has_deadline: bool = False
    has_cross_namespace_affinity: bool = False


def pod_usage(pod: Mapping[str, Any]) -> PodUsage:
    """The usage of a pod, given its manifest."""
    spec, requests, limits = pod["spec"], pod_requests(pod), pod_limits(pod)
    amounts: Amounts = {"pods": Fraction(1), "count/pods": Fraction(1)}
    for name, amount in requests.items():
        amounts[f"requests.{name}"] = amount
        if name in _STANDARD or name.startswith("hugepages-"):
            amounts[name] = amount
    amounts |= {f"limits.{name}": amount for name, amount in limits.items()}
    return PodUsage(
        amounts,
        priority_class=str(spec.get("priorityClassName") or ""),
        is_best_effort=not any(requests.get(name) or limits.get(name) for name in ("cpu", "memory")),
        has_deadline=spec.get("activeDeadlineSeconds") is not None,
        has_cross_namespace_affinity=_has_cross_namespace_affinity(spec),
    )


def _has_cross_namespace_affinity(spec: Mapping[str, Any]) -> bool:
    affinity = spec.get("affinity") or {}
    kinds = (affinity.get("podAffinity") or {}, affinity.get("podAntiAffinity") or {})
    required = [term for kind in kinds for term in kind.get("requiredDuringSchedulingIgnoredDuringExecution") or ()]
    preferred = [
        weighted["podAffinityTerm"]
        for kind in kinds
        for weighted in kind.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
    ]
    return any(term.get("namespaces") or "namespaceSelector" in term for term in (*required, *preferred))


@dataclass(frozen=True, slots=True)
class Scope:
    """A condition of a quota on pods."""

    name: str
    operator: str = "Exists"
    values: tuple[str, ...] = ()

    def includes(self, pod: PodUsage) -> bool:
        """Whether the quota counts a pod as far as this scope is concerned."""
        match self.name:
            case "BestEffort" | "NotBestEffort":
                return pod.is_best_effort is (self.name == "BestEffort")
            case "Terminating" | "NotTerminating":
                return pod.has_deadline is (self.name == "Terminating")
            case "CrossNamespacePodAffinity":
                return pod.has_cross_namespace_affinity
            case "PriorityClass":
                return self._includes_priority_class(pod.priority_class)
            case _:
                return False  # A scope of other objects than pods.

    def _includes_priority_class(self, name: str) -> bool:
        match self.operator:
            case "In":
                return name in self.values
            case "NotIn":
                return name not in self.values
            case "DoesNotExist":
                return not name
            case _:
                return bool(name)


@dataclass(frozen=True, slots=True)
class Quota:
    """A ResourceQuota: its limits, and what is used of them."""

    name: str
    hard: Mapping[str, Fraction]
    used: Mapping[str, Fraction]
    scopes: tuple[Scope, ...] = ()


def quota_from_raw(raw: Mapping[str, Any]) -> Quota:
    """A ResourceQuota as the API server stores it."""
    spec, status = raw.get("spec") or {}, raw.get("status") or {}
    selectors = (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
    scopes = [Scope(str(name)) for name in spec.get("scopes") or ()]
    scopes += [Scope(one["scopeName"], one["operator"], tuple(one.get("values") or ())) for one in selectors]
    # The API server compares with the limits that its controller has copied to the status.
    hard = status.get("hard") or spec.get("hard") or {}
    used = status.get("used") or {} if status.get("hard") else hard
    return Quota(raw["metadata"]["name"], _parsed(hard), _parsed(used), tuple(scopes))


def _parsed(amounts: Mapping[str, Any]) -> Amounts:
    return {str(name): parse_quantity(amount) for name, amount in amounts.items()}


Claim = Sequence[tuple[PodUsage, int]]
"""Pods, as their usage and their number."""


def claimed(quota: Quota, claim: Claim) -> Amounts:
    """What some pods need of the resources that a quota limits."""
    needs: Amounts = {}
    for pod, number in claim:
        if number and all(scope.includes(pod) for scope in quota.scopes):
            for name in quota.hard.keys() & pod.amounts.keys():
                needs[name] = needs.get(name, Fraction(0)) + pod.amounts[name] * number
    return needs


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """A job that waits for room in the quotas of its namespace."""

    key: tuple[str, str]
    created_at: datetime
    uid: str
    waiting_since: datetime
    turn: timedelta
    """How long it keeps room free for itself at first."""
    claim: Claim
    is_growing: bool = False
    """Its ranks run, and the claim are more workers of an elastic job: as many as fit, after all other jobs."""

    def keeps_room(self, now: datetime) -> bool:
        """Whether later jobs must leave the room that it needs, although it does not fit yet.

        Its turns and those of the others alternate, and each pair is twice as long as the one before. So smaller jobs
        cannot keep it waiting without end: one of its turns is longer than the jobs that run. Nor does it keep them
        waiting without end, because each turn has an end.
        """
        begin, length = self.waiting_since, self.turn
        while now >= begin + 2 * length:
            begin, length = begin + 2 * length, 2 * length
        return now < begin + length


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether a waiting job can start, and if not, why."""

    may_start: bool
    message: str = ""
    workers: int | None = None
    """How many workers it may create; None if all."""


def decide(
    quotas: Sequence[Quota],
    starting: Iterable[Claim],
    running: Iterable[Claim],
    waiting: Iterable[WaitingJob],
    now: datetime,
) -> dict[tuple[str, str], Decision]:
    """Which of the waiting jobs of a namespace can start, the oldest first.

    `starting` are the pods that jobs which need not wait have still to create, and `running` those that jobs have.
    """
    rooms = {
        quota.name: {name: limit - quota.used.get(name, Fraction(0)) for name, limit in quota.hard.items()}
        for quota in quotas
    }
    for claim in starting:
        _take(quotas, rooms, claim)
    decisions: dict[tuple[str, str], Decision] = {}
    running = tuple(running)
    is_kept = False
    for job in sorted(waiting, key=lambda job: (job.is_growing, job.created_at, job.uid)):
        if job.is_growing:
            decisions[job.key] = _growth(quotas, rooms, job, is_kept=is_kept)
            continue
        short = [quota for quota in quotas if _lacks_room(rooms[quota.name], claimed(quota, job.claim))]
        if not short:
            _take(quotas, rooms, job.claim)
            decisions[job.key] = Decision(may_start=True)
            continue
        decisions[job.key] = Decision(may_start=False, message=_message(short[0], job, is_kept=is_kept))
        if job.keeps_room(now) and _fits_when_jobs_end(quotas, job, running):
            _take(quotas, rooms, job.claim)
            is_kept = True
    return decisions


def _growth(quotas: Sequence[Quota], rooms: Mapping[str, Amounts], job: WaitingJob, *, is_kept: bool) -> Decision:
    """How many more workers a running job may have."""
    ((worker, number),) = job.claim
    full: Quota | None = None
    for quota in quotas:
        for name, amount in claimed(quota, ((worker, 1),)).items():
            fitting = max(int(rooms[quota.name][name] // amount), 0) if amount else number
            full, number = (quota, fitting) if fitting < number else (full, number)
    _take(quotas, rooms, ((worker, number),))
    message = _message(full, replace(job, claim=((worker, 1),)), is_kept=is_kept) if full else ""
    return Decision(may_start=number > 0, message=message, workers=number)


def decide_blindly(jobs: Iterable[WaitingJob], now: datetime, *, is_busy: bool) -> dict[tuple[str, str], Decision]:
    """As `decide` without knowledge of the quotas: one job at a time may try, while no other job creates pods."""
    jobs = list(jobs)
    starting = [job for job in jobs if not job.is_growing]
    ordered = sorted(starting or jobs, key=lambda job: (job.created_at, job.uid))
    # While no job has a turn, another one tries each minute.
    other = ordered[int(now.timestamp() // 60) % len(ordered)]
    first = next((job for job in ordered if job.keeps_room(now)), other)
    return {job.key: Decision(may_start=job is first and not is_busy) for job in jobs}


def _take(quotas: Iterable[Quota], rooms: Mapping[str, Amounts], claim: Claim) -> None:
    for quota in quotas:
        for name, amount in claimed(quota, claim).items():
            rooms[quota.name][name] -= amount


def _lacks_room(room: Mapping[str, Fraction], needs: Mapping[str, Fraction]) -> bool:
    return any(amount > room[name] for name, amount in needs.items() if amount)


def _fits_when_jobs_end(quotas: Iterable[Quota], job: WaitingJob, running: Sequence[Claim]) -> bool:
    """Whether the job fits when no other job has pods: only then does it help that others wait."""
    for quota in quotas:
        needs, freed = claimed(quota, job.claim), [claimed(quota, claim) for claim in running]
        for name, amount in needs.items():
            used = quota.used.get(name, Fraction(0)) - sum(
                (of_job.get(name, Fraction(0)) for of_job in freed), Fraction(0)
            )
            if amount > quota.hard[name] - max(used, Fraction(0)):
                return False
    return True


def _message(quota: Quota, job: WaitingJob, *, is_kept: bool) -> str:
    """Which quota has no room for the job, in the words of the API server.

    It does not say which job is first: each start of a job would change the statuses of all that wait.
    """
    needs = claimed(quota, job.claim)
    too_much = {name: amount for name, amount in needs.items() if amount > quota.hard[name]}
    lacking = too_much or needs
    amounts = ",".join(f"{name}={format_quantity(amount)}" for name, amount in sorted(lacking.items()))
    limits = ",".join(f"{name}={format_quantity(quota.hard[name])}" for name in sorted(lacking))
    pods = "another worker" if job.is_growing else "all pods of the job"
    message = f"exceeded quota: {quota.name}, needed for {pods}: {amounts}, limited: {limits}"
    if too_much and not job.is_growing:
        return f"{message}; the job can never start with this quota: make it smaller, or have the quota raised"
    return f"{message}; jobs that came earlier are first" if is_kept else message
