"""One pass over one job: look, decide, write the status, act."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from horovodjob.api.constants import Gang, Phase, Reason, Role
from horovodjob.api.job import HorovodJob
from horovodjob.api.status import HorovodJobStatus
from horovodjob_operator.cluster.caches import Caches, Record
from horovodjob_operator.cluster.keys import secret_contents
from horovodjob_operator.cluster.objects import Objects
from horovodjob_operator.cluster.preflight import Preflight
from horovodjob_operator.domain import names
from horovodjob_operator.domain.checks.outcome import Outcome
from horovodjob_operator.domain.events import Event, events_between, recorded_events
from horovodjob_operator.domain.messages import count_text
from horovodjob_operator.domain.observed import KubeletEventReason, KubeletWarning, Observed, Refusal
from horovodjob_operator.domain.plan import Plan, plan_for
from horovodjob_operator.domain.pod import Pod
from horovodjob_operator.domain.pod_facts import OwnedPod, owned_pod, owner_uid
from horovodjob_operator.domain.resources.auxiliary_resources import auxiliary_resources
from horovodjob_operator.domain.resources.launcher import launcher_pod
from horovodjob_operator.domain.resources.pod_group import job_pod_group, not_served_message
from horovodjob_operator.domain.resources.secret import job_secret
from horovodjob_operator.domain.resources.worker import worker_pod
from horovodjob_operator.domain.status import is_significant, next_status
from horovodjob_operator.errors import ClusterError, Gone, InvalidJob, NameTaken, NotServed, Refused, Unavailable
from horovodjob_operator.metrics import count_transition

# Counts and words alone are written at most this often, and only when nothing else waits to be written: a start has
# four status writes, whatever its size and how many others there are.
UNHURRIED_SECONDS = 10
REFUSAL_FIRST_SECONDS = 5
REFUSAL_LONGEST_SECONDS = 300
# Pods of one job that are made at a time: a job with thousands of them leaves room for others.
CREATES_AT_ONCE = 32
# Objects of a deleted job of the same name are garbage collected within this time, or they are somebody else's.
GARBAGE_SECONDS = 10
# A pod gets its address when its volumes are mounted: seconds after it was placed, if all is well.
UNMOUNTED_SECONDS = 20
ASK_AGAIN_SECONDS = 60
# A kubelet repeats what is still true, at least every five minutes (client-go, EventSourceObjectSpamFilter).
WARNED_SECONDS = 600
PREFLIGHT = "azureFiles"
# A container that crashes again and again is started after at most five minutes; events are kept for an hour.
EVENT_SECONDS = 600
POST_AGAIN_SECONDS = 10
log = logging.getLogger("horovodjob.reconcile")


class Reconciler:
    """Carries a job from what is to what is wished; a pass that dies at any write is completed by the next."""

    def __init__(
        self,
        caches: Caches,
        objects: Objects,
        clock: Callable[[], datetime],
        progress_url: str,
        preflight: Preflight | None = None,
    ) -> None:
        self._caches, self._objects, self._clock, self._progress_url = caches, objects, clock, progress_url
        self._preflight = preflight

    async def reconcile(self, record: Record) -> datetime | None:
        """One pass; when to look again without an event. Raises Gone, Unavailable."""
        if record.job.metadata.deletion_timestamp:
            return None  # Kubernetes takes down what the job owns, and nothing is to be made anew.
        events = record.events = self._events(record)
        try:
            outcome, deferred = await self._report(record, events)
            record.gone.clear()  # the status says by now what became of them
            observed, now = self._caches.observed(record), self._clock()
            plan = plan_for(record.job, observed, outcome, now=now)
            again = await self._act(record, observed, plan, now)
            asked = await self._ask_kubelet(record, observed, now)
            checked = await self._check_companions(record, observed, now)
        finally:
            # Pods do not wait for what is told about them.
            unposted = await self._post(record.job, events)
        moments = [at for at in (plan.requeue_at, deferred, again, asked, checked, unposted) if at]
        return min(moments, default=None)

    async def _report(self, record: Record, events: dict[Event, datetime]) -> tuple[Outcome | None, datetime | None]:
        """Writes the status until a look adds nothing to it; the last outcome, and when a deferred write is due."""
        while True:
            now = self._clock()
            job, observed = record.job, self._caches.observed(record)
            status, outcome = next_status(job, observed, now=now)
            if status == job.status:
                return outcome, None
            if record.written_at and not is_significant(job.status, status):
                due = record.written_at + timedelta(seconds=UNHURRIED_SECONDS)
                if now >= due and self._objects.busy:
                    due = now + timedelta(seconds=UNHURRIED_SECONDS)
                if now < due:
                    return outcome, due
            await self._write(record, status, now)
            events |= dict.fromkeys(events_between(job, job.status, status), now)

    async def _write(self, record: Record, status: HorovodJobStatus, now: datetime) -> None:
        job, old = record.job, record.job.status
        try:
            version = await self._objects.write_status(job, status)
        except Unavailable:
            record.unanswered = record.version
            raise
        record.unanswered = None
        if version > record.version:  # else the watch has been quicker, and has shown what came after
            metadata = job.metadata.model_copy(update={"resource_version": str(version)})
            record.version, record.job = version, job.model_copy(update={"metadata": metadata, "status": status})
        record.written_at = now
        if status.phase is Phase.SUSPENDED:
            record.report = None  # what comes after begins anew
        count_transition(job, old, status)
        if status.phase is not old.phase:
            _tell(job, f"phase {old.phase or 'new'} -> {status.phase}: {_ready_message(status)}")

    def _events(self, record: Record) -> dict[Event, datetime]:
        """Events to post; also recent ones of a status with a writer that may have been killed before it posted them.

        The writer is an earlier process, or this one where the answer to the write was lost.
        """
        found = record.unanswered is not None and record.version > record.unanswered
        if record.events is not None and not found:
            return record.events
        record.unanswered = None
        recent = self._clock() - timedelta(seconds=EVENT_SECONDS)
        recorded = {event: event.since for event in recorded_events(record.job) if event.since > recent}
        return (record.events or {}) | recorded

    async def _post(self, job: HorovodJob, events: dict[Event, datetime]) -> datetime | None:
        """Posts events; when to try again those that remain."""
        for number, (event, at) in enumerate(tuple(events.items())):
            try:
                await self._objects.post_event(job, event, at + timedelta(microseconds=number))
            except NameTaken:
                pass  # it was posted before
            except ClusterError as error:
                words = ("%s/%s event %s was not recorded: %s", *job.key, event.reason, error)
                log.warning(*words, extra=names.log_fields(job))
                again = self._clock() + timedelta(seconds=POST_AGAIN_SECONDS)
                if isinstance(error, Unavailable) and again < at + timedelta(seconds=EVENT_SECONDS):
                    return again
            del events[event]
        return None

    async def _ask_kubelet(self, record: Record, observed: Observed, now: datetime) -> datetime | None:
        """Asks for the kubelet's events about a pod that does not start, where they alone tell why."""
        unexplained = None if record.job.status.is_finished else _unexplained(observed, now)
        if unexplained is None or (record.warning and record.warning.reason is not unexplained[1]):
            record.warning = record.kubelet_asked_at = None
        if unexplained is None:
            return None
        pod, reason, due = unexplained
        if record.kubelet_asked_at:
            due = max(due, record.kubelet_asked_at + timedelta(seconds=ASK_AGAIN_SECONDS))
        if now < due:
            return due
        record.kubelet_asked_at, before = now, record.warning
        since = now - timedelta(seconds=WARNED_SECONDS)
        words = await self._objects.warning(record.job.metadata.namespace, pod.uid, reason, since)
        record.warning = KubeletWarning(reason, words) if words else None
        return now if record.warning != before else now + timedelta(seconds=ASK_AGAIN_SECONDS)

    async def _check_companions(self, record: Record, observed: Observed, now: datetime) -> datetime | None:
        """Creates again what somebody deleted of the job's other objects; when to look for them, if not now."""
        job, launcher = record.job, observed.launcher
        if not launcher or not launcher.is_active or launcher.is_terminating or launcher.attempt != job.status.attempt:
            return None  # the launcher is created after them
        if record.companions_checked_at:
            due = record.companions_checked_at + timedelta(seconds=ASK_AGAIN_SECONDS)
            if now < due:
                return due
        for companion in auxiliary_resources(job):
            try:
                await self._objects.partial_object(companion)
            except Gone:
                await self._create_again(job, companion)
        record.companions_checked_at = now
        return None

    async def _create_again(self, job: HorovodJob, companion: dict[str, Any]) -> None:
        what = f"{companion['kind']} {companion['metadata']['name']}"
        try:
            await self._objects.create(companion)
            _tell(job, f"created {what} again, which was deleted")
        except (NameTaken, Refused) as error:
            # The pods run already; a quota or a foreign object is no reason to end them.
            log.warning("%s/%s %s cannot be created again: %s", *job.key, what, error, extra=names.log_fields(job))

    async def _act(self, record: Record, observed: Observed, plan: Plan, now: datetime) -> datetime | None:
        job = record.job
        if plan.delete_job:
            await self._objects.delete_job(job)
            _tell(job, "deleted, as runPolicy.ttlSecondsAfterFinished says")
            return None
        await self._delete(record, observed, plan)
        if plan.delete_secrets:
            await self._delete_keys(record, observed)
        if plan.recheck_refusal:
            return await self._probe(record, now)
        if plan.creates_pods:
            if self._preflight and plan.create_launcher and (problem := await self._preflight.problem(job)):
                return self._refuse(record, PREFLIGHT, *problem, self._clock())
            try:
                await self._create(record, observed, plan)
                record.refusal = None
            except InvalidJob as error:
                return self._refuse(record, "", Reason.INVALID_SPEC, str(error), now)
            except _RefusedObject as error:
                return self._refuse(record, error.name, error.reason, str(error), now, stalled=error.stalled)
        if plan.publish_hosts and observed.launcher:
            await self._objects.publish_hosts(job, plan.hosts)
            self._caches.mark(job, [observed.launcher], hosts=plan.hosts)
            hosts = count_text(plan.hosts.count("\n"), "host")
            _tell(job, f"published {hosts} to the launcher of attempt {job.status.attempt}")
        # New pods and hosts count at once: no event may ever come that says more than is known here.
        return now if plan.creates_pods or plan.publish_hosts else None

    async def _delete(self, record: Record, observed: Observed, plan: Plan) -> None:
        job = record.job
        for kind in plan.delete_pod_groups:  # before the pods, by which the next pass would know of it
            await self._delete_pod_group(record, kind)
        if plan.delete_all_pods or plan.delete_workers:
            role = None if plan.delete_all_pods else Role.WORKER
            await self._objects.delete_pods(job, role)
            self._caches.mark(job, (pod for pod in observed.pods if role in (None, pod.role)), is_terminating=True)
            _tell(job, "deleted its pods" if role is None else "deleted its workers")
        for pod in observed.pods:
            if pod.name in plan.delete_pods:
                await self._delete_pod(job, pod)
        if plan.stop_launcher and observed.launcher:
            await self._objects.end_launcher(job)
            self._caches.mark(job, [observed.launcher], is_stopping=True)
            _tell(job, "ended the launcher, its pod stays with its log")

    async def _delete_keys(self, record: Record, observed: Observed) -> None:
        """Deletes the Secrets of a job that has ended, once: those that its pods mount, and one made here."""
        if record.keys_deleted:
            return
        job = record.job
        # Whoever may create pods could name any Secret in one.
        secrets = {pod.secret_name for pod in observed.pods if names.is_secret_name(job, pod.secret_name)}
        if "Secret" in record.ours:
            secrets.add(names.secret_name(job))
        for secret in sorted(secrets):
            try:
                await self._objects.delete_secret(job.metadata.namespace, secret)
            except Gone:
                pass
            except Refused as error:  # the rights of an older release
                log.warning("%s/%s Secret %s remains: %s", *job.key, secret, error, extra=names.log_fields(job))
        record.keys_deleted = True

    async def _delete_pod_group(self, record: Record, kind: Gang) -> None:
        with contextlib.suppress(Gone):
            await self._objects.delete_pod_group(record.job, kind)
        record.pod_group = Gang.NONE
        _tell(record.job, "deleted its PodGroup")

    async def _delete_pod(self, job: HorovodJob, pod: Pod) -> None:
        try:
            await self._objects.delete_pod(job.metadata.namespace, pod.name, pod.uid)
            _tell(job, f"deleted pod {pod.name} of attempt {pod.attempt}")
        except (Gone, NameTaken):
            pass
        self._caches.mark(job, [pod], is_terminating=True)

    async def _create(self, record: Record, observed: Observed, plan: Plan) -> None:
        """Creates what the plan says. One of each is built first, so that a job that cannot be built leaves nothing."""
        job, attempt = record.job, record.job.status.attempt
        common = (plan.secret_name, plan.spec_hash)
        pods = [(Role.WORKER, index, self._worker(job, index, *common)) for index in plan.create_workers[:1]]
        if plan.create_launcher:
            pods.insert(0, (Role.LAUNCHER, 0, self._launcher(job, plan.hosts, plan.spec_hash)))
        pod_group = job_pod_group(job)
        if plan.create_secret and not await self._ensure_secret(record, observed):
            return
        if plan.create_launcher:
            await asyncio.gather(
                *(self._ensure(record, body) for body in auxiliary_resources(job)),
                *(self._remove(record, body) for body in auxiliary_resources(job, enabled=False)),
            )
            record.companions_checked_at = self._clock()
        if pod_group:
            await self._ensure_pod_group(record, observed, pod_group)
        # Launcher and first worker go ahead: where the API server refuses one of them, the others are not made.
        await _all(self._create_pod(job, role, index, pod, plan) for role, index, pod in pods)
        window = asyncio.Semaphore(CREATES_AT_ONCE)

        async def create_worker(index: int) -> None:
            async with window:
                await self._create_pod(job, Role.WORKER, index, self._worker(job, index, *common), plan)

        await _all(map(create_worker, plan.create_workers[1:]))
        if pods:
            launcher = "the launcher and " if plan.create_launcher else ""
            _tell(job, f"created {launcher}{count_text(len(plan.create_workers), 'worker')}, attempt {attempt}")

    def _launcher(self, job: HorovodJob, hosts: str, spec_hash: str = "") -> dict[str, Any]:
        return launcher_pod(job, job.status.attempt, hosts, self._progress_url, spec_hash)

    def _worker(self, job: HorovodJob, index: int, secret: str = "", spec_hash: str = "") -> dict[str, Any]:
        return worker_pod(job, index, job.status.attempt, self._progress_url, secret, spec_hash)

    async def _create_pod(self, job: HorovodJob, role: Role, index: int, pod: Mapping[str, Any], plan: Plan) -> None:
        name = pod["metadata"]["name"]
        try:
            metadata = (await self._objects.create_pod(pod))["metadata"]
        except NameTaken:
            self._caches.keep(await self._existing(job, name))
            return
        except Refused as error:
            raise _RefusedObject(name, error) from error
        facts = Pod(
            name=name,
            uid=metadata["uid"],
            role=role,
            index=index,
            attempt=job.status.attempt,
            owner_uid=job.metadata.uid,
            version=int(metadata["resourceVersion"]),
            created_at=datetime.fromisoformat(metadata["creationTimestamp"]),
            hosts=plan.hosts if role is Role.LAUNCHER else "",
            gang=job.spec.scheduling.gang,
            secret_name=plan.secret_name,
            spec_hash=plan.spec_hash,
        )
        self._caches.keep(OwnedPod(job.key, facts))

    async def _existing(self, job: HorovodJob, name: str) -> OwnedPod:
        """The pod that has the name, as it is now, if it is this job's: the watch has not shown it yet."""
        found = await _own(job, f"pod {name}", self._objects.pod(job.metadata.namespace, name))
        owned = owned_pod(found) if found else None
        if owned is None:
            raise _RefusedObject(name, _conflict(f"pod {name}"), Reason.NAME_CONFLICT)
        return owned

    async def _ensure(self, record: Record, companion: dict[str, Any]) -> None:
        """Makes an object that a job has one of, unless it is there."""
        job, kind = record.job, companion["kind"]
        what = f"{kind} {companion['metadata']['name']}"
        try:
            await self._objects.create(companion)
        except NameTaken as error:
            if kind not in record.ours and await _own(job, what, self._objects.partial_object(companion)) is None:
                raise _RefusedObject(kind, _conflict(what), Reason.NAME_CONFLICT) from error
        except Refused as error:
            raise _RefusedObject(kind, error) from error
        record.ours.add(kind)
        record.without.discard(kind)

    async def _remove(self, record: Record, companion: dict[str, Any]) -> None:
        """Deletes an object of the job that it asked for before a suspension, and does not ask for now."""
        job, kind = record.job, companion["kind"]
        unchanged = job.metadata.generation == 1 or job.status.attempt == 1
        if kind in record.without or (unchanged and kind not in record.ours):
            return
        what = f"{kind} {companion['metadata']['name']}"
        try:
            found = await self._objects.partial_object(companion)
            if owner_uid(found["metadata"]) == job.metadata.uid:
                await self._objects.delete(companion, found["metadata"]["uid"])
                _tell(job, f"deleted {what}, which it does not ask for any more")
        except Refused as error:  # the rights of an older release
            log.warning("%s/%s %s cannot be deleted: %s", *job.key, what, error, extra=names.log_fields(job))
        except (Gone, NameTaken):
            pass
        record.ours.discard(kind)
        record.without.add(kind)

    async def _ensure_pod_group(self, record: Record, observed: Observed, pod_group: dict[str, Any]) -> None:
        """Makes the group that the pods are about to be in. Raises Unavailable while one from before has to go.

        A PodGroup cannot be changed, and a job may come back from suspension with another size. Without pods of the
        job nobody can say what size one that is there was made for.
        """
        job, kind = record.job, record.job.spec.scheduling.gang
        what = f"PodGroup {job.metadata.name}"
        try:
            await self._objects.create(pod_group)
        except NameTaken as error:
            if record.pod_group is not kind and not observed.pods:
                if await _own(job, what, self._objects.partial_object(pod_group)) is None:
                    raise _RefusedObject(pod_group["kind"], _conflict(what), Reason.NAME_CONFLICT) from error
                await self._objects.delete_pod_group(job, kind)
                raise Unavailable(f"{what} is there from before, and is made anew when it has gone") from error
        except NotServed as error:
            raise _RefusedObject(pod_group["kind"], Refused(not_served_message(kind))) from error
        except Refused as error:
            raise _RefusedObject(pod_group["kind"], error) from error
        record.pod_group = kind

    async def _ensure_secret(self, record: Record, observed: Observed) -> bool:
        """Makes the Secret unless it is there; False where workers had to go because they hold other keys."""
        job = record.job
        secret = job_secret(job, secret_contents())
        try:
            await self._objects.create(secret)
        except NameTaken as error:
            self._accept_secret(record, error)
            return True
        except Refused as error:
            raise _RefusedObject(secret["kind"], error) from error
        record.secret_is_ours = True
        record.ours.add("Secret")
        if all(pod.secret_name != secret["metadata"]["name"] for pod in observed.pods):
            return True
        await self._objects.delete_pods(job)
        self._caches.mark(job, observed.pods, is_terminating=True)
        _tell(job, "made its Secret anew and deleted the pods that hold the keys of the lost one")
        return False

    def _accept_secret(self, record: Record, error: NameTaken) -> None:
        """The operator has no right to read Secrets, so it reasons: could a Secret of this name be the job's?"""
        if record.secret_is_ours:
            return
        name = names.secret_name(record.job)
        if self._clock() - record.job.metadata.creation_timestamp < timedelta(seconds=GARBAGE_SECONDS):
            raise Unavailable(f"Secret {name} exists, perhaps of an earlier job of the same name") from error
        raise _RefusedObject("Secret", _conflict(f"Secret {name}"), Reason.NAME_CONFLICT)

    async def _probe(self, record: Record, now: datetime) -> datetime | None:
        """Looks, without effect, whether what was refused is acceptable by now."""
        job = record.job
        if record.refused == PREFLIGHT:
            problem = await self._preflight.problem(job) if self._preflight else None
            if problem:
                return self._refuse(record, PREFLIGHT, *problem, self._clock())
            record.refusal = None
            return self._clock()
        try:
            group = job_pod_group(job)
            bodies = (job_secret(job, secret_contents()), *auxiliary_resources(job), *([group] if group else []))
            others = {body["kind"]: body for body in bodies}
            if record.refused in others:
                await self._objects.create(others[record.refused], dry_run=True)
            elif record.refused == names.launcher_name(job):
                await self._objects.create_pod(self._launcher(job, ""), dry_run=True)
            else:
                index = names.worker_index(record.refused) if record.refused else 0
                await self._objects.create_pod(self._worker(job, index), dry_run=True)
        except NameTaken:
            refusal = record.refusal
            return self._refuse(record, record.refused, Reason.NAME_CONFLICT, refusal.message if refusal else "", now)
        except NotServed:
            words = not_served_message(job.spec.scheduling.gang)
            return self._refuse(record, record.refused, Reason.INVALID_SPEC, words, now)
        except Refused as error:
            refused = _RefusedObject(record.refused, error)
            return self._refuse(record, record.refused, refused.reason, str(refused), now, stalled=refused.stalled)
        except InvalidJob as error:
            return self._refuse(record, record.refused, Reason.INVALID_SPEC, str(error), now)
        record.refusal = None
        return now

    def _refuse(
        self, record: Record, refused: str, reason: Reason, message: str, now: datetime, *, stalled: bool = True
    ) -> datetime:
        delay = min(REFUSAL_FIRST_SECONDS * 2 ** min(record.refusals, 10), REFUSAL_LONGEST_SECONDS)
        again = record.refusal
        record.refusals, record.refused = record.refusals + 1, refused
        retry_at = now + timedelta(seconds=delay)
        record.refusal = Refusal(reason, message, retry_at, stalled)
        if again is None or again.message != message:
            _tell(record.job, f"{reason}: {message}")
            return now
        return retry_at


