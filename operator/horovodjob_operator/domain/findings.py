"""What a look at a job finds: an ordered table of small checks, the first that applies decides.

      suspend                       suspend = false
Queued <------ any, no pods ------> Suspended
  | all pods have a node            (back to Queued where they have none in time)
  v            mpirun runs           launcher ended with 0
Starting ----------------> Running -----------------------> Succeeded
  |  ^                        |
  |  | all pods have a node   | a pod failed or was lost
  +--+------ Restarting <-----+    deadline, terminate
                 | no restarts left      any ---> Terminating ---> Failed
                 +---------------------------------------------------^
"""

import re
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property

from horovodjob.api.job import HorovodJob
from horovodjob.api.status import NEWEST_ERRORS, JobError
from horovodjob.api.vocabulary import ConditionType, Gang, OnWorkerLoss, Phase, Reason, Role
from horovodjob_operator.domain import azure_files, names
from horovodjob_operator.domain.observed import EventReason, Observed, Pod, Waiting, told_reason, unreachable_hosts

RETRY_FIRST_SECONDS = 10
RETRY_LONGEST_SECONDS = 360
# mpirun may notice a worker's death before the kubelet reports it; the worker's own evidence is worth the wait.
EVIDENCE_SECONDS = 2
# A rank that was killed, or a worker that does not answer, points to a worker; kubelets of busy nodes report late.
KILLED_EVIDENCE_SECONDS = 10
# A node that is further ahead has no clock to go by.
LARGEST_CLOCK_SKEW_SECONDS = 60
VANISHED_SECONDS = 30
# A kubelet that is there takes less to end a pod whose grace period is over.
OVERDUE_SECONDS = 10


@dataclass(frozen=True, slots=True)
class Failure:
    """Why the present attempt cannot go on."""

    reason: Reason
    message: str
    pod: Pod | None = None
    pod_name: str = ""
    taken: bool = False
    """The platform took a pod: this does not count against backoffLimit."""
    of_worker: bool = False
    """It is a worker that was lost."""
    exit_code: int | None = None
    """Exit code of mpirun, where it ended by itself."""

    @property
    def who(self) -> str:
        """Name of the pod that failed or was lost; empty where it is not one pod."""
        return self.pod.name if self.pod else self.pod_name


@dataclass(frozen=True, slots=True)
class Finding:
    """The state that a look at the job has found."""

    phase: Phase
    reason: Reason
    message: str
    stalled: bool = False
    failure: Failure | None = None
    pod: Pod | None = None
    """The pod that cannot start, where that is the finding."""
    exit_code: int | None = None
    look_again_at: datetime | None = None
    losses: tuple[Failure, ...] = ()
    """Workers that an elastic job has lost, and goes on without."""


