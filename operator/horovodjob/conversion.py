"""What a conversion to HorovodJob gives, and its one error. Shared by the converters of Batch AI and Kubeflow."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Note:
    """A sentence about one place of the document; it never quotes a value that can be secret."""

    path: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.path}: {self.sentence}" if self.path else self.sentence


class ConversionError(ValueError):
    """The document cannot be converted; carries every problem that was found."""

    def __init__(self, problems: Sequence[Note]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True)
class Conversion:
    """A HorovodJob as a manifest, the Secrets it needs, and what the user should know before it is applied."""

    job: dict[str, Any]
    secrets: tuple[dict[str, Any], ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(slots=True)
class Notes:
    """Problems and warnings in the order in which they are found, each once."""

    problems: list[Note] = field(default_factory=list)
    warnings: list[Note] = field(default_factory=list)

    def refuse(self, path: str, sentence: str) -> None:
        """Adds a reason why the document cannot be converted."""
        _append(self.problems, Note(path, sentence))

    def warn(self, path: str, sentence: str) -> None:
        """Adds what the user should know about the result."""
        _append(self.warnings, Note(path, sentence))

    def raise_problems(self) -> None:
        """Raises ConversionError if there is any problem."""
        if self.problems:
            raise ConversionError(self.problems)


def _append(notes: list[Note], note: Note) -> None:
    if note not in notes:
        notes.append(note)
