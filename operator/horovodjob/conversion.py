"""What a conversion to HorovodJob gives, and its one error. Shared by the converters of Batch AI and Kubeflow."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from horovodjob.api.spec import HorovodJobSpec


@dataclass(frozen=True, slots=True)
class Note:
    """A sentence about one place of the document; it never quotes a value that can be secret."""

    path: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.path}: {self.sentence}" if self.path else self.sentence


class ConversionError(ValueError):
    """The document cannot be converted; carries every problem that was found, and the warnings beside them."""

    def __init__(self, problems: Sequence[Note], warnings: Sequence[Note] = ()) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)
        self.warnings = tuple(map(str, warnings))


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
            raise ConversionError(self.problems, self.warnings)


def conversion(job: dict[str, Any], secrets: Sequence[dict[str, Any]], notes: Notes) -> Conversion:
    """The result, checked against the resource's own schema. Raises ConversionError if there is any problem."""
    notes.raise_problems()
    try:
        json.dumps([job, *secrets], ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError):
        notes.refuse("", "the file has a value that JSON does not have, such as a date, infinity or half a character")
    notes.raise_problems()
    try:
        HorovodJobSpec.model_validate(job["spec"])
    except ValidationError as error:
        for problem in error.errors(include_url=False, include_context=False, include_input=False):
            notes.refuse(f"spec{path_text(problem['loc'])}", f"HorovodJob does not take the value: {problem['msg']}")
    notes.raise_problems()
    return Conversion(job, tuple(secrets), tuple(map(str, notes.warnings)))


def path_text(keys: Sequence[str | int]) -> str:
    """The path below something: `.azureFileShares[0].azureFileUrl`."""
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys)


def secret(name: str, namespace: str | None, values: Mapping[str, str], kind: str = "Opaque") -> dict[str, Any]:
    """A Secret as a manifest."""
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": kind, "stringData": dict(values)}


def _append(notes: list[Note], note: Note) -> None:
    if note not in notes:
        notes.append(note)