@dataclass(frozen=True)
class Look:
    """All that a check may look at, each part computed once: a job may have thousands of workers."""

    job: HorovodJob
    observed: Observed
    now: datetime

    @cached_property
    def launcher(self) -> Pod | None:
        """The launcher of the present attempt."""
        launcher = self.observed.launcher
        return launcher if launcher and launcher.attempt == self.job.status.attempt else None

    @cached_property
    def workers(self) -> dict[int, Pod]:
        """The workers by index."""
        return self.observed.workers(self.job.spec.worker_indices)

    @cached_property
    def unreachable(self) -> dict[int, Pod]:
        """Workers that the launcher, of whatever attempt, could not reach when it failed, by index."""
        launcher = self.observed.launcher
        if launcher is None or launcher.phase != "Failed" or launcher.end is None:
            return {}
        hosts, told = unreachable_hosts(launcher.end), told_reason(launcher.end)
        no_answer = told is not None and told[0] is Reason.SSH_UNAVAILABLE
        return {
            index: pod
            for index, pod in sorted(self.workers.items())
            if pod.alive and pod.attempt <= launcher.attempt
            if pod.address in hosts or (no_answer and pod.node_not_ready)
        }

    @cached_property
    def gone(self) -> dict[int, Pod]:
        """Workers that are gone since the last pass and have no successor, by index."""
        indices = self.job.spec.worker_indices
        workers = (pod for pod in self.observed.gone if pod.role is Role.WORKER and pod.index in indices)
        return {pod.index: pod for pod in workers if pod.index not in self.workers}

    @cached_property
    def deadline(self) -> datetime | None:
        """When the job has had its time: what it used before it was suspended counts."""
        seconds, status = self.job.spec.run_policy.active_deadline_seconds, self.job.status
        start = status.start_time or self.now
        return start + timedelta(seconds=seconds - status.active_seconds) if seconds else None

    @cached_property
    def placing_ends(self) -> datetime | None:
        """When all pods must have a node, while some have none.

        Counted from the launcher, which each attempt makes anew, or from when the job was last queued. A gang of which
        nothing is placed holds nothing from others, and its time begins when something is.
        """
        created = self.launcher.created_at if self.launcher else None
        if created is None or self.placed or self.job.status.phase in (Phase.STARTING, Phase.RUNNING):
            return None
        queued = self.job.status.condition(ConditionType.QUEUED)
        since = max(created, queued.last_transition_time) if queued and queued.status == "True" else created
        if self.job.spec.scheduling.gang is not Gang.NONE:
            placed = [pod.placed_at or since for pod in self.observed.pods if pod.node and pod.alive]
            if not placed:
                return None
            since = max(since, min(placed))
        return since + timedelta(seconds=self.job.spec.scheduling.timeout_seconds)

    @cached_property
    def placed(self) -> bool:
        """Whether all pods of the attempt exist and have a node."""
        pods = [self.launcher, *self.workers.values()]
        placed = [pod for pod in pods if pod and pod.node and pod.alive and not pod.deleting]
        waiting = [pod for pod in pods if pod and pod.unschedulable and not pod.deleting]
        if self.launcher not in placed:
            return False
        if self.job.spec.elastic and self.job.status.phase is Phase.STARTING:
            return True  # Workers come and go already.
        # An elastic job starts with fewer workers when the scheduler has said that it has no node for the others.
        least, wanted = self.job.spec.least_workers, len(self.job.spec.worker_indices)
        return len(placed) > least and len(placed) + len(waiting) == wanted + 1

    @cached_property
    def leaving(self) -> Pod | None:
        """The pod on its way out that has held a name of the job for longest after it should have gone."""
        indices = self.job.spec.worker_indices
        pods = (*self.observed.pods, *self.observed.strangers)
        held = (pod for pod in pods if pod.leaves_at and (pod.role is Role.LAUNCHER or pod.index in indices))
        return min(held, key=lambda pod: (pod.leaves_at, pod.name), default=None)

    @cached_property
    def hosts(self) -> tuple[Pod, ...]:
        """The pods on which ranks can run, in the order of their indices.

        A pod has an address before its init containers run and its image is pulled, which can take longer than the
        launcher waits for ssh; and it keeps the address when its node is off. Ranks that run may go on there: the node
        may only have lost its connection to the API server.
        """
        started = [pod for _, pod in sorted(self.workers.items()) if not pod.container_pending]
        reporting = [pod for pod in started if not pod.node_not_ready or self.changes]
        # The launcher prepares itself before it looks at its hosts.
        prepared = [pod for pod in reporting if pod.ready or not self.job.spec.preparation]
        if self.launcher and self.job.spec.launcher.as_worker:
            prepared.insert(0, self.launcher)
        return tuple(pod for pod in prepared if pod.address and pod.alive and not pod.deleting)

    @cached_property
    def changes(self) -> bool:
        """Whether workers of the present attempt can come and go: the job is elastic, and its ranks run."""
        return self.job.spec.elastic is not None and self.job.status.phase is Phase.RUNNING

    @cached_property
    def too_few_since(self) -> datetime | None:
        """Since when an elastic job has fewer workers than it needs."""
        prepared = self.job.status.condition(ConditionType.PREPARED)
        if not self.changes or len(self.hosts) >= self.job.spec.least_workers or prepared is None:
            return None
        return self.now if prepared.status == "True" else prepared.last_transition_time

    @cached_property
    def too_few_until(self) -> datetime | None:
        """When an elastic job gives up waiting for the workers that it needs."""
        since = self.too_few_since
        return since + timedelta(seconds=self.job.spec.scheduling.timeout_seconds) if since else None


