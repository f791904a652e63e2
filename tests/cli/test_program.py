"""Help, version and completion, which need no cluster."""

import os
import subprocess
import sys

import pytest

from cli.program import PROGRAM, kubectl_completions, run


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_help_and_version_import_no_client_and_no_command(argument: str) -> None:
    code = f"import sys; sys.argv = ['hvj', '{argument}']; from horovodjob_cli.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-X", "importtime", "-c", code], capture_output=True, text=True, check=True)
    modules = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert not modules & {"kubernetes", "azure", "rich", "yaml", "jmespath", "pydantic", "horovodjob_cli.commands.job"}


def test_help_lists_every_group() -> None:
    shown = run("--help").stdout
    for name in ("workspace", "experiment", "cluster", "job", "storage", "convert", "doctor", "completion"):
        assert f"\n  {name} " in shown


@pytest.mark.parametrize("path", [(), ("job",), ("job", "file"), ("job", "node"), ("cluster", "node")])
def test_a_group_without_a_command_shows_its_help_and_exits_with_2(path: tuple[str, ...]) -> None:
    done = run(*path)
    assert (done.code, done.stdout) == (2, "")
    assert done.stderr.startswith(f"Usage: {' '.join(('hvj', *path))} ")


def test_the_kubectl_plugin_shows_its_own_name() -> None:
    assert run("job", "show", "--help", program="/usr/bin/kubectl-hvj").stdout.startswith(
        "Usage: kubectl hvj job show "
    )
    assert PROGRAM.with_name("kubectl-hvj").exists()


def test_the_version_is_that_of_the_package() -> None:
    done = run("--version")
    assert done.code == 0
    assert done.stdout.startswith("hvj 0.")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(shell: str) -> None:
    assert "hvj" in run("completion", shell).stdout


@pytest.mark.parametrize(
    ("words", "completed"),
    [("hvj job sho", "show"), ("hvj job show --worksp", "--workspace"), ("hvj comp", "completion")],
)
def test_bash_completes_commands_and_options(words: str, completed: str) -> None:
    script = run("completion", "bash").stdout
    code = (
        f'{script}\nCOMP_WORDS=({words}); COMP_CWORD={words.count(" ")}; _hvj_completion hvj; echo "${{COMPREPLY[@]}}"'
    )
    environment = os.environ | {"PATH": f"{PROGRAM.parent}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == f"{completed}\n"


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        (("job", "sho"), ["show\tShow a job: its state, what it waits for,...", ":4"]),
        (("job", "show", "--worksp"), ["--workspace\tNamespace. Default: that of the kubeconfig's context.", ":4"]),
        (("job", "create", "--pod-security", "B"), ["Baseline", ":4"]),
        (("convert", "--config-file", ""), [":0"]),
        (("list-usages", ""), [":0"]),
    ],
)
def test_kubectl_completes_commands_options_and_values(words: tuple[str, ...], completed: list[str]) -> None:
    assert kubectl_completions(*words) == completed


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (("cluster", "delete"), "`az aks nodepool delete`"),
        (("cluster", "file", "list"), "`hvj job file list`"),
        (("file-server", "create"), "spec.azureFiles"),
        (("list-usages", "-l", "eastus"), "`az vm list-usage"),
    ],
)
def test_a_command_of_batch_ai_without_meaning_names_what_replaces_it(words: tuple[str, ...], advice: str) -> None:
    done = run(*words)
    assert (done.code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert advice in done.stderr
