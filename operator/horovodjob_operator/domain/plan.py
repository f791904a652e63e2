"""What to do about a job, as values: which objects to create, to change, to delete, and when to look again."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from horovodjob.api.constants import CleanPodPolicy, Gang, Phase, Reason, Role
from horovodjob.api.job import HorovodJob
from horovodjob_operator.domain import names
from horovodjob_operator.domain.checks.table import Finding, Look, differs, replaced_at, retry_at
from horovodjob_operator.domain.observed import Observed, Pod


@dataclass(frozen=True, slots=True)
class Plan:
    """Effects on the cluster; each is idempotent, so a pass that dies half way is completed by the next."""

    create_secret: bool = False
    secret: str = ""
    """Name of the Secret that pods of this attempt mount."""
    spec_hash: str = ""
    """Hash of the spec that pods of this attempt are made from."""
    create_workers: tuple[int, ...] = ()
    create_launcher: bool = False
    hosts: str = ""
    """Hosts of the launcher that is created, or of the one that is there if `publish_hosts`."""
    publish_hosts: bool = False
    delete_all_pods: bool = False
    delete_workers: bool = False
    delete_pods: tuple[str, ...] = ()
    end_launcher: bool = False
    """Ends the launcher's containers and keeps the pod, whose log may be wanted."""
    delete_pod_groups: frozenset[Gang] = frozenset()
    """PodGroups of a job that is to have no pods: a group without pods may hold a place in its scheduler's queue."""
    delete_keys: bool = False
    """Deletes the Secrets of a job that has ended: nobody needs its keys and start scripts any more."""
    delete_job: bool = False
    """Deletes the HorovodJob itself; Kubernetes deletes what it owns."""
    probe: bool = False
    """Asks the API server, without effect, whether what it refused is acceptable by now."""
    look_again_at: datetime | None = None

    @property
    def attempt_starts(self) -> bool:
        """Whether pods are created."""
        return self.create_launcher or bool(self.create_workers)


def plan_for(job: HorovodJob, observed: Observed, finding: Finding | None, *, now: datetime) -> Plan:
    """What to do, given the status that has just been written and what it was derived from."""
    if observed.refusal and observed.refusal.unreadable:
        return Plan()
    if job.status.finished or finding is None:
        return _after_the_end(job, observed, now)
    look = Look(job, observed, now)
    # A moment that has passed since the finding counts too: it is looked at again at once.
    again = min((at for at in (finding.look_again_at, look.deadline, look.placing_ends) if at), default=None)
    match finding.phase:
        case Phase.SUSPENDED:
            return Plan(delete_all_pods=_any_undeleted(observed.pods), delete_pod_groups=observed.pod_groups)
        case Phase.TERMINATING:
            return _end(observed)
        case Phase.QUEUED if finding.reason is Reason.SCHEDULING_TIMEOUT and not finding.failure:
            return Plan(delete_all_pods=_any_undeleted(observed.pods), look_again_at=again)
        case _ if observed.refusal and not look.changes:
            return Plan(
                delete_all_pods=_any_undeleted(observed.pods),
                probe=now >= observed.refusal.retry_at,
                look_again_at=again,
            )
        case _ if finding.failure:
            return Plan(look_again_at=now)
        case _:
            return _attempt(look, again)


def _only_leaving(observed: Observed) -> bool:
    """Whether there are pods, and all of them are on their way out."""
    return bool(observed.pods or observed.strangers) and not _any_undeleted(observed.pods)


def _any_undeleted(pods: tuple[Pod, ...]) -> bool:
    return any(not pod.deleting for pod in pods)


def _end(observed: Observed) -> Plan:
    """The job is told to end: workers go, the launcher is ended and kept with its log."""
    launcher = observed.launcher
    live = launcher is not None and (launcher.alive or launcher.lingering) and not launcher.deleting
    return Plan(
        delete_workers=any(pod.role is Role.WORKER and not pod.deleting for pod in observed.pods),
        end_launcher=bool(live and launcher and launcher.node and not launcher.ending),
        delete_pods=(launcher.name,) if live and launcher and not launcher.node else (),
        delete_pod_groups=observed.pod_groups,
    )


def _after_the_end(job: HorovodJob, observed: Observed, now: datetime) -> Plan:
    """Pods go as the policy says, and the job itself when its time after the end is over."""
    seconds, ended = job.spec.run_policy.ttl_seconds_after_finished, job.status.completion_time
    if seconds is None or ended is None:
        return _clean_up(job, observed)
    expires = ended + timedelta(seconds=seconds)
    return Plan(delete_job=True) if now >= expires else replace(_clean_up(job, observed), look_again_at=expires)


def _clean_up(job: HorovodJob, observed: Observed) -> Plan:
    """What runPolicy.cleanPodPolicy says; a launcher that still runs is ended in any case."""
    policy = job.spec.run_policy.clean_pod_policy
    if policy is CleanPodPolicy.ALL:
        return Plan(
            delete_all_pods=_any_undeleted(observed.pods), delete_pod_groups=observed.pod_groups, delete_keys=True
        )
    if policy is CleanPodPolicy.RUNNING:
        return replace(_end(observed), delete_keys=True)
    return Plan(end_launcher=_end(observed).end_launcher)