def counted(number: int, what: str) -> str:
    """A number with its noun: 1 worker, 2 workers."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def retry_delay(times: int) -> timedelta:
    """Delay before the next attempt: 10 s, 20 s, 40 s ... 6 min."""
    return timedelta(seconds=min(RETRY_FIRST_SECONDS * 2 ** min(max(times - 1, 0), 10), RETRY_LONGEST_SECONDS))


def retry_at(job: HorovodJob) -> datetime | None:
    """When the attempt being set up may start, counted from the error that ended the one before.

    A lost pod costs the shortest delay: a drained node takes pods one after the other, and they make one restart.
    """
    errors = job.status.errors
    if job.status.phase is not Phase.RESTARTING or not errors or errors[-1].attempt != job.status.attempt - 1:
        return None
    return errors[-1].time + retry_delay(job.status.restarts)


def replaced_at(job: HorovodJob) -> datetime | None:
    """When an elastic job may replace a worker that ended by itself; one that was taken is replaced at once."""
    ends = [error for error in job.status.errors if error.attempt == job.status.attempt and _ended_by_itself(error)]
    return ends[-1].time + retry_delay(len(ends)) if ends else None


def _ended_by_itself(error: JobError) -> bool:
    return error.container == Role.WORKER and error.reason not in (Reason.EVICTED, Reason.NODE_LOST)


def released_until(job: HorovodJob) -> datetime | None:
    """When the pods that were released for want of nodes may be made again.

    The delay grows with each time in a row, and differs from job to job: of two that wait for each other's nodes one
    has to be first.
    """
    errors = job.status.errors
    if not errors or errors[-1].reason != Reason.SCHEDULING_TIMEOUT or errors[-1].attempt != job.status.attempt - 1:
        return None
    return errors[-1].time + _release_delay(job, job.status.attempt - 1)


def _release_delay(job: HorovodJob, attempt: int) -> timedelta:
    timed_out = {error.attempt for error in job.status.errors if error.reason == Reason.SCHEDULING_TIMEOUT} | {attempt}
    times = next(number for number in range(1, len(timed_out) + 2) if attempt - number not in timed_out)
    chance = zlib.crc32(f"{job.metadata.uid}/{attempt}".encode()) / 2**32
    return timedelta(seconds=round(retry_delay(times).total_seconds() * (0.5 + chance)))


def launcher_succeeded(look: Look) -> Finding | None:
    """The program has ended with success, whatever else is wished or true by now."""
    if look.launcher and look.launcher.phase == "Succeeded":
        return Finding(Phase.SUCCEEDED, Reason.ALL_RANKS_SUCCEEDED, "all ranks ended with exit code 0", exit_code=0)
    return None


def terminating(look: Look) -> Finding | None:
    """The job has been told to end: it has, when none of its pods is alive."""
    ready = look.job.status.condition(ConditionType.READY)
    if look.job.status.phase is not Phase.TERMINATING or ready is None:
        return None
    told = Finding(Phase.TERMINATING, Reason(ready.reason), ready.message)
    if any(pod.alive for pod in look.observed.pods):
        return told
    end = look.launcher.end if look.launcher else None
    return replace(told, phase=Phase.FAILED, exit_code=end.exit_code if end else None)


def told_to_end(look: Look) -> Finding | None:
    """The user wants the job to end."""
    if look.job.spec.run_policy.terminate:
        return Finding(Phase.TERMINATING, Reason.TERMINATED, "the job was ended: runPolicy.terminate is true")
    return None


def deadline_exceeded(look: Look) -> Finding | None:
    """The job has had its time, all attempts counted; a suspended job's clock does not run."""
    if look.deadline is None or look.now < look.deadline or look.job.spec.run_policy.suspend:
        return None
    seconds = look.job.spec.run_policy.active_deadline_seconds
    message = f"the job ran for longer than runPolicy.activeDeadlineSeconds: {seconds} s"
    return Finding(Phase.TERMINATING, Reason.DEADLINE_EXCEEDED, message)


def suspended(look: Look) -> Finding | None:
    """The user, or a queue, wants no pods."""
    if look.job.spec.run_policy.suspend:
        return Finding(
            Phase.SUSPENDED, Reason.SUSPENDED_BY_USER, "runPolicy.suspend is true: no pods until it is false"
        )
    return None


def differs(pod: Pod, spec_hash: str) -> bool:
    """Whether a pod was made from another spec, as far as is known."""
    return "" not in (pod.spec_hash, spec_hash) and pod.spec_hash != spec_hash


def changed_unseen(look: Look) -> Finding | None:
    """The attempt has pods of another spec, so the job was suspended, changed and resumed between two looks."""
    job, attempt = look.job, look.job.status.attempt
    if job.metadata.generation == job.status.observed_generation:
        return None  # No change: another release of the operator may have made another hash of the same spec.
    spec_hash = names.spec_hash(job)
    pods = (pod for pod in look.observed.pods if pod.attempt == attempt and not pod.deleting)
    if not any(differs(pod, spec_hash) for pod in pods):
        return None
    message = f"the job was suspended, changed and resumed: the pods of attempt {attempt} are replaced"
    return Finding(Phase.SUSPENDED, Reason.SUSPENDED_BY_USER, message)


