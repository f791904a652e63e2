"""The job of a trial: a template in which `${NAME}` stands for the value of a parameter."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from horovodjob.sweeps.parameters import Value, text

PLACEHOLDER = re.compile(r"\$(\$?)\{([^{}]*)\}")
# What a trial has beside its parameters: outputs of trials must not have the same path.
OWN_NAMES = ("trial", "job")
# The fields that take a number; every other text stays one, as arguments and variables must.
NUMBERS = ("worker.replicas", "worker.gpus", "worker.slots")


def filled(template: Any, values: Mapping[str, Value], path: str = "") -> Any:
    """The template with values for its placeholders; `$${NAME}` is the text `${NAME}`."""
    if isinstance(template, Mapping):
        return {key: filled(inner, values, f"{path}.{key}" if path else str(key)) for key, inner in template.items()}
    if isinstance(template, list):
        return [filled(inner, values, f"{path}[]") for inner in template]
    if not isinstance(template, str):
        return template
    whole = PLACEHOLDER.fullmatch(template)
    if whole and not whole[1] and path in NUMBERS:
        return values[whole[2]]
    return PLACEHOLDER.sub(lambda found: found[0][1:] if found[1] else text(values[found[2]]), template)


def literal(spec: Any) -> Any:
    """The spec as a template without placeholders."""
    if isinstance(spec, Mapping):
        return {key: literal(inner) for key, inner in spec.items()}
    if isinstance(spec, list):
        return [literal(inner) for inner in spec]
    return PLACEHOLDER.sub(r"$\g<0>", spec) if isinstance(spec, str) else spec


def placeholders(template: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """The path and the name of each placeholder."""
    if isinstance(template, Mapping):
        for key, inner in template.items():
            yield from placeholders(inner, f"{path}.{key}")
    elif isinstance(template, list):
        for index, inner in enumerate(template):
            yield from placeholders(inner, f"{path}[{index}]")
    elif isinstance(template, str):
        yield from ((path, name) for escape, name in PLACEHOLDER.findall(template) if not escape)
