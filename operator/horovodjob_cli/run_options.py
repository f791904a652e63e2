"""The options of a run, and of a sweep, as those of a command."""

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from horovodjob.client.runs.options import Declared, RunOptions, SweepOptions, declared
from horovodjob_cli.options import with_options

Function = Callable[..., Any]


def with_run_options(function: Function) -> Function:
    """Replaces the parameter `options` of a command with the options of a run."""
    return _with_declared(function, "options", [*declared(RunOptions)])


def with_sweep_options(*fields: str) -> Callable[[Function], Function]:
    """Replaces the parameter `settings` of a command with these options of a sweep, by default with all."""
    chosen = [each for each in declared(SweepOptions) if not fields or each.field in fields]
    return lambda function: _with_declared(function, "settings", chosen)


def _with_declared(function: Function, parameter: str, options: list[Declared]) -> Function:
    """The parameter gets the values of the options that are given, by field."""
    by_name = {_parameter_name(each): each for each in options}

    def given(**values: Any) -> dict[str, Any]:
        return {
            each.field: each.option.parsed(values[name])
            for name, each in by_name.items()
            if values[name] not in (None, []) and values[name] is not False
        }

    return with_options(function, parameter, {name: _parameter(name, each) for name, each in by_name.items()}, given)


def _parameter(name: str, each: Declared) -> inspect.Parameter:
    option, is_flag = each.option, each.type is bool
    shown = typer.Option(*each.names, metavar=option.metavar, min=option.minimum, help=option.help)
    hint = Annotated[bool if is_flag else each.type | None, shown]  # type: ignore[valid-type]
    default = False if is_flag else None
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)


def _parameter_name(each: Declared) -> str:
    """The name by which completion knows what to list."""
    return each.names[0].removeprefix("--").replace("-", "_")
