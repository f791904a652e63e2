"""The pace at which a large job creates its pods while other jobs create theirs."""

import time
from collections import OrderedDict
from collections.abc import Callable

from horovodjob.api.constants import Gang
from horovodjob.api.job import HorovodJob
from horovodjob_operator.kube.cache import Key, PodCache

# The default scheduler takes pods of equal priority in the order of their creation, so all pods of a large job would be
# ahead of those of a small job that arrives later. This number keeps the scheduler busy until the next reconciliation.
MAX_WAITING_FOR_SCHEDULER = 64
# So long after its last creation, a job counts as one that creates pods.
CREATING_SECONDS = 2
# A scheduler that waits for all pods of a job, or that reports no failed attempt, must not stop their creation.
PATIENCE_SECONDS = 3


class CreationPace:
    """Limits the pods of a job that wait for the scheduler, as long as other jobs create pods."""

    def __init__(self, pods: PodCache, clock: Callable[[], float] = time.monotonic) -> None:
        self._pods, self._clock = pods, clock
        self._created_at: OrderedDict[Key, float] = OrderedDict()
        """When each job last created a pod, in the order of these times."""
        self._least: dict[Key, tuple[int, float]] = {}
        """The least number of waiting pods of each job that is at the limit, and since when."""

    def record(self, job: HorovodJob) -> None:
        """Records that the job creates a pod."""
        self._created_at[job.key] = self._clock()
        self._created_at.move_to_end(job.key)

    def is_exceeded(self, job: HorovodJob) -> bool:
        """Whether the job must create its next pod later."""
        key, now = job.key, self._clock()
        self._drop_until(now - CREATING_SECONDS)
        waiting = self._pods.waiting_for_scheduler(key)
        has_competitors = len(self._created_at) > (key in self._created_at)
        if waiting < MAX_WAITING_FOR_SCHEDULER or not has_competitors or job.spec.scheduling.gang is not Gang.NONE:
            self._least.pop(key, None)
            return False
        least, since = self._least.get(key, (waiting + 1, now))
        if waiting < least:
            self._least = {key: one for key, one in self._least.items() if self._pods.waiting_for_scheduler(key)}
            self._least[key] = waiting, now
            return True
        return now - since < PATIENCE_SECONDS

    def _drop_until(self, last: float) -> None:
        while self._created_at and next(iter(self._created_at.values())) < last:
            self._created_at.popitem(last=False)
