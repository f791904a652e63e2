"""The start scripts, in a shell of this machine."""

import base64
import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
from importlib.resources import files
from pathlib import Path

import pytest

from horovodjob.api.constants import Role
from horovodjob_operator import start_scripts
from horovodjob_operator.domain.resources.launcher import launcher_pod
from horovodjob_operator.domain.resources.secret import scripts_secret
from horovodjob_operator.domain.resources.worker import worker_pod
from unit.domain.fake_cluster import training_job

SCRIPTS = Path(str(files("horovodjob_operator.start_scripts")))
ENVIRONMENT = SCRIPTS / "environment.sh"
# A preparation that installs a program, which prints its name and arguments.
INSTALL = "printf '#!/bin/sh\\necho \"{name} runs: $*\"' >{bin}/{name}; chmod 755 {bin}/{name}"
TOOLS = "sh cat cp chmod date env expr grep head id mkdir mkfifo mv printf pwd rm sed sleep tail tee touch tr"


def test_directories_for_logs_and_outputs_are_closed_to_other_groups(tmp_path: Path) -> None:
    logs, output = tmp_path / "experiments" / "logs", tmp_path / "models" / "best"
    variables = {"HOROVODJOB_LOGS": str(logs), "HOROVODJOB_POD": "pod", "HOROVODJOB_OUTPUTS": "MODEL"}
    variables |= {"AZ_BATCHAI_OUTPUT_MODEL": str(output), "PATH": "/usr/bin:/bin"}
    prepare = f". {ENVIRONMENT}; prepare_logs; prepare_outputs"
    subprocess.run(["sh", "-euc", prepare], env=variables, check=True)
    made = [logs.parent, logs, output.parent, output]
    assert [oct(path.stat().st_mode & 0o777) for path in made] == ["0o770"] * 4
    assert (logs / "execution-pod.log").stat().st_mode & 0o777 == 0o644


TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 8\nValueError: bad shape\n'
TQDM, KERAS = "\r 40%|####      | 4/10", "\r\x1b[1m5/10\x1b[0m ━━━━ 9ms/step" + 40 * "\b"


@pytest.mark.parametrize("bar", [TQDM, KERAS])
def test_the_last_lines_of_a_launcher_are_the_error_also_before_the_bars_of_ranks_that_still_run(bar: str) -> None:
    assert last_lines(1000 * TQDM + TRACEBACK + 1000 * bar) == TRACEBACK
    assert last_lines(1000 * bar) == ""
    assert last_lines(f"[1,1]<stderr>:{TRACEBACK}") == f"[1,1]<stderr>:{TRACEBACK}"


def test_the_last_lines_of_a_launcher_take_no_memory_for_a_line_without_an_end() -> None:
    assert last_lines((64 << 20) * "x", limit="ulimit -v 60000;") == 3072 * "x"


