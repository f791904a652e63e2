"""The cache of the Workloads of jobs: what the watch and the responses to writes have shown."""

from collections.abc import Callable, Mapping
from typing import Any

from horovodjob_operator.kube.pod_cache import DeletedUids
from horovodjob_operator.kueue.workload import OwnedWorkload, Workload, owned_workload


class WorkloadCache:
    """The Workloads of jobs, by the UID of their job, and why they cannot be watched."""

    def __init__(self) -> None:
        self._owned: dict[str, OwnedWorkload] = {}
        self._problems: dict[str, str] = {}
        """Why the Workloads of a namespace cannot be watched, or an empty string; the key is empty for all."""
        self._deleted_uids = DeletedUids()

    def of_job(self, uid: str) -> Workload | None:
        """The Workload of the job with this UID."""
        owned = self._owned.get(uid)
        return owned.workload if owned else None

    def has_listed(self, namespace: str) -> bool:
        """Whether the Workloads of a namespace are known, or known not to be watchable."""
        return not self._problems.keys().isdisjoint(("", namespace))

    def problem(self, namespace: str) -> str:
        """Why the Workloads of a namespace cannot be watched; empty if they can."""
        return self._problems.get(namespace) or self._problems.get("", "")

    def update(self, raw: Mapping[str, Any]) -> OwnedWorkload | None:
        """Stores a Workload from the API server, and returns it if it is new to the cache."""
        owned = owned_workload(raw)
        if owned is None or owned.workload.uid in self._deleted_uids:
            return None
        known = self.of_job(owned.job_uid)
        if known and known.version >= owned.workload.version:
            return None
        self._owned[owned.job_uid] = owned
        return owned

    def forget(self, uid: str) -> OwnedWorkload | None:
        """Removes the Workload with this UID, and returns it if it was known."""
        self._deleted_uids.add(uid)
        owned = next((owned for owned in self._owned.values() if owned.workload.uid == uid), None)
        return self._owned.pop(owned.job_uid) if owned else None

    def listed(self, uids: set[str], version: int, namespace: str) -> list[OwnedWorkload]:
        """Removes and returns the Workloads that a list of this version does not contain."""
        self._problems[namespace] = ""
        return self._remove(namespace, lambda workload: workload.uid not in uids and workload.version <= version)

    def unavailable(self, problem: str, namespace: str) -> list[OwnedWorkload]:
        """Removes and returns all Workloads: the API server does not serve them, or not to the operator."""
        self._problems[namespace] = problem
        return self._remove(namespace, lambda _: True)

    def _remove(self, namespace: str, is_gone: Callable[[Workload], bool]) -> list[OwnedWorkload]:
        gone = [one for one in self._owned.values() if namespace in ("", one.key[0]) and is_gone(one.workload)]
        for owned in gone:
            del self._owned[owned.job_uid]
        return gone