def attempt_failed(look: Look) -> Finding | None:
    """The present attempt cannot go on: another one, or the end."""
    failure = next((found for check in FAILURES for found in check(look)), None)
    if failure is None:
        return None
    status, policy = look.job.status, look.job.spec.run_policy
    limit = policy.backoff_limit
    if failure.taken and failure.of_worker and policy.on_worker_loss is OnWorkerLoss.FAIL:
        message = f"{failure.message} (attempt {status.attempt}; runPolicy.onWorkerLoss is {policy.on_worker_loss})"
        return Finding(Phase.FAILED, failure.reason, message, failure=failure)
    if not failure.taken and status.restarts >= limit:
        message = f"{failure.reason}: {failure.message} (attempt {status.attempt}; runPolicy.backoffLimit is {limit})"
        return Finding(
            Phase.FAILED, Reason.BACKOFF_LIMIT_EXCEEDED, message, failure=failure, exit_code=failure.exit_code
        )
    delay = retry_delay(status.restarts + (not failure.taken))
    message = (
        f"attempt {status.attempt} ended, {failure.reason}: {failure.message}; "
        f"attempt {status.attempt + 1} starts at {look.now + delay:%H:%M:%SZ}"
    )
    return Finding(Phase.RESTARTING, failure.reason, message, failure=failure, exit_code=failure.exit_code)


def evidence_missing(look: Look) -> Finding | None:
    """The launcher has failed a moment ago; a worker may be about to tell why."""
    launcher, status = look.launcher, look.job.status
    ready = status.condition(ConditionType.READY)
    if launcher is None or launcher.phase != "Failed" or status.phase is None or ready is None:
        return None
    return Finding(
        status.phase,
        Reason(ready.reason),
        ready.message,
        look_again_at=_evidence_until(launcher, look.now),
    )


def refused(look: Look) -> Finding | None:
    """Objects of the job cannot be made as they are asked for."""
    refusal = look.observed.refusal
    if refusal is None or look.changes:
        return None
    return Finding(
        _before_starting(look),
        refusal.reason,
        refusal.message,
        stalled=refusal.stalled,
        look_again_at=refusal.retry_at,
    )


def waiting_for_retry(look: Look) -> Finding | None:
    """An attempt has failed and the next one has to wait."""
    at = retry_at(look.job)
    if at is None or look.now >= at or look.launcher:
        return None
    # What the failed attempt left as reason and message still says it best.
    ready = look.job.status.condition(ConditionType.READY)
    reason, message = (Reason(ready.reason), ready.message) if ready else (Reason.RANK_FAILED, "")
    return Finding(Phase.RESTARTING, reason, message, look_again_at=at)


def released(look: Look) -> Finding | None:
    """The pods of the attempt before had no nodes in time; the next ones are made later."""
    at = released_until(look.job)
    if at is None or look.now >= at:
        return None
    ready = look.job.status.condition(ConditionType.READY)
    return Finding(Phase.QUEUED, Reason.SCHEDULING_TIMEOUT, ready.message if ready else "", look_again_at=at)


def ranks_running(look: Look) -> Finding | None:
    """mpirun runs: its start script has made the launcher ready."""
    launcher, spec = look.launcher, look.job.spec
    if launcher is None or not launcher.alive or not (launcher.ready or look.job.status.phase is Phase.RUNNING):
        return None
    if spec.elastic:
        return Finding(
            Phase.RUNNING,
            Reason.RANKS_RUNNING,
            _elastic_message(look),
            look_again_at=min((at for at in (look.too_few_until, _overdue_at(look)) if at), default=None),
            losses=_losses(look),
        )
    what = f"mpirun runs {counted(spec.worker.replicas * spec.slots, 'rank')} on"
    if spec.launcher_command:
        what = "the launcher's command runs, with"
    return Finding(Phase.RUNNING, Reason.RANKS_RUNNING, f"{what} {counted(spec.worker.replicas, 'worker')}")


