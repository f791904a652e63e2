"""The cache of pods: what the watch and the responses to writes have shown. It holds facts and no whole objects."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from horovodjob_operator.domain.names import SCRIPTS_SECRET, job_name
from horovodjob_operator.domain.pods.pod import Pod
from horovodjob_operator.domain.pods.pod_facts import OwnedPod, owned_pod

Key = tuple[str, str]
"""Namespace and name of a job."""
DELETED_UIDS = 10_000


class DeletedUids:
    """UIDs of the objects deleted last: a list or a response that contains them can arrive after the deletion."""

    def __init__(self) -> None:
        self._uids: dict[str, None] = {}

    def __contains__(self, uid: str) -> bool:
        return uid in self._uids

    def add(self, uid: str) -> None:
        """Adds a UID, and drops the oldest of too many."""
        self._uids[uid] = None
        if len(self._uids) > DELETED_UIDS:
            del self._uids[next(iter(self._uids))]


class PodCache:
    """The pods of jobs, by the key of their job and their name."""

    def __init__(self) -> None:
        self._pods: dict[Key, dict[str, Pod]] = {}
        self._mounted: Counter[tuple[str, str]] = Counter()
        """The number of pods with an address, and so with mounted volumes, by namespace and Secret of start scripts."""
        self._waiting: Counter[Key] = Counter()
        """The number of pods that wait for the scheduler, by the key of their job."""
        self._listed_namespaces: set[str] = set()
        """Namespaces with a complete list of pods; the empty string stands for all."""
        self._deleted_uids = DeletedUids()

    def __iter__(self) -> Iterator[Pod]:
        return (pod for pods in self._pods.values() for pod in pods.values())

    def of_job(self, key: Key) -> Mapping[str, Pod]:
        """The pods with the label of the job, by name; they can belong to an earlier job with the same name."""
        return self._pods.get(key, {})

    def has_scripts(self, namespace: str) -> bool:
        """Whether a pod of the namespace has mounted the start scripts of this release."""
        return self._mounted[namespace, SCRIPTS_SECRET] > 0

    def are_ahead(self, key: Key, number: int) -> bool:
        """Whether at least this number of the job's pods wait for the scheduler, and pods of other jobs do too."""
        return self._waiting[key] >= number and len(self._waiting) > 1

    def update(self, raw: Mapping[str, Any]) -> OwnedPod | None:
        """Stores a pod from the API server, and returns it if its facts are new."""
        owned = owned_pod(raw)
        return owned if owned and self.store(owned) else None

    def without_labels(self, raw: Mapping[str, Any]) -> OwnedPod | None:
        """Removes a pod that no longer has the labels of the job that its name is from, and returns its last state."""
        metadata = raw["metadata"]
        key, owned = (metadata["namespace"], job_name(metadata["name"])), owned_pod(raw)
        known = self.of_job(key).get(metadata["name"])
        if known is None or known.uid != metadata["uid"] or (owned and owned.key == key):
            return None
        lost = OwnedPod(key, known)
        self._remove(lost)
        return lost

    def store(self, owned: OwnedPod) -> bool:
        """Stores the facts of a pod unless newer ones are known, and returns whether they are new."""
        if owned.pod.uid in self._deleted_uids:
            return False
        known = self.of_job(owned.key).get(owned.pod.name)
        if known and known.uid == owned.pod.uid and known.version >= owned.pod.version:
            return False
        self._put(owned.key, owned.pod)
        return known is None or replace(known, version=owned.pod.version) != owned.pod

    def delete(self, raw: Mapping[str, Any]) -> OwnedPod | None:
        """Removes a deleted pod, and returns its last state if it was known."""
        owned = owned_pod(raw)
        if owned is None:
            return None
        self._deleted_uids.add(owned.pod.uid)
        known = self.of_job(owned.key).get(owned.pod.name)
        if known is None or known.uid != owned.pod.uid:
            return None
        self._remove(owned)
        return owned

    def delete_unlisted(self, uids: set[str], version: int, namespace: str = "") -> list[OwnedPod]:
        """Removes and returns the pods that a list of this version, of one namespace or all, does not contain.

        A pod with a later version was created while the list was read.
        """
        self._listed_namespaces.add(namespace)
        deleted = [
            OwnedPod(key, pod)
            for key, pods in self._pods.items()
            if namespace in ("", key[0])
            for pod in pods.values()
            if pod.uid not in uids and pod.version <= version
        ]
        for owned in deleted:
            self._remove(owned)
        return deleted

    def _remove(self, owned: OwnedPod) -> None:
        pods = self._pods[owned.key]
        self._count(owned.key, pods.pop(owned.pod.name), -1)
        if not pods:
            del self._pods[owned.key]

    def _put(self, key: Key, pod: Pod) -> None:
        pods = self._pods.setdefault(key, {})
        if known := pods.get(pod.name):
            self._count(key, known, -1)
        self._count(key, pod, 1)
        pods[pod.name] = pod

    def _count(self, key: Key, pod: Pod, number: int) -> None:
        if pod.address and pod.secret_names:
            mount = key[0], pod.secret_names[-1]
            self._mounted[mount] += number
            if not self._mounted[mount]:
                del self._mounted[mount]
        if pod.waits_for_scheduler:
            self._waiting[key] += number
            if not self._waiting[key]:
                del self._waiting[key]

    def has_listed(self, namespace: str) -> bool:
        """Whether the pods of a namespace have been listed."""
        return not self._listed_namespaces.isdisjoint(("", namespace))

    def change(self, key: Key, pods: Iterable[Pod], **facts: Any) -> None:
        """Changes facts of pods after a write, before the watch reports them."""
        known = self._pods.get(key, {})
        for pod in pods:
            if pod.name in known and known[pod.name].uid == pod.uid:
                self._put(key, replace(known[pod.name], **facts))

    def has_running_pods(self, key: Key, uid: str | None) -> bool:
        """Whether a job has pods that are active, or run sidecars, and that are not being deleted."""
        return any(
            (pod.is_active or pod.has_running_sidecars) and not pod.is_terminating and pod.owner_uid == uid
            for pod in self.of_job(key).values()
        )
