"""The stages of `make test`, each on its own or all in a row with a summary of what each took.

    python3 tests/stages.py [environment|lint|unit|apiserver|trainer|e2e|all]

All in a row, the local cluster's binaries and the images are built, and the trainer tested, beside the other stages up
to the end-to-end tests, which have the machine to themselves. With KUBECONFIG set, these use that cluster and the
images of IMAGE_REGISTRY. CLUSTER_NAME chooses among local clusters, which can run side by side.
Standard library only: it runs before anything of the project is installed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CACHE = Path(os.environ.get("HOROVODJOB_CACHE") or Path.home() / ".cache" / "horovodjob").absolute()
CLUSTER = ROOT / "tests" / "cluster"
CLUSTER_NAME = os.environ.get("CLUSTER_NAME", "main")
LOGS = CACHE / "logs"
VENV = ROOT / ".venv"
CA_BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
PYTHONS = ("python3.11", "python3.12")

# Horovod has no wheels: these are what it is compiled with and runs on.
HOROVOD_PACKAGES = ("g++", "make", "cmake", "openmpi-bin", "libopenmpi-dev")
# A share that a test takes away.
E2E_PACKAGES = ("fuse-overlayfs",)
NEEDS_APISERVER = ("tests/api", "tests/handling")
NEEDS_TENSORFLOW = ("tests/trainer",)
NEEDS_CLUSTER = ("tests/cluster", "tests/e2e")


class StageError(Exception):
    """A stage did not pass; the message is for the person who ran it."""


@dataclass(slots=True)
class Summary:
    """What ran, how long it took and how it ended."""

    lines: list[tuple[str, float, str]] = field(default_factory=list)
    failed: bool = False

    def run(self, name: str, stage: Callable[[], None], *, beside: str = "") -> bool:
        """Runs a stage and remembers it; an error is told, not raised."""
        started = time.monotonic()
        ended = "passed"
        try:
            stage()
        except (StageError, subprocess.CalledProcessError) as error:
            print(f"\n{name}: {error}", file=sys.stderr, flush=True)
            ended, self.failed = "FAILED", True
        self.lines.append((name, time.monotonic() - started, f"{ended}{beside}"))
        return ended == "passed"

    def skip(self, name: str, why: str) -> None:
        """Remembers a stage that could not run."""
        self.lines.append((name, 0, f"not run: {why}"))

    def show(self, started: float) -> None:
        """Prints the summary."""
        print("\nstage                      seconds")
        for name, seconds, ended in self.lines:
            print(f"  {name:<24} {seconds:7.1f}  {ended}")
        print(f"  {'all':<24} {time.monotonic() - started:7.1f}  {'FAILED' if self.failed else 'passed'}", flush=True)


def title(text: str) -> None:
    """A line that says what begins."""
    print(f"\n== {text}", flush=True)


def call(*command: str | Path, env: dict[str, str] | None = None) -> None:
    """Runs a command with its output visible. Raises StageError if it fails."""
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=ROOT, env=env or environment(), stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        shown = " ".join(word.replace(f"{ROOT}/", "") for word in words[:6])
        raise StageError(f"`{shown}{' ...' if len(words) > 6 else ''}` ended with {done.returncode}")


def environment() -> dict[str, str]:
    """The environment of all commands: the project's own Python first, and this machine's certificates."""
    path = os.pathsep.join([str(VENV / "bin"), str(CACHE / "bin"), os.environ.get("PATH", "")])
    certificates = {"SSL_CERT_FILE": str(CA_BUNDLE), "PIP_CERT": str(CA_BUNDLE)} if CA_BUNDLE.exists() else {}
    return {
        **certificates,
        **os.environ,
        "PATH": path,
        "MYPYPATH": "operator:trainer:tests:benchmarks",
        "UV_CACHE_DIR": str(CACHE / "uv"),
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_PROJECT_ENVIRONMENT": str(VENV),
        "VIRTUAL_ENV": "",
    }


# ---- the Python environment -------------------------------------------------------------------------------


def prepare_environment() -> None:
    """Makes .venv what uv.lock says; Horovod is compiled if no build of it is in the cache."""
    title("Python environment from uv.lock (the first time, Horovod is compiled: some minutes)")
    python = find_python()
    install_packages(HOROVOD_PACKAGES if not importable("horovod") else ())
    call(
        *(find_uv(python), "sync", "--frozen", "--python", python),
        *("--extra", "operator", "--extra", "trainer"),
    )


def find_python() -> str:
    """A Python that TensorFlow has wheels for, with its headers."""
    for name in PYTHONS:
        path = shutil.which(name)
        if path and subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0:
            real = subprocess.run(
                [path, "-c", "import sys; print(sys.executable)"], capture_output=True, text=True, check=True
            ).stdout.strip()
            if real.startswith("/usr/bin/"):
                install_packages((f"{name}-dev", f"{name}-venv"))
            return real
    raise StageError(f"{' or '.join(PYTHONS)} is needed: TensorFlow 2.18 has no wheels for others")


def find_uv(python: str) -> Path:
    """uv in the version that the Dockerfile pins, installed into the cache once."""
    found = re.search(r"^ARG UV_VERSION=(\S+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    if not found:
        raise StageError("the Dockerfile does not say which version of uv is wanted")
    folder = CACHE / "tools" / f"uv-{found[1]}"
    with locked(CACHE / "tools.lock"):
        if not (folder / "done").exists():
            shutil.rmtree(folder, ignore_errors=True)
            call(python, "-m", "venv", folder)
            call(folder / "bin/pip", "install", "--quiet", "--disable-pip-version-check", f"uv=={found[1]}")
            (folder / "done").touch()
    return folder / "bin" / "uv"


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds off others that use the same lock."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def importable(package: str) -> bool:
    """Whether .venv has a package."""
    return any(VENV.glob(f"lib/python3.*/site-packages/{package}/__init__.py"))


def install_packages(wanted: tuple[str, ...]) -> None:
    """Installs the Debian packages that are missing."""
    missing = [name for name in wanted if not installed(name)]
    if not missing:
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise StageError(f"these packages must be installed first: {' '.join(missing)}")
    print(f"installing {' '.join(missing)}", flush=True)
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    apt = ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=600"]
    subprocess.run([*apt, "update"], env=env, capture_output=True, check=False)
    LOGS.mkdir(parents=True, exist_ok=True)
    with (LOGS / "apt.log").open("w") as log:
        command = [*apt, "install", "-y", "--no-install-recommends", *missing]
        if subprocess.run(command, env=env, stdout=log, stderr=log, check=False).returncode:
            raise StageError(f"apt-get could not install {' '.join(missing)}: {LOGS / 'apt.log'}")


def installed(package: str) -> bool:
    """Whether Debian has a package installed; elsewhere nothing is known."""
    if not shutil.which("dpkg-query"):
        return True
    command = ["dpkg-query", "--show", "--showformat=${db:Status-Status}", package]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout == "installed"


# ---- stages -----------------------------------------------------------------------------------------------


def lint() -> None:
    """Style, types, architecture contracts, shell scripts: all of them, even if one finds something."""
    scripts = [path for path in tracked() if path.endswith(".sh") or path == ".ci/run"]
    code = [
        name
        for name in ("operator", "trainer", "tests", "demo", "benchmarks", "images")
        if any((ROOT / name).rglob("*.py"))
    ]
    checks: dict[str, list[str]] = {
        "ruff check": ["ruff", "check", "."],
        "ruff format": ["ruff", "format", "--check", "."],
        "mypy": ["mypy", *code],
        "import contracts": ["lint-imports"],
        "shellcheck": ["shellcheck", "-x", *scripts],
    }
    failed = []
    for name, command in checks.items():
        title(f"lint: {name}")
        try:
            call(VENV / "bin" / command[0], *command[1:])
        except StageError:
            failed.append(name)
    if failed:
        raise StageError(f"{', '.join(failed)} found something")


def tracked() -> list[str]:
    """The files of the project; without git, all that are not hidden."""
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return [path for path in done.stdout.splitlines() if (ROOT / path).exists()]
    return [str(path.relative_to(ROOT)) for path in ROOT.rglob("*.sh") if ".venv" not in path.parts] + [".ci/run"]


def pytest(*arguments: str) -> None:
    """Runs pytest with its output visible."""
    call(VENV / "bin" / "python", "-m", "pytest", *arguments)


def unit() -> None:
    """Everything that needs neither an API server nor TensorFlow nor a cluster."""
    title("unit tests")
    others = (*NEEDS_APISERVER, *NEEDS_TENSORFLOW, *NEEDS_CLUSTER)
    pytest("tests", *(f"--ignore={path}" for path in others))


def pytest_in(what: str, folders: tuple[str, ...]) -> Callable[[], None]:
    """A stage that runs the tests of some folders."""

    def stage() -> None:
        title(what)
        if there := [path for path in folders if (ROOT / path).exists()]:  # pytest takes none for all
            pytest(*there)

    return stage


apiserver = pytest_in("tests against a real API server", NEEDS_APISERVER)
trainer = pytest_in("trainer tests: real ranks under mpirun", NEEDS_TENSORFLOW)


def e2e() -> None:
    """Everything on a cluster with nodes."""
    if not uses_given_cluster():
        install_packages(E2E_PACKAGES)
    pytest_in("end-to-end tests: real pods", NEEDS_CLUSTER)()


def cluster(*arguments: str) -> None:
    """A command of the local cluster."""
    call(sys.executable, CLUSTER, "--name", CLUSTER_NAME, *arguments)


def cluster_runs() -> bool:
    """Whether the local cluster is up and healthy."""
    command = [sys.executable, str(CLUSTER), "--name", CLUSTER_NAME, "status"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def uses_given_cluster() -> bool:
    """Whether KUBECONFIG names another cluster than the project's own."""
    given = os.environ.get("KUBECONFIG", "")
    folder = "cluster" if CLUSTER_NAME == "main" else f"cluster-{CLUSTER_NAME}"
    if given == str(CACHE / folder / "kubeconfig"):
        return False
    if given and not os.environ.get("IMAGE_REGISTRY"):
        raise StageError("KUBECONFIG is set, so IMAGE_REGISTRY has to name the registry with the images")
    return bool(given)