def _elastic_message(look: Look) -> str:
    there, spec, refusal = len(look.hosts), look.job.spec, look.observed.refusal
    obstacle = refusal.message if refusal else _overdue(look)
    if there < spec.least_workers:
        words = f"{counted(there, 'worker')} of the {spec.least_workers} that elastic.minReplicas wants: ranks wait"
    else:
        words = f"up to {counted(there * spec.slots, 'rank')} run on {counted(there, 'worker')}"
        if there != spec.worker.replicas:
            words += f" of {spec.worker.replicas}"
    return f"{words}; {obstacle}" if obstacle else words


def _losses(look: Look) -> tuple[Failure, ...]:
    """Workers that are lost and have not been reported yet; so many at a time as a status can hold."""
    if not look.changes:
        return ()
    lost = [
        _worker_failure(pod, index) if not pod.alive else _worker_taken(pod, index, pod.name)
        for index, pod in sorted(look.workers.items())
        if not pod.alive or pod.deleting
    ]
    lost += [_worker_taken(pod, index, pod.name) for index, pod in sorted(look.gone.items())]
    return tuple(failure for failure in [*lost, *_vanished(look)][:NEWEST_ERRORS] if not _reported(look, failure))


def _vanished(look: Look) -> Iterable[Failure]:
    """Workers that are gone without having been seen to go: hosts that the launcher still knows."""
    known = [line.split()[0] for line in (look.launcher.hosts if look.launcher else "").splitlines()]
    there = {pod.address for pod in (*look.observed.pods, *look.observed.gone)}
    missing = (index for index in look.job.spec.worker_indices if index not in look.workers | look.gone)
    for address, index in zip((host for host in known if host not in there), missing, strict=False):
        name = f"{look.job.metadata.name}-{Role.WORKER}-{index}"
        yield Failure(Reason.WORKER_LOST, f"worker {index} at {address} is gone", pod_name=name, taken=True)


def _reported(look: Look, failure: Failure) -> bool:
    told = [error for error in look.job.status.errors if error.pod == failure.who]
    if failure.pod:
        return any(error.time >= (failure.pod.created_at or error.time) for error in told)
    # One that was seen to go may be gone a moment later, before the launcher has heard of it.
    recently = look.now - timedelta(seconds=VANISHED_SECONDS)
    return any(error.time >= recently or error.message == failure.message for error in told)


def _image_awaited_until(look: Look) -> datetime:
    """Until when the pods of the attempt keep their nodes, while an image cannot be pulled."""
    status = look.job.status
    told = (e.time for e in status.errors if (e.reason, e.attempt) == (Reason.IMAGE_PULL_FAILED, status.attempt))
    return next(told, look.now) + timedelta(seconds=look.job.spec.scheduling.timeout_seconds)


def image_not_pulled_in_time(look: Look) -> Finding | None:
    """An image could not be pulled for too long: all pods are released, so that others can have the nodes."""
    pod, attempt = look.observed.without_image, look.job.status.attempt
    if pod is None or look.now < _image_awaited_until(look):
        return None
    message = (
        f"pod {pod.name} could not get image {look.job.spec.image} for scheduling.timeoutSeconds, "
        f"{look.job.spec.scheduling.timeout_seconds} s; all are released, and made again at "
        f"{look.now + _release_delay(look.job, attempt):%H:%M:%SZ}"
    )
    failure = Failure(Reason.SCHEDULING_TIMEOUT, message, pod, taken=True)
    return Finding(Phase.QUEUED, Reason.SCHEDULING_TIMEOUT, message, failure=failure)


def container_cannot_start(look: Look) -> Finding | None:
    """The kubelet has a pod and cannot start its container."""
    stuck = sorted((pod for pod in look.observed.pods if pod.waiting), key=lambda pod: pod.name)
    if not stuck or stuck[0].waiting is None:
        return None
    phase = Phase.STARTING if look.placed else _before_starting(look)
    waiting = stuck[0].waiting
    if waiting.for_image:
        missing = _missing_pull_secret(look)
        words = missing or waiting.message or waiting.reason
        message = f"pod {stuck[0].name} cannot get image {look.job.spec.image}: {words}"
        until = _image_awaited_until(look)
        stalled = bool(missing)
        return Finding(phase, Reason.IMAGE_PULL_FAILED, message, stalled, pod=stuck[0], look_again_at=until)
    return Finding(phase, Reason.INVALID_SPEC, _configuration_message(stuck[0], waiting), stalled=True, pod=stuck[0])