def _unexplained(observed: Observed, now: datetime) -> tuple[Pod, KubeletEventReason, datetime] | None:
    """A pod that does not start, the events that may tell why, and when to ask for them first."""
    if pod := observed.pod_awaiting_image:
        return pod, KubeletEventReason.PULL_SECRET_MISSING, now
    pod = observed.pod_awaiting_volumes
    if pod is None or pod.scheduled_at is None:
        return None
    return pod, KubeletEventReason.MOUNT_FAILED, pod.scheduled_at + timedelta(seconds=UNMOUNTED_SECONDS)


class _RefusedObject(Exception):
    """An object of the job that cannot be made as it is."""

    def __init__(self, name: str, error: Refused, reason: Reason | None = None) -> None:
        super().__init__(f"{error} (tried again until it is possible)" if error.over_quota else str(error))
        self.name, self.stalled = name, not error.over_quota
        self.reason = reason or (Reason.WAITING_FOR_NODES if error.over_quota else Reason.INVALID_SPEC)


async def _own(job: HorovodJob, what: str, answer: Awaitable[dict[str, Any]]) -> dict[str, Any] | None:
    """An object that is there, None if it is not this job's. Raises Unavailable if that will change."""
    try:
        found = await answer
    except Gone as error:
        raise Unavailable(f"{what} has just gone") from error
    owner = owner_uid(found["metadata"])
    if owner not in ("", job.metadata.uid):
        raise Unavailable(f"{what} of an earlier job of the same name has still to go")
    return found if owner == job.metadata.uid else None


async def _all(parts: Iterable[Awaitable[None]]) -> None:
    """Waits for all of them, then raises what one of them raised: a refusal before anything else."""
    results = await asyncio.gather(*parts, return_exceptions=True)
    errors = [result for result in results if isinstance(result, BaseException)]
    for error in sorted(errors, key=lambda error: not isinstance(error, _RefusedObject)):
        raise error


def _conflict(what: str) -> Refused:
    return Refused(f"{what} exists and is not this job's: delete or rename it, or give the job another name")


def _ready_message(status: HorovodJobStatus) -> str:
    return next((c.message for c in status.conditions if c.type == "Ready"), "")


def _tell(job: HorovodJob, what: str) -> None:
    log.info("%s/%s %s", *job.key, what, extra=names.log_fields(job))