# ---- all of them ------------------------------------------------------------------------------------------


class Beside(threading.Thread):
    """Stages that run one after the other beside those in the foreground, with what these leave of the processors.

    What waits for clocks and clusters leaves much, and is not disturbed: the output goes to logs, the priority is low.
    """

    def __init__(self, summary: Summary, steps: dict[str, list[str]]) -> None:
        super().__init__(daemon=True)
        self.summary = summary
        self.steps = steps
        self.passed = dict.fromkeys(steps, False)
        self.ended = {name: threading.Event() for name in steps}

    def run(self) -> None:
        """Runs all, whatever the one before ended with."""
        LOGS.mkdir(parents=True, exist_ok=True)
        for name in self.steps:
            self.log(name).unlink(missing_ok=True)
        try:
            for name, command in self.steps.items():
                self.passed[name] = self.summary.run(name, partial(self.step, name, command), beside=", beside others")
                self.ended[name].set()
        finally:  # nobody is to wait for what can no more begin
            for ended in self.ended.values():
                ended.set()

    def step(self, name: str, command: list[str]) -> None:
        """Runs one. Raises StageError with its last lines."""
        nice = ["nice", "-n", "19", *command]
        with self.log(name).open("w") as log:
            done = subprocess.run(
                nice, cwd=ROOT, env=environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False
            )
        if done.returncode:
            raise StageError("\n".join([*self.lines(name)[-25:], f"its whole output: {self.log(name)}"]))

    def wait(self, *names: str) -> None:
        """Shows how far they are until they have ended."""
        for name in names:
            while not self.ended[name].wait(timeout=15):
                print(f"{name}: {(self.lines(name) or ['not begun'])[-1][:120]}", flush=True)

    def log(self, name: str) -> Path:
        """Where the output of a step goes."""
        return LOGS / f"{name.replace(' ', '-')}.log"

    def lines(self, name: str) -> list[str]:
        """The output of a step, as far as it is there."""
        return self.log(name).read_text(errors="replace").splitlines() if self.log(name).exists() else []


