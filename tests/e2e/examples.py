"""Examples of jobs, which run as their first lines say: as they stand, but for the image."""

from __future__ import annotations

import os
import re
import shutil
import sys
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

from e2e.install import ROOT, Target
from e2e.namespace import Namespace
from horovodjob_release.version import project_version
from support.tutorial import page

EXAMPLES = ROOT / "manifests" / "examples"
IMAGE = "example.azurecr.io/horovodjob/trainer:" + project_version(ROOT)
COMMAND = re.compile(r"^#   (\S+ .+)$", re.MULTILINE)


class User:
    """A user at a shell, whose kubeconfig has the namespace of a test."""

    def __init__(self, namespace: Namespace, target: Target, directory: Path) -> None:
        self.folder = directory
        programs = directory / "bin"
        programs.mkdir()
        (programs / "kubectl").symlink_to(target.kubectl().program)
        (programs / "hvj").symlink_to(Path(sys.executable).with_name("hvj"))
        path = os.pathsep.join([str(programs), os.environ["PATH"]])
        kubeconfig = directory / "kubeconfig"
        shutil.copy(target.kubeconfig, kubeconfig)
        self._environment = {"PATH": path, "HOME": str(directory), "KUBECONFIG": str(kubeconfig)}
        self.run(f"kubectl config set-context --current --namespace={namespace.name}")

    def run(self, script: str) -> str:
        """The output of a script in the folder of the user. Raises CalledProcessError."""
        return page.run_script(script, self.folder, self._environment)


class Examples(User):
    """A copy of the examples for a namespace, and what their commands print."""

    def __init__(self, namespace: Namespace, target: Target, directory: Path, image: str) -> None:
        super().__init__(namespace, target, directory)
        self.folder, self._image = directory / "examples", image
        shutil.copytree(EXAMPLES, self.folder)
        self._started: dict[str, Future[str]] = {}

    def change(self, name: str, *changes: tuple[str, str]) -> None:
        """Replaces text in the manifest of an example, which has to be there."""
        file = self.folder / f"{name}.yaml"
        text = file.read_text()
        for old, new in changes:
            assert old in text, f"{name}.yaml has no {old!r}"
            text = text.replace(old, new)
        file.write_text(text)

    def start(self, pool: ThreadPoolExecutor, *names: str) -> None:
        """Begins with the commands of examples, one after the other."""
        before: Future[str] | None = None
        for name in names:
            self.change(name, (IMAGE, self._image))
            before = self._started[name] = pool.submit(self._run_after, before, self.script(name))

    def script(self, name: str) -> str:
        """The commands in the first lines of an example; hvj gets the image that operators have for other jobs."""
        commands = COMMAND.findall((self.folder / f"{name}.yaml").read_text())
        return "\n".join(commands).replace("hvj cp ", f"hvj cp --image {self._image} ")

    def _run_after(self, before: Future[str] | None, script: str) -> str:
        if before:
            wait([before])
        return self.run(script)

    def output(self, name: str) -> str:
        """What the commands of an example printed. Raises CalledProcessError if one of them failed."""
        return self._started[name].result()