def last_lines(text: str, *, limit: str = "") -> str:
    """What the termination message gets of a stream."""
    command = ["sh", "-euc", f". {ENVIRONMENT}; {limit} last_lines 3072"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.fixture
def pod(tmp_path: Path) -> "Pod":
    """The start scripts with the directories of a pod below one of the test."""
    return Pod(tmp_path)


class Pod:
    """A container without MPI and ssh, whose preparation can install programs into a directory of PATH."""

    def __init__(self, root: Path) -> None:
        self.etc, self.run, self.bin = root / "etc", root / "run", root / "bin"
        (root / "hosts").mkdir()
        (root / "hosts" / "hosts").write_text("192.0.2.1 slots=1\n")
        for directory in (self.etc, self.run, self.bin, root / "temp"):
            directory.mkdir()
        paths = {
            "/etc/horovodjob/mpi": self.etc,
            "/etc/horovodjob/hosts": root / "hosts",
            "/run/horovodjob": self.run,
            "/dev/termination-log": root / "termination-log",
            "/usr/sbin/sshd": self.bin / "sshd",
            "mkdir -p /run/sshd": "true",
        }
        for script in SCRIPTS.glob("*.sh"):
            text = script.read_text()
            for path, replacement in paths.items():
                text = text.replace(path, str(replacement))
            (self.etc / script.name).write_text(text)
        for key in ("id_ed25519", "known_hosts", "ssh_host_ed25519_key", "authorized_keys"):
            (self.etc / key).touch()
        for program in TOOLS.split():
            (self.bin / program).symlink_to(shutil.which(program) or "")
        self.variables = {
            "PATH": str(self.bin),
            "HOME": str(root),
            "AZ_BATCHAI_JOB_TEMP": str(root / "temp"),
            "AZ_BATCHAI_STDOUTERR_DIR": str(root / "temp" / "out"),
            "HOROVODJOB_ADDRESS": "192.0.2.1",
            "HOROVODJOB_AS_WORKER": "1",
            "HOROVODJOB_ATTEMPT": "1",
            "HOROVODJOB_HOSTFILE": str(self.run / "hostfile"),
            "HOROVODJOB_MPI": "OpenMPI",
            "HOROVODJOB_POD": "pod",
            "HOROVODJOB_PREPARATION_TIMEOUT": "60",
            "HOROVODJOB_SLOTS": "1",
            "HOROVODJOB_SSH_PORT": "2222",
            "HOROVODJOB_SSH_TIMEOUT": "1",
        }

    def install(self, *names: str) -> str:
        """A preparation that installs these programs."""
        return "; ".join(INSTALL.format(name=name, bin=self.bin) for name in names)

    def start(self, script: str, *arguments: str) -> str:
        """Runs a script until its end; all its output."""
        shutil.rmtree(self.run)
        self.run.mkdir()
        output = self.run / "output"
        with output.open("w") as file:
            process = subprocess.Popen(
                ["sh", str(self.etc / script), *arguments],
                env=self.variables,
                cwd=self.run,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        try:
            process.wait(60)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        return output.read_text()


def test_a_launcher_that_hosts_ranks_finds_the_mpi_that_its_preparation_installs(pod: Pod) -> None:
    assert "the image has no ssh" in pod.start("launcher.sh", "true", "./train")
    output = pod.start("launcher.sh", pod.install("ssh", "mpirun"), "./train")
    assert "mpirun runs: -np 1 " in output, output


def test_a_launcher_starts_few_processes_while_it_waits_for_nodes(pod: Pod, tmp_path: Path) -> None:
    hosts, pauses = tmp_path / "hosts" / "hosts", tmp_path / "pauses"
    hosts.write_text("")
    sleep = pod.bin / "sleep"
    ready = f"printf '192.0.2.1 slots=1\\n' >{hosts}"
    wait = f'case $1 in 0.1) ;; 0.5) {ready} ;; *) exec {sleep.readlink()} "$1" ;; esac'
    sleep.unlink()
    sleep.write_text(f'#!/bin/sh\n{wait}\necho "$1" >>{pauses}\n')
    sleep.chmod(0o755)
    assert "mpirun runs: -np 1 " in pod.start("launcher.sh", pod.install("ssh", "mpirun"), "./train")
    assert 100 <= pauses.read_text().split().index("0.5") <= 110  # the preparation has some, too


def test_a_worker_finds_the_ssh_server_that_its_preparation_installs(pod: Pod) -> None:
    assert "the image has no sshd" in pod.start("worker.sh", "true")
    output = pod.start("worker.sh", pod.install("sshd"))
    assert "sshd runs: -D -e" in output, output


def test_mpi_can_be_in_a_directory_that_is_not_in_the_path(pod: Pod) -> None:
    site = pod.etc / "site"
    pod.variables["HOROVODJOB_MPI_PREFIX"] = str(site)
    install = pod.install("ssh") + f"; mkdir -p {site}/bin; {INSTALL.format(name='mpirun', bin=site / 'bin')}"
    output = pod.start("launcher.sh", install, "./train")
    assert "mpirun runs: -np 1 " in output, output


def test_the_daemons_of_mpi_on_a_worker_are_found_in_that_directory(tmp_path: Path) -> None:
    variables = {"HOROVODJOB_MPI_PREFIX": "/opt/site", "LD_LIBRARY_PATH": "/usr/lib/x", "PATH": "/usr/bin:/bin"}
    save = f". {ENVIRONMENT}; run={tmp_path}; save_environment; cat {tmp_path}/environment"
    saved = subprocess.run(["sh", "-euc", save], env=variables, check=True, capture_output=True, text=True).stdout
    assert "PATH='/opt/site/bin:/usr/bin:/bin'" in saved
    assert "LD_LIBRARY_PATH='/opt/site/lib:/usr/lib/x'" in saved


OTHER = {"train.lr": "0.1", "a-b": "it's\ntwo $HOME `x`", "empty.x": ""}


def words_of(run: Path, shell: list[str]) -> str:
    """What a start script saves about a container with variables that a shell cannot have."""
    variables = {"PATH": "/usr/bin:/bin", "GOOD": "x\nnot.one=1"} | OTHER
    scripts = {"a.sh": "", "b.py": ""}
    for name, text in scripts.items():
        (run / name).write_text(text)
    # As Kubernetes replaces $$ in a command.
    start = start_scripts.START.replace("$$", "$").replace("/run/horovodjob", str(run))
    command = [*shell, "-c", start, start_scripts.digest(scripts), str(run / "a.sh")]
    subprocess.run(command, env=variables, check=True)
    return (run / "other_variables").read_text()


@pytest.mark.parametrize("shell", [["dash"], ["bash", "--posix"]], ids=lambda shell: shell[0])
def test_a_rank_has_variables_with_names_that_a_shell_cannot_have(tmp_path: Path, shell: list[str]) -> None:
    words_of(tmp_path, shell)
    rank = tmp_path / "rank.sh"
    rank.write_text((SCRIPTS / "rank.sh").read_text().replace("/run/horovodjob", str(tmp_path)))
    program = "import json, os; print(json.dumps(dict(os.environ)))"
    command = [*shell, str(rank), "+python3", "+-c", f"+{program}"]
    environment = {"PATH": os.environ["PATH"], "GOOD": "y"}
    printed = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    found = json.loads(printed)
    assert {name: found.get(name) for name in OTHER} == OTHER
    assert (found["GOOD"], "not.one" in found) == ("y", False)


@pytest.mark.parametrize("request_", ["horovodjob-rank python3 -c {}", "exec python3 -c {}"], ids=["elastic", "daemon"])
def test_a_session_has_them_too(tmp_path: Path, request_: str) -> None:
    words_of(tmp_path, ["dash"])
    (tmp_path / "environment").write_text(f"export HOROVODJOB_WORKDIR={tmp_path} HOROVODJOB_UMASK=022\n")
    session = tmp_path / "session.sh"
    session.write_text((SCRIPTS / "session.sh").read_text().replace("/run/horovodjob", str(tmp_path)))
    program = shlex.quote("import json, os; print(json.dumps(dict(os.environ)))")
    environment = {"PATH": os.environ["PATH"], "SSH_ORIGINAL_COMMAND": request_.format(program)}
    with subprocess.Popen(["dash", str(session)], env=environment, stdin=-1, stdout=-1, text=True) as process:
        assert process.stdout
        assert process.stdin
        found = json.loads(process.stdout.readline())
        process.stdin.close()
    assert {name: found.get(name) for name in OTHER} == OTHER


@pytest.mark.parametrize(
    "planted",
    [
        {"launcher.sh": "echo stolen"},
        {"another.sh": "echo stolen"},
        {"elastic.py": "print()"},
        # The same bytes in order, with another boundary between two files.
        {"a.sh": "one\ntwo\n", "b.sh": "three\n"},
    ],
    ids=lambda files: ",".join(files),
)
@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_a_pod_runs_no_scripts_that_the_operator_did_not_create(
    shell: str, planted: dict[str, str], tmp_path: Path
) -> None:
    genuine = {**start_scripts.SCRIPTS, "launcher.sh": "echo genuine $1", "a.sh": "one\n", "b.sh": "two\nthree\n"}
    digest, variables = start_scripts.digest(genuine), {"PATH": os.environ["PATH"], "LC_ALL": "en_US.UTF-8"}
    for name, text in genuine.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "id_ed25519").touch()
    command = [shell, "-c", start_scripts.START, digest, str(tmp_path / "launcher.sh"), "with arguments"]

    def start() -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, env=variables, capture_output=True, text=True, check=False)

    assert start().stdout == "genuine with arguments\n"
    for name, text in planted.items():
        (tmp_path / name).write_text(text)
    done = start()
    assert (done.returncode, done.stdout) == (1, "")
    assert f"the Secret horovodjob-scripts-{digest} does not have the start scripts of the operator" in done.stderr


