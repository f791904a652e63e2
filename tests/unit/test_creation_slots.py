"""Creations of a namespace with a slow admission webhook, beside those of others."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from horovodjob_operator.kube.requests.api_client import SLOW_CREATION_SECONDS, CreationSlots


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop whose time passes only while it waits, so a busy machine changes no result."""

    now = 0.0

    def time(self) -> float:
        return self.now

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:  # type: ignore[attr-defined]
            self.now = max(self.now, self._scheduled[0].when())  # type: ignore[attr-defined]
        super()._run_once()  # type: ignore[misc]


def in_virtual_time(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """The test in a loop of its own."""

    def run() -> None:
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            runner.run(test())

    return run


@contextlib.asynccontextmanager
async def slow_creations(slots: CreationSlots, *namespaces: str) -> AsyncIterator[None]:
    """Many creations in each of these namespaces, which do not end."""

    async def create(namespace: str) -> None:
        async with slots.slot(namespace):
            await asyncio.sleep(1000)

    tasks = [asyncio.create_task(create(namespace)) for namespace in namespaces for _ in range(50)]
    await asyncio.sleep(0)
    yield
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def seconds_until_created(slots: CreationSlots, number: int, namespace: str = "team") -> float:
    async def create() -> None:
        async with slots.slot(namespace):
            await asyncio.sleep(0)

    loop = asyncio.get_running_loop()
    begin = loop.time()
    await asyncio.wait_for(asyncio.gather(*(create() for _ in range(number))), 10 * SLOW_CREATION_SECONDS)
    return loop.time() - begin


@in_virtual_time
async def test_a_slow_namespace_leaves_a_share_of_the_creations_to_the_others() -> None:
    slots = CreationSlots(8)
    async with slow_creations(slots, "slow"):
        assert await seconds_until_created(slots, 100) == 0


@in_virtual_time
async def test_several_slow_namespaces_delay_the_others_by_a_second_at_most() -> None:
    slots = CreationSlots(8)
    async with slow_creations(slots, "slow", "slower"):
        assert await seconds_until_created(slots, 100) <= SLOW_CREATION_SECONDS
        assert await seconds_until_created(slots, 100) <= SLOW_CREATION_SECONDS


@in_virtual_time
async def test_all_slots_are_free_again_after_slow_and_cancelled_creations() -> None:
    slots = CreationSlots(8)
    async with slow_creations(slots, "slow", "slower"):
        await asyncio.sleep(SLOW_CREATION_SECONDS * 1.1)
    assert await seconds_until_created(slots, 100, "slow") == 0
