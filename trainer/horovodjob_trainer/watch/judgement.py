"""When a training stalls, and which ranks the others wait for. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from horovodjob_trainer.watch.sections import SETUP_SECONDS, START_SECONDS, UNKNOWN_SECONDS, Section
from horovodjob_trainer.watch.stacks import ranks_text

SILENT_SECONDS = 10.0  # Python code of a rank runs each second, on a busy node a little later
MAX_GROUPS = 3
TEXTS = {
    Section.START: "is in its start-up",
    Section.SETUP: "loads its data or builds its model",
    Section.INPUT: "is in input",
    Section.STEP: "is computing, or reads its next batch",
    Section.VALIDATION: "is in the validation",
    Section.CHECKPOINT: "writes a checkpoint",
    Section.EPOCH_END: "is at the end of an epoch",
    Section.OUTSIDE: "has left the training",
    Section.SAVING: "saves the trained model",
}


def deadline_seconds(deadline: float, section: Section, steps: float) -> float:
    """The deadline that the user has set. What a run does once has at least the time of an automatic limit."""
    if section is Section.SETUP:
        return max(deadline, SETUP_SECONDS)
    if section is Section.SAVING:
        return max(deadline, UNKNOWN_SECONDS)
    return max(deadline, START_SECONDS) if section is Section.START or not steps else deadline


@dataclass(frozen=True, slots=True)
class RankState:
    """What is known of a rank."""

    rank: int
    host: str
    section: Section = Section.OUTSIDE
    is_answering: bool = True
    is_waiting: bool = False
    """It waits in an exchange for other ranks."""
    silent_seconds: float = 0.0
    """Since its Python code has run last."""
    kernel: str = ""
    """How the kernel sees its process, if it or one of its threads cannot run."""
    steps: int = 0
    """The number of its last completed step."""
    frame: str = ""
    """The innermost frame of its program."""

    @property
    def is_blocked(self) -> bool:
        """Whether it does nothing at all. While it waits for others, one of its threads can be in the kernel."""
        is_held = bool(self.kernel) and not self.is_waiting
        return not self.is_answering or is_held or self.silent_seconds > SILENT_SECONDS

    def text(self) -> str:
        """What it does, without its number."""
        if not self.is_answering:
            return "does not answer: its pod, its node or the network to it has failed"
        if self.kernel:
            return self.kernel
        if self.silent_seconds > SILENT_SECONDS:
            return "runs native code that keeps Python from running" + (
                f", called by {self.frame}" if self.frame else ""
            )
        if self.is_waiting:
            return "waits for the other ranks"
        text = TEXTS[self.section]
        return f"{text}, at {self.frame}" if self.frame else text


@dataclass(frozen=True, slots=True)
class Verdict:
    """The ranks that the others wait for, and what the others do. Both can be empty."""

    blamed: tuple[RankState, ...]
    others: str


def verdict(ranks: Sequence[RankState]) -> Verdict:
    """Who is to blame, as far as that is known."""
    waiting = [each for each in ranks if each.is_waiting and not each.is_blocked]
    rest = [each for each in ranks if each not in waiting]
    if not rest:
        held = tuple(each for each in ranks if each.kernel)
        return Verdict(held, f"all {len(ranks)} ranks wait in the exchange" if held else _exchange_text(ranks))
    blocked = [each for each in rest if each.is_blocked]
    if waiting:
        # A rank that can do nothing is the cause; one that works without the others can wait for it.
        return Verdict(tuple(blocked or rest), _others(len(waiting), len(ranks)))
    if blocked and len(blocked) < len(rest):
        return Verdict(tuple(blocked), "")
    if len({each.text() for each in rest}) == 1 and len(rest) > 1:
        cause = ": the share or the volume of the data may hang" if rest[0].section is Section.INPUT else ""
        return Verdict((), f"all {len(rest)} ranks are at the same place: each {rest[0].text()}{cause}")
    return Verdict(tuple(rest), "")


def verdict_before_start(own: RankState) -> Verdict:
    """What a rank that does not know the others yet can say: only what it does itself."""
    if own.is_waiting and not own.is_blocked:
        return Verdict((), f"rank {own.rank} waits for ranks that have not started; each of them says in the log where")
    return Verdict((own,), "")


def _exchange_text(ranks: Sequence[RankState]) -> str:
    """What is known when every rank waits for others."""
    if len(ranks) == 1:
        return "the only rank waits in the exchange"
    text = f"all {len(ranks)} ranks wait in the exchange"
    places: dict[str, list[int]] = {}
    for each in ranks:
        place = f"after step {each.steps}" + (f", at {each.frame}" if each.frame else "")
        places.setdefault(place, []).append(each.rank)
    if len(places) == 1:
        return f"{text}: the network or its library does not get on"
    parts = _first(f"{ranks_text(numbers)} {place}" for place, numbers in _smallest_first(places))
    return f"{text}, but not at the same place ({parts}): a rank may have skipped a step or a call"


def _others(waiting: int, all_ranks: int) -> str:
    if waiting == 1:
        return "the other rank waits in the exchange" if all_ranks == 2 else "one rank waits in the exchange"
    return f"the other {waiting} ranks wait in the exchange"


def verdict_text(found: Verdict) -> str:
    """The verdict in words: for the log of the job."""
    groups: dict[str, list[RankState]] = {}
    for each in found.blamed:
        groups.setdefault(each.text(), []).append(each)
    parts = []
    for text, ranks in _smallest_first(groups):
        hosts = _first(dict.fromkeys(each.host for each in ranks), ", ")
        subject = f"{ranks_text(each.rank for each in ranks)} on {hosts}"
        parts.append(f"{subject} {text}" if len(ranks) == 1 else f"{subject}: each {text}")
    return "; ".join([*([_first(parts)] if parts else []), *([found.others] if found.others else [])])


def _smallest_first(groups: Mapping[str, list[Any]]) -> list[tuple[str, list[Any]]]:
    """A place with few ranks says more than one with many."""
    return sorted(groups.items(), key=lambda group: len(group[1]))


def _first(texts: Iterable[str], separator: str = "; ") -> str:
    """The first three texts, and how many there are more."""
    found = list(texts)
    more = [f"{len(found) - MAX_GROUPS} more"] if len(found) > MAX_GROUPS else []
    return separator.join([*found[:MAX_GROUPS], *more])