def _missing_pull_secret(look: Look) -> str:
    """Which Secret with credentials of a registry is missing, and how to make it."""
    words = look.observed.warned(EventReason.PULL_SECRET_MISSING)
    if not words:
        return ""
    # (pkg/kubelet/kubelet_pods.go, getPullSecretsForPod)
    names_of = re.search(r"image pull secrets \((.+?)\)", words)
    what = f"Secret {names_of[1]} of imagePullSecrets" if names_of else "a Secret of imagePullSecrets"
    namespace = look.job.metadata.namespace
    return f"{what} is not in namespace {namespace}; kubectl create secret docker-registry makes such a Secret"


def volume_unavailable(look: Look) -> Finding | None:
    """The kubelet has a pod and cannot mount its volumes."""
    pod = look.observed.unmounted
    words = look.observed.warned(EventReason.MOUNT_FAILED)
    if pod is None or not words:
        return None
    phase = Phase.STARTING if look.placed else _before_starting(look)
    message = f"pod {pod.name} cannot mount its volumes: {words}"
    if remedy := azure_files.remedy(look.job, words):
        message = f"{message}; {remedy}"
    return Finding(phase, Reason.STORAGE_UNAVAILABLE, message, stalled=True, pod=pod)


def all_placed(look: Look) -> Finding | None:
    """All pods have a node: images, preparation, ssh."""
    if not look.placed:
        return None
    if pod := next((pod for pod in look.workers.values() if pod.node_not_ready), None):
        words = f"waiting for node {pod.node} of pod {pod.name}, which does not report to Kubernetes"
        return Finding(Phase.STARTING, Reason.WAITING_FOR_WORKERS, words)
    unprepared = sum(not pod.ready for pod in look.workers.values()) + look.job.spec.launcher.as_worker
    if look.job.spec.preparation and unprepared:
        words = f"all pods have a node; {counted(unprepared, 'worker')} not prepared yet"
        return Finding(Phase.STARTING, Reason.PREPARATION_RUNNING, words)
    return Finding(Phase.STARTING, Reason.WAITING_FOR_WORKERS, "all pods have a node; the workers start")


def waiting_for_nodes(look: Look) -> Finding:
    """Some pods have no node yet."""
    words = _unschedulable(look)
    message = _overdue(look) or (f"waiting for nodes: {words}" if words else "the pods are being created and placed")
    return Finding(_before_starting(look), Reason.WAITING_FOR_NODES, message, look_again_at=_overdue_at(look))


def _overdue_at(look: Look) -> datetime | None:
    """When a pod that is on its way out will be overdue, if it is not yet."""
    pod = look.leaving
    at = pod.leaves_at + timedelta(seconds=OVERDUE_SECONDS) if pod and pod.leaves_at else look.now
    return at if at > look.now else None


def _overdue(look: Look) -> str:
    """What to do about a node that does not end a pod whose name is needed; nothing where there is no such pod."""
    pod = look.leaving
    if pod is None or pod.leaves_at is None or _overdue_at(look):
        return ""
    return (
        f"waiting for pod {pod.name} to go, which node {pod.node} should have ended by {pod.leaves_at:%H:%M:%SZ}: "
        "if that node does not answer, delete it or taint it node.kubernetes.io/out-of-service"
    )


def _unschedulable(look: Look) -> str:
    """The scheduler's words; those of a pod that waits for others of its gang say less than theirs about nodes."""
    words = [pod.unschedulable for pod in look.observed.pods if pod.unschedulable]
    return min(words, key=lambda text: not text.startswith("0/"), default="")


def not_placed_in_time(look: Look) -> Finding | None:
    """Some pods have had no node for too long: all are released, so that others can have the nodes of the rest."""
    if look.placing_ends is None or look.now < look.placing_ends:
        return None
    words = _overdue(look) or _unschedulable(look)
    pods = [pod for pod in (look.launcher, *look.workers.values()) if pod and not pod.deleting]
    placed = sum(bool(pod.node) and pod.alive for pod in pods)
    wanted, attempt = len(look.job.spec.worker_indices) + 1, look.job.status.attempt
    message = (
        f"{placed} of {wanted} pods had a node after scheduling.timeoutSeconds, "
        f"{look.job.spec.scheduling.timeout_seconds} s{f' ({words})' if words else ''}; all are released, and made "
        f"again at {look.now + _release_delay(look.job, attempt):%H:%M:%SZ}"
    )
    without = next((pod for pod in pods if not pod.node), None)
    failure = Failure(Reason.SCHEDULING_TIMEOUT, message, without, taken=True)
    return Finding(Phase.QUEUED, Reason.SCHEDULING_TIMEOUT, message, failure=failure)


