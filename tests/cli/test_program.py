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


def test_help_and_version_are_those_of_the_program_and_its_groups() -> None:
    shown = run("--help").stdout
    for name in ("workspace", "experiment", "cluster", "job", "storage", "convert", "doctor", "completion"):
        assert f"\n  {name} " in shown
    for path in ((), ("job",), ("job", "file"), ("cluster", "node")):
        done = run(*path)
        assert (done.code, done.stdout) == (2, "")
        assert done.stderr.startswith(f"Usage: {' '.join(('hvj', *path))} ")
    plugin = run("job", "show", "--help", program="/usr/bin/kubectl-hvj").stdout
    assert plugin.startswith("Usage: kubectl hvj job show ")
    assert all(PROGRAM.with_name(name).exists() for name in ("kubectl-hvj", "kubectl_complete-hvj"))
    assert run("--version").stdout.startswith("hvj 0.")


def test_the_help_of_batch_ais_commands_says_workspace_and_that_of_others_namespace() -> None:
    for path in (("run",), ("attach",), ("sweep", "resume"), ("cp",), ("convert",), ("job", "logs"), ("dashboard",)):
        assert "--namespace, --workspace " in run(*path, "--help").stdout
    for path in (("job", "show"), ("job", "list"), ("experiment", "show"), ("cluster", "show")):
        assert "--workspace, --namespace " in run(*path, "--help").stdout


def test_shells_and_kubectl_complete_commands_options_and_values() -> None:
    for shell in ("zsh", "fish"):
        assert "hvj" in run("completion", shell).stdout
    script = run("completion", "bash").stdout
    environment = os.environ | {"PATH": f"{PROGRAM.parent}:{os.environ['PATH']}"}
    variables = "COMP_WORDS=(hvj job show --worksp); COMP_CWORD=3"
    code = f'{script}\n{variables}; _hvj_completion hvj; echo "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == "--workspace\n"
    assert kubectl_completions("job", "sho") == ["show\tShow a job: its state, what it waits for,...", ":4"]
    assert kubectl_completions("job", "create", "--pod-security", "B") == ["Baseline", ":4"]
    assert kubectl_completions("convert", "--config-file", "") == [":0"]


def test_a_command_of_batch_ai_without_meaning_names_what_replaces_it() -> None:
    for words, advice in (
        (("cluster", "delete"), "`az aks nodepool delete`"),
        (("cluster", "file", "list"), "`hvj job file list`"),
        (("file-server", "create"), "spec.azureFiles"),
        (("list-usages", "-l", "eastus"), "`az vm list-usage"),
    ):
        done = run(*words)
        assert (done.code, done.stdout, done.stderr.count("\n"), advice in done.stderr) == (2, "", 1, True)
