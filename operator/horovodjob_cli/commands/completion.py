"""`hvj completion`."""

import sys
from enum import StrEnum
from typing import Annotated

import typer

from horovodjob_cli.commands import COMPLETION_VARIABLE, command, group

app = group("Completion of command lines.")


class Shell(StrEnum):
    """Shells that have a completion script."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


@command(app, "completion")
def print_script(
    shell: Annotated[Shell, typer.Argument(help="Shell that runs the script.", show_default=False)],
) -> None:
    """Print the completion script of a shell.

    bash and zsh: source <(hvj completion bash). fish: hvj completion fish | source.
    """
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    script = get_completion_script(prog_name="hvj", complete_var=COMPLETION_VARIABLE, shell=shell.value)
    sys.stdout.write(f"{script}\n")
