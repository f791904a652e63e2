"""Fault injection: failures of the next requests that match."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto

from aiohttp import web


class Kind(Enum):
    """Kinds of faults."""

    RESET = auto()  # the connection is reset in the middle of the body, or before a response without a body
    TRUNCATE = auto()  # the body ends early, and the connection is closed as if it were complete
    BUSY = auto()  # 503 ServerBusy with Retry-After
    THROTTLED = auto()  # 429 with Retry-After
    DENIED = auto()  # 403 AuthorizationFailure, as after a change of the network rules
    SLOW = auto()  # the response is delayed
    LOST_ANSWER = auto()  # the operation is executed, and the connection is reset before the response


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to a request."""

    kind: Kind
    seconds: float = 0.0


@dataclass(slots=True)
class Pending:
    """A fault that is still to happen to `times` requests for which `matches` is true, after the first `after`."""

    fault: Fault
    matches: Callable[[web.Request], bool]
    times: int = 1
    after: int = 0


@dataclass(slots=True)
class Faults:
    """The faults of a service."""

    pending: list[Pending] = field(default_factory=list)

    def add(
        self,
        kind: Kind,
        method: str = "",
        comp: str | None = None,
        *,
        times: int = 1,
        after: int = 0,
        seconds: float = 0,
    ) -> None:
        """Make requests with this method and `comp` parameter fail; by default all of them."""

        def matches(request: web.Request) -> bool:
            return method in ("", request.method) and comp in (None, request.query.get("comp", ""))

        self.pending.append(Pending(Fault(kind, seconds), matches, times, after))

    def next_for(self, request: web.Request) -> Fault | None:
        """The fault for this request."""
        for pending in self.pending:
            if pending.times and pending.matches(request):
                if pending.after:
                    pending.after -= 1
                    continue
                pending.times -= 1
                return pending.fault
        return None