def _attempt(look: Look, again: datetime | None) -> Plan:
    """The present attempt's pods: what is missing is made, what is in the way or spent goes."""
    job, observed = look.job, look.observed
    attempt = job.status.attempt
    leaving = observed.launcher
    if lost := _lost(look):
        # Before the launcher, which is the evidence. A node that is off keeps them until it is back or gone.
        return Plan(delete_pods=lost, look_again_at=again)
    stale = [pod.name for pod in (leaving,) if pod and pod.attempt != attempt and not pod.deleting]
    # Workers that a failure left behind; one of this very attempt would be a failure of it, found before.
    stale += [
        pod.name
        for pod in look.workers.values()
        if not pod.alive and not pod.deleting and (pod.attempt != attempt or look.changes)
    ]
    hosts = _hosts(look)
    stale += _surplus(look, hosts)
    secret = (look.launcher.secret if look.launcher else "") or names.secret_name(job)
    spec_hash = look.launcher.spec_hash if look.launcher else names.spec_hash(job)
    if outdated := [pod.name for pod in observed.pods if not pod.deleting and differs(pod, spec_hash)]:
        # Made from another spec, and the PodGroup may be one for another size.
        groups = observed.pod_groups
        return Plan(delete_pods=(*stale, *outdated), delete_pod_groups=groups, look_again_at=look.now)
    if others := [pod.name for pod in look.workers.values() if not pod.deleting and pod.secret not in ("", secret)]:
        # Scripts and keys of another release of the operator: such workers do not serve this one's launcher.
        return Plan(delete_pods=(*stale, *others), look_again_at=look.now)
    started = job.status.phase is Phase.RUNNING and not look.changes
    wait = retry_at(job)
    if started or (wait and look.now < wait and look.launcher is None):
        return Plan(delete_pods=tuple(stale), look_again_at=again)
    if job.spec.scheduling.gang is not Gang.NONE and _only_leaving(observed):
        # They are members of the group as well: counted with them, a part of the new ones could be placed alone.
        return Plan(look_again_at=again)
    taken = {pod.name for pod in observed.strangers}
    missing = tuple(
        index
        for index in job.spec.worker_indices
        if index not in look.workers and names.worker_name(job, index) not in taken
    )
    later = _later(look) if missing else None
    if later:
        missing, again = (), min(again or later, later)
    create_launcher = leaving is None and names.launcher_name(job) not in taken and not look.changes
    return Plan(
        create_secret=create_launcher or (bool(missing) and not observed.pods),
        secret=secret,
        spec_hash=spec_hash,
        create_workers=missing,
        create_launcher=create_launcher,
        hosts=hosts,
        publish_hosts=_publish(look, hosts),
        delete_pods=tuple(stale),
        look_again_at=again,
    )


def _lost(look: Look) -> tuple[str, ...]:
    """Workers that the launcher of an earlier attempt could not reach any more."""
    if look.launcher:
        return ()
    return tuple(pod.name for pod in look.unreachable.values() if not pod.deleting)


def _hosts(look: Look) -> str:
    """The hostfile, one line a worker in the order of their indices; empty until every worker has its address.

    Where there is something to prepare, until every worker is prepared; in an elastic job, until every worker that has
    a node is: the others come later.
    """
    hosts, wanted = look.hosts, look.job.spec.worker.replicas
    if look.job.spec.elastic and look.launcher and look.launcher.hosts:
        wanted = 1
    elif look.job.spec.elastic and look.placed:
        wanted = max(sum(bool(pod.node) for pod in look.workers.values()), look.job.spec.least_workers)
    if len(hosts) < wanted:
        return ""
    return "".join(f"{pod.address} slots={look.job.spec.slots}\n" for pod in hosts)


def _later(look: Look) -> datetime | None:
    """When workers that are missing while the ranks of an elastic job run can be made, if not now."""
    if not look.changes:
        return None
    moments = [replaced_at(look.job), look.observed.refusal.retry_at if look.observed.refusal else None]
    return max((at for at in moments if at and at > look.now), default=None)


def _publish(look: Look, hosts: str) -> bool:
    """Whether the launcher does not know its hosts yet, or those of an elastic job are others by now."""
    launcher = look.launcher
    if not hosts or launcher is None or launcher.deleting or not launcher.alive:
        return False
    return hosts != launcher.hosts if look.job.spec.elastic else not launcher.hosts


def _surplus(look: Look, hosts: str) -> list[str]:
    """Workers that the job has no more use for; the launcher hears of it first, and their ranks leave."""
    if _publish(look, hosts):
        return []
    workers = (pod for pod in look.observed.pods if pod.role is Role.WORKER and not pod.deleting)
    return [pod.name for pod in workers if pod.index not in look.job.spec.worker_indices]