def _before_starting(look: Look) -> Phase:
    return Phase.RESTARTING if look.job.status.phase is Phase.RESTARTING else Phase.QUEUED


def _configuration_message(pod: Pod, waiting: Waiting) -> str:
    message = f"pod {pod.name}: {waiting.message or waiting.reason}"
    if "runAsNonRoot" in waiting.message:
        message += "; the image runs as root or does not say as whom: give it a numeric USER, "
        message += "or set spec.podSecurity to Baseline"
    return message


def _evidence_until(launcher: Pod, now: datetime) -> datetime:
    """Until when a worker may show why the launcher has failed."""
    if launcher.end is None or launcher.end.finished_at is None:
        return now
    points_to_worker = launcher.end.exit_code > 128 or unreachable_hosts(launcher.end)
    window = timedelta(seconds=KILLED_EVIDENCE_SECONDS if points_to_worker else EVIDENCE_SECONDS)
    if launcher.end.finished_at - now > timedelta(seconds=LARGEST_CLOCK_SKEW_SECONDS):
        return now  # the node's clock is wrong, and the job must not wait for it
    return launcher.end.finished_at + window


def worker_failed(look: Look) -> Iterable[Failure]:
    """A worker's container has ended, and workers never end by themselves."""
    started = look.job.status.phase in (Phase.STARTING, Phase.RUNNING)
    if look.changes:
        return
    for index, pod in sorted(look.workers.items()):
        if not pod.alive and (started or pod.attempt == look.job.status.attempt):
            yield _worker_failure(pod, index)


def _worker_failure(pod: Pod, index: int) -> Failure:
    if pod.out_of_memory:
        return Failure(Reason.WORKER_OUT_OF_MEMORY, f"worker {index} was killed: its memory limit is reached", pod)
    if pod.out_of_storage:
        return Failure(Reason.WORKER_LOST, f"worker {index} was evicted: {pod.message}", pod)
    if pod.taken:
        return _worker_taken(pod, index, pod.name)
    if pod.end is None:
        return Failure(
            Reason.WORKER_LOST,
            f"worker {index} failed: {pod.message or pod.reason or 'no reason given'}",
            pod,
        )
    told = told_reason(pod.end)
    if told and told[0] is Reason.PREPARATION_FAILED:
        return Failure(Reason.PREPARATION_FAILED, f"worker {index} on node {pod.node}: {told[1]}", pod)
    words = told[1] if told else f"its container ended with {_exit(pod.end.exit_code)}"
    return Failure(Reason.WORKER_LOST, f"worker {index} was lost: {words}", pod)


def _exit(code: int) -> str:
    """An exit code, and the signal that it stands for: shells and container runtimes add 128 to its number."""
    return f"exit code {code}" + (f", killed by signal {code - 128}" if 128 < code <= 192 else "")


def _taken(pod: Pod | None, who: str, otherwise: Reason, name: str = "") -> Failure:
    """The platform, or somebody, took the pod: evicted where it says so, else deleted."""
    if pod and pod.lost_with_node:
        return Failure(Reason.NODE_LOST, f"{who} was lost with its node {pod.node}, which is gone", pod, taken=True)
    if pod and pod.rejected:
        words = f"{who} was rejected by node {pod.node}: {pod.message or pod.reason}"
        return Failure(Reason.EVICTED, words, pod, taken=True)
    words = (pod.message or pod.disruption or pod.reason) if pod and pod.evicted else ""
    if words:
        where = f" from node {pod.node}" if pod and pod.node else ""
        return Failure(Reason.EVICTED, f"{who} was evicted{where}: {words}", pod, name, taken=True)
    return Failure(otherwise, f"{who} was deleted", pod, name, taken=True)


def _worker_taken(pod: Pod | None, index: int, name: str) -> Failure:
    return replace(_taken(pod, f"worker {index}", Reason.WORKER_LOST, name), of_worker=True)


def worker_lost(look: Look) -> Iterable[Failure]:
    """A worker of the attempt is gone, or going: once the hosts are published nobody can take its place."""
    if look.launcher is None or not look.launcher.hosts or look.job.spec.elastic:
        return
    for index in look.job.spec.worker_indices:
        pod = look.workers.get(index)
        if pod is None or pod.deleting:
            name = f"{look.job.metadata.name}-worker-{index}"
            yield _worker_taken(pod or look.gone.get(index), index, name)


