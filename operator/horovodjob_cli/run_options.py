"""The options of a run as those of a command."""

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import typer

from horovodjob.client.runs.options import Declared, RunOptions, declared


def with_run_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Replaces the parameter `options` of a command with the options of a run."""
    every = tuple(declared())

    @functools.wraps(function)
    def run(**values: Any) -> Any:
        given = {}
        for each in every:
            value = values.pop(_parameter_name(each))
            if value not in (None, []) and value is not False:
                given[each.field] = each.option.parsed(value)
        return function(options=RunOptions(**given), **values)  # type: ignore[typeddict-item]

    own = inspect.signature(function, eval_str=True).parameters.values()
    kept = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own if each.name != "options"]
    run.__signature__ = inspect.Signature([*_parameters(every), *kept])  # type: ignore[attr-defined]
    return run


def _parameters(every: tuple[Declared, ...]) -> Iterator[inspect.Parameter]:
    for each in every:
        option = each.option
        shown = typer.Option(*each.names, metavar=option.metavar, min=option.minimum, help=option.help)
        is_flag = each.type is bool
        hint = Annotated[bool if is_flag else each.type | None, shown]  # type: ignore[valid-type]
        default = False if is_flag else None
        yield inspect.Parameter(_parameter_name(each), inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)


def _parameter_name(each: Declared) -> str:
    """The name by which completion knows what to list."""
    return each.names[0].removeprefix("--").replace("-", "_")
