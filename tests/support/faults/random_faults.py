"""Random faults of an API server: in its answers, and in its watches."""

import itertools
import random
from collections import Counter
from collections.abc import Callable, Mapping

from support.faults.fault_proxy import NO_FAULT, Fault, Request

WATCHES_PER_FAULT = 3
MakeFault = Callable[[random.Random], Fault]
FAULTS: Mapping[str, MakeFault] = {
    "429": lambda _: Fault(status=429, headers=(("Retry-After", "1"),)),
    "500": lambda _: Fault(status=500),
    "503": lambda _: Fault(status=503),
    "reset before the effect": lambda _: Fault(reset_before=True),
    "reset after the effect": lambda _: Fault(reset_after=True),
    "delay": lambda chance: Fault(delay_seconds=chance.uniform(1, 8)),
}
WATCH_FAULTS: Mapping[str, MakeFault] = {
    "410": lambda _: Fault(status=410),
    "410 in an event": lambda _: Fault(status=410, is_error_event=True),
    "500 in an event": lambda _: Fault(status=500, is_error_event=True),
    "half-open": lambda _: Fault(is_half_open=True),
    **FAULTS,
}


class RandomFaults:
    """A share of the requests fails, and each watch breaks after some seconds."""

    def __init__(self, *, rate: float, watch_seconds: float, seed: int) -> None:
        self._rate, self._watch_seconds = rate, watch_seconds
        self._chance = random.Random(seed)
        # There are few watches, so their faults are not left to chance.
        self._watches, self._watch_faults = itertools.count(1), itertools.cycle(WATCH_FAULTS)
        self.counts: Counter[str] = Counter()

    def __call__(self, request: Request) -> Fault:
        if request.is_watch:
            is_faulty = next(self._watches) % WATCHES_PER_FAULT == 0
            usual = Fault(reset_after_seconds=self._watch_seconds)
        else:
            is_faulty, usual = self._chance.random() < self._rate, NO_FAULT
        if not is_faulty:
            return usual
        name = next(self._watch_faults) if request.is_watch else self._chance.choice(tuple(FAULTS))
        self.counts[name] += 1
        return WATCH_FAULTS[name](self._chance)