def too_few_workers(look: Look) -> Iterable[Failure]:
    """An elastic job has waited long enough for the workers without which its ranks cannot go on."""
    until, spec = look.too_few_until, look.job.spec
    if until and look.now >= until:
        words = f"{counted(len(look.hosts), 'worker')} of the {spec.least_workers} that elastic.minReplicas wants"
        words += f" for {spec.scheduling.timeout_seconds} s, scheduling.timeoutSeconds"
        yield Failure(Reason.WORKER_LOST, words, taken=True, of_worker=True)


def launcher_lost(look: Look) -> Iterable[Failure]:
    """The launcher was there, and is gone or going."""
    pod = look.launcher
    if look.job.status.phase not in (Phase.STARTING, Phase.RUNNING) or (pod and not pod.deleting):
        return
    gone = (pod for pod in look.observed.gone if pod.role is Role.LAUNCHER and pod.attempt == look.job.status.attempt)
    name = f"{look.job.metadata.name}-{Role.LAUNCHER}"
    yield _taken(pod or next(gone, None), "the launcher", Reason.LAUNCHER_FAILED, name)


def worker_unreachable(look: Look) -> Iterable[Failure]:
    """The launcher has ended because workers do not answer: their node is off, or the network does not lead there."""
    if _launcher_judged(look) and look.unreachable:
        where = (f"worker {index} at {pod.address} on node {pod.node}" for index, pod in look.unreachable.items())
        pod = next(iter(look.unreachable.values()))
        message = f"the launcher cannot reach {', '.join(where)}"
        yield Failure(Reason.NODE_LOST, message, pod, taken=True, of_worker=True)


def _launcher_judged(look: Look) -> bool:
    """Whether the launcher has ended without success, and the workers had their time to show why."""
    pod = look.launcher
    return pod is not None and pod.phase == "Failed" and (pod.taken or look.now >= _evidence_until(pod, look.now))


def launcher_failed(look: Look) -> Iterable[Failure]:
    """The launcher has ended, and not with success."""
    pod = look.launcher
    if pod is None or not _launcher_judged(look):
        return
    if pod.out_of_storage:
        yield Failure(Reason.LAUNCHER_FAILED, f"the launcher was evicted: {pod.message}", pod)
    elif pod.taken:
        yield _taken(pod, "the launcher", Reason.LAUNCHER_FAILED)
    elif pod.end is None:
        yield Failure(
            Reason.LAUNCHER_FAILED,
            f"the launcher failed: {pod.message or pod.reason or 'no reason given'}",
            pod,
        )
    elif pod.out_of_memory:
        yield Failure(Reason.LAUNCHER_FAILED, "the launcher was killed: its memory limit is reached", pod)
    elif told := told_reason(pod.end):
        reason, words = told
        where = f"the launcher on node {pod.node}: " if reason is Reason.PREPARATION_FAILED else ""
        yield Failure(reason, f"{where}{words}", pod, exit_code=pod.end.exit_code)
    elif pod.end.container != Role.LAUNCHER or pod.end.reason not in ("Error", "Completed"):
        words = f"container {pod.end.container} ended with {pod.end.reason or 'an error'}, {_exit(pod.end.exit_code)}"
        yield Failure(Reason.LAUNCHER_FAILED, words, pod)
    else:
        code = pod.end.exit_code
        what = "the launcher's command" if look.job.spec.launcher_command else "mpirun"
        yield Failure(Reason.RANK_FAILED, f"{what} ended with {_exit(code)}", pod, exit_code=code)


FAILURES: tuple[Callable[[Look], Iterable[Failure]], ...] = (
    worker_failed,
    worker_lost,
    too_few_workers,
    launcher_lost,
    worker_unreachable,
    launcher_failed,
)

CHECKS: tuple[Callable[[Look], Finding | None], ...] = (
    launcher_succeeded,
    terminating,
    deadline_exceeded,
    told_to_end,
    suspended,
    changed_unseen,
    attempt_failed,
    evidence_missing,
    refused,
    waiting_for_retry,
    released,
    ranks_running,
    not_placed_in_time,
    image_not_pulled_in_time,
    container_cannot_start,
    volume_unavailable,
    all_placed,
    waiting_for_nodes,
)


def find(job: HorovodJob, observed: Observed, *, now: datetime) -> Finding:
    """What this look at the cluster says about the job."""
    look = Look(job, observed, now)
    return next(found for check in CHECKS if (found := check(look)))