def test_an_image_without_sha256sum_is_named(tmp_path: Path) -> None:
    command = ["/bin/sh", "-c", start_scripts.START, start_scripts.VERSION, str(tmp_path / "launcher.sh")]
    done = subprocess.run(command, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False)
    assert (done.returncode, "the image has no sha256sum" in done.stderr) == (1, True)


@pytest.mark.parametrize("role", Role)
def test_the_command_of_a_pod_has_the_digest_of_the_scripts_that_it_mounts(role: Role) -> None:
    job = training_job()
    pod = launcher_pod(job, 1, "", "") if role is Role.LAUNCHER else worker_pod(job, 0, 1, "")
    _, _, start, digest, path = pod["spec"]["containers"][0]["command"]
    assert (start, path) == (start_scripts.START, f"/etc/horovodjob/mpi/{role.value}.sh")
    sources = next(each["projected"]["sources"] for each in pod["spec"]["volumes"] if "projected" in each)
    assert {"secret": {"name": f"horovodjob-scripts-{digest}"}} in sources
    mounted = {key: base64.b64decode(text).decode() for key, text in scripts_secret("team")["data"].items()}
    assert start_scripts.digest(mounted) == digest


@pytest.mark.parametrize(
    ("answer", "field"),
    [("Connection refused", "ended"), ("Connection reset by peer", "ended"), ("Connection timed out", "unreachable")],
)
def test_the_launcher_reports_workers_that_do_not_answer_after_a_failure(pod: Pod, answer: str, field: str) -> None:
    hosts = pod.etc.parent / "hosts" / "hosts"
    hosts.write_text("192.0.2.1 slots=1\n192.0.2.2 slots=1\n192.0.2.3 slots=1\n")
    ssh = pod.bin / "ssh"
    refuses = f'*192.0.2.2*true*) echo "ssh: connect to host 192.0.2.2 port 2222: {answer}" >&2; exit 255'
    ssh.write_text(f'#!/bin/sh\ncase "$*" in {refuses} ;; esac\n')
    (pod.bin / "mpirun").write_text("#!/bin/sh\nexit 1\n")
    for program in (ssh, pod.bin / "mpirun"):
        program.chmod(0o755)
    output = pod.start("launcher.sh", "true", "./train")
    message = json.loads((pod.etc.parent / "termination-log").read_text())
    assert message.pop(field) == "192.0.2.2 ", output
    assert set(message.values()) == {""}


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("echo ended", ""),
        ("echo ended; echo running", "ranks have not run to their end"),
        ("", "no rank has run to its end"),
        ("exit 127", ""),
    ],
    ids=["ended", "unfinished", "never-begun", "worker-of-an-earlier-version"],
)
def test_exit_code_0_of_mpirun_is_checked_with_the_workers(pod: Pod, answer: str, words: str) -> None:
    (pod.etc.parent / "hosts" / "hosts").write_text("192.0.2.2 slots=1\n")
    (pod.bin / "ssh").write_text(f'#!/bin/sh\ncase "$*" in *192.0.2.2*ranks) {answer} ;; esac\n')
    (pod.bin / "mpirun").write_text("#!/bin/sh\n")
    for program in (pod.bin / "ssh", pod.bin / "mpirun"):
        program.chmod(0o755)
    output = pod.start("launcher.sh", "true", "./train")
    assert (f"{words}, so the exit code is 1" in output) == bool(words), output
    message = (pod.etc.parent / "termination-log").read_text().strip()
    assert message == "mpirun ended with exit code 0" + (f", but {words}" if words else "")


@pytest.mark.parametrize(("code", "state"), [(0, "ended"), (3, "running")])
def test_a_rank_that_runs_to_its_end_leaves_a_mark(pod: Pod, code: int, state: str) -> None:
    (pod.run / "ranks").mkdir()
    environment = {"PATH": str(pod.bin), "OMPI_COMM_WORLD_RANK": "7"}
    command = ["sh", str(pod.etc / "rank.sh"), "+sh", "+-c", f"+exit {code}"]
    assert subprocess.run(command, env=environment, check=False).returncode == code
    assert (pod.run / "ranks" / "7").read_text() == f"{state}\n"