def everything() -> int:
    """All stages; those that can run do so even if another has failed."""
    started = time.monotonic()
    summary = Summary()
    given = uses_given_cluster()
    title("what this machine needs")
    if not summary.run("prerequisites", lambda: cluster("check")):
        return finish(summary, started)
    if not summary.run("environment", prepare_environment):
        return finish(summary, started)
    builds = {"cluster binaries": [sys.executable, str(CLUSTER), "build"]}
    if not given:
        builds["images"] = [sys.executable, str(CLUSTER / "images.py"), "build"]
    steps = builds | {"trainer": [sys.executable, str(ROOT / "tests" / "stages.py"), "trainer"]}
    beside = Beside(summary, steps)
    title(f"{', '.join(steps)}: beside the next stages, with their output in {LOGS}")
    beside.start()
    summary.run("lint", lint)
    summary.run("unit", unit)
    summary.run("waiting for binaries", lambda: beside.wait("cluster binaries"))
    if beside.passed["cluster binaries"]:
        summary.run("apiserver", apiserver)
    else:
        summary.skip("apiserver", "the cluster's binaries are missing")
    summary.run("waiting for trainer", lambda: beside.wait(*steps))
    print("\n".join(beside.lines("trainer")), flush=True)
    if given:
        summary.run("e2e", e2e)
    elif all(beside.passed[build] for build in builds):
        local_end_to_end(summary)
    else:
        summary.skip("e2e", "a build failed")
    return finish(summary, started)


def local_end_to_end(summary: Summary) -> None:
    """End-to-end tests on the local cluster, which is left as it was found, unless there is something to look at."""
    ran_before = cluster_runs()

    def up() -> None:
        title("local cluster")
        cluster("up")
        call(sys.executable, CLUSTER / "images.py", "load")

    if not summary.run("cluster up", up):
        summary.skip("e2e", "the cluster is not up")
        return
    passed = summary.run("e2e", e2e)
    if not ran_before and (passed or os.environ.get("CI")):
        summary.run("cluster down", lambda: cluster("down"))


def finish(summary: Summary, started: float) -> int:
    """Shows the summary and gives the exit status."""
    summary.show(started)
    return 1 if summary.failed else 0


STAGES: dict[str, Callable[[], None]] = {
    "environment": prepare_environment,
    "lint": lint,
    "unit": unit,
    "apiserver": apiserver,
    "trainer": trainer,
    "e2e": e2e,
}


def main() -> int:
    """Runs what the command line names."""
    wanted = sys.argv[1] if len(sys.argv) > 1 else "all"
    if wanted not in (*STAGES, "all"):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        if wanted == "all":
            return everything()
        STAGES[wanted]()
    except StageError as error:
        print(f"\n{wanted}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
