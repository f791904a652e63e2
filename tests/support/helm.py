"""Helm as a user runs it: a command, its output, and its errors."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import yaml

from support.api_client import Object, binary

HELM3, HELM4 = "helm3", "helm4"


class Helm:
    """One version of Helm, with its own directories, for the cluster of a kubeconfig."""

    def __init__(self, program: str, kubeconfig: Path, home: Path) -> None:
        self.program = program
        own = {f"HELM_{name}_HOME": str(home / program / name.lower()) for name in ("CACHE", "CONFIG", "DATA")}
        self._environment = {**os.environ, **own, "KUBECONFIG": str(kubeconfig), "HELM_NAMESPACE": "default"}

    def __call__(self, *arguments: str, stdin: str = "") -> str:
        """Standard output of a command that succeeds."""
        done = self._run(arguments, stdin)
        assert done.returncode == 0, done.stderr or done.stdout
        return done.stdout

    def refusal(self, *arguments: str, stdin: str = "") -> str:
        """The error message of a command that fails."""
        done = self._run(arguments, stdin)
        assert done.returncode != 0, done.stdout
        return done.stderr + done.stdout

    def objects(self, *arguments: str, stdin: str = "") -> list[Object]:
        """The objects that `helm template` renders."""
        rendered = self("template", *arguments, stdin=stdin)
        # The definition of the resource is large: PyYAML's own parser needs ten times as long.
        return [each for each in yaml.load_all(rendered, Loader=yaml.CSafeLoader) if each]

    def _run(self, arguments: tuple[str, ...], stdin: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [binary(self.program), *arguments],
            env=self._environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )


def operator_images(rendered: str) -> set[str]:
    """The images of the operator and of the job of `helm test`, in rendered objects."""
    objects = [each for each in yaml.safe_load_all(rendered) if each and each["kind"] in ("Deployment", "Job")]
    containers = [one for each in objects for one in each["spec"]["template"]["spec"]["containers"]]
    arguments = [word for one in containers for word in one.get("args", ())]
    option = "--image="
    return {one["image"] for one in containers} | {
        word.removeprefix(option) for word in arguments if word.startswith(option)
    }
