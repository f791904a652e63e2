"""Command lines are split and expanded as a shell does."""

import os
import subprocess
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from horovodjob.command_line import program
from support.batchai_documents import HOROVOD, ROOT, problems, small, spec_of

ENVIRONMENT = {"SHARE": "/mnt/share", "GREETING": "hello  world", "PATH": os.environ["PATH"], "LATER": "at run time"}
KNOWN = {"SHARE": True, "GREETING": False}
PRINT = "printf '%s\\n'"
LINES = (
    "--dir=$SHARE/x",
    "--dir=${SHARE}x '$SHARE' \"$SHARE\"",
    "\"$GREETING\" $GREETING '$GREETING'",
    '$LATER "${LATER}"',
    "'it'\"'\"'s' a\\ b \\$SHARE \"\\$SHARE \\a\" ''",
    "costs $5 '$5' 100$ \"$\" $",
    "a'b'\"c\"d",
    "$(echo inner) `echo old` $((1+1))",
    "--json '{\"a\": [1, 2]}' x=[1]",
    "$SHARE$SHARE >/dev/stdout; echo then",
    '"$(echo "a b")" `echo \'c;d\'`',
    "a # comment",
    "a#b ~ a~",
    "one \\\n two",
    "!x {a} %s",
)


def expanded(text: str, environment: Mapping[str, str]) -> str:
    """The expansion of $(NAME) and $$ in a container's arguments by Kubernetes."""
    result, position = "", 0
    while position < len(text):
        following = text[position + 1 : position + 2]
        end = text.find(")", position)
        if text[position] != "$" or following not in ("$", "("):
            result, position = result + text[position], position + 1
        elif following == "$":
            result, position = result + "$", position + 2
        elif end < 0:
            result, position = result + "$(", position + 2
        else:
            name = text[position + 2 : end]
            result, position = result + environment.get(name, f"$({name})"), end + 1
    return result


def output(command: Sequence[str]) -> bytes:
    return subprocess.run(command, env=ENVIRONMENT, capture_output=True, check=False).stdout


def same_as_a_shell(line: str) -> None:
    known = {name: ENVIRONMENT[name] for name in KNOWN}
    command = [expanded(word, known) for word in program(f"{PRINT} {line}", KNOWN)]
    shell = command[0] if command[0] == "/bin/bash" else "/bin/sh"
    assert output(command) == output([shell, "-c", f"{PRINT} {line}"]), command


@pytest.mark.parametrize("line", LINES)
def test_a_program_gets_the_arguments_that_a_shell_would_pass(line: str) -> None:
    same_as_a_shell(line)


PIECES = st.sampled_from(
    ["a", " ", "'", '"', "\\", "$", "$SHARE", "${SHARE}", "$(", ")", "$$", "=", "/", "5", "#", "{"]
)


@settings(max_examples=30)
@given(st.lists(PIECES, max_size=8).map("".join))
def test_any_command_line_is_parsed_like_a_shell_or_rejected(line: str) -> None:
    try:
        program(f"{PRINT} {line}", KNOWN)
    except ValueError:
        return
    if "$$" not in line:  # the process ID of a shell
        same_as_a_shell(line)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("python a.py > out 2>&1", "exec python a.py > out 2>&1"),
        ("python a.py; echo end", "python a.py; echo end"),
        ("cd /x", "cd /x"),
        ("A=1 python a.py", "A=1 python a.py"),
        ("python $HOME/a.py", "exec python $HOME/a.py"),
        ("python `pwd`/a.py $(id -u)", "exec python `pwd`/a.py $$(id -u)"),
        ("ls *.py", "exec ls *.py"),
        ("source /opt/env && ./train", "source /opt/env && ./train"),
    ],
)
def test_a_single_shell_becomes_the_program(line: str, text: str) -> None:
    document = small(horovodSettings=None, customMpiSettings={"commandLine": line})
    shell = "/bin/bash" if text.startswith("source") else "/bin/sh"
    assert spec_of(document)["command"] == [shell, "-c", text]


def test_a_script_with_arguments_that_need_a_shell_runs_in_one() -> None:
    settings = HOROVOD | {"commandLineArgs": "--rank $OMPI_COMM_WORLD_RANK > log"}
    spec = spec_of(small(horovodSettings=settings))
    assert spec["command"] == ["/bin/sh", "-c", f"exec python {ROOT}/share/train.py --rank $OMPI_COMM_WORLD_RANK > log"]
    assert "script" not in spec


@pytest.mark.parametrize("args", ["'open", '"open', "end\\"])
def test_an_unterminated_quote_is_rejected(args: str) -> None:
    found = problems(small(horovodSettings=HOROVOD | {"commandLineArgs": args}))
    assert list(found) == ["properties.horovodSettings.commandLineArgs"]


@pytest.mark.parametrize(
    ("value", "is_split"), [("one", False), ("/a/b,c=d", False), ("--a --b", True), ("*", True), ("", True)]
)
def test_a_value_that_a_shell_would_split_is_passed_to_a_shell(value: str, is_split: bool) -> None:
    variable = [{"name": "MORE", "value": value}]
    document = small(horovodSettings=HOROVOD | {"commandLineArgs": "$MORE"}, environmentVariables=variable)
    assert ("command" in spec_of(document)) is is_split
