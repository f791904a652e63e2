"""A job that succeeds, and the environment of its ranks: two workers with two ranks each."""

from __future__ import annotations

import json
from typing import Any

import pytest

from e2e.access import wait_for
from e2e.namespace import HELD, RESTRICTED, Namespace

RANKS = 4
# Values that a shell, ssh or a hostfile without quoting would change.
VALUES = {
    "SPACES": "  two  words ",
    "QUOTES": """it's "quoted" `tick` \\ backslash \\n""",
    "DOLLAR": "$HOME ${HOME} $$(HOME)",
    "NEWLINES": "one\ntwo\n\nfour\n",
    "UNICODE": "grüße 你好 🎓",
    "EMPTY": "",
    "GLOB": "* ? [a-z] ; & | < > # !",
    "TAB": "a\tb",
    "LONG": "x" * 300,
}
SEEN = VALUES | {"DOLLAR": "$HOME ${HOME} $(HOME)", "FROM_SECRET": "a b'c\n$d", "POD_NAME": "probe-worker-"}
ARGS = ["", "a b", "it's", '"', "$HOME", "*", "ü", "-x", "--np", "line\nline", "\\", ";"]
PROBE = """
import json, os, socket, sys
run = "/run/horovodjob"
status = dict(line.split(":", 1) for line in open("/proc/self/status") if ":" in line)
def writable(path):
    try:
        open(os.path.join(path, f".probe-{os.getpid()}"), "w").close()
        return True
    except OSError:
        return False
names = json.loads(os.environ["PROBE_NAMES"])
shm = os.statvfs("/dev/shm")
sys.stdout.write("PROBE " + json.dumps({
    "rank": int(os.environ["OMPI_COMM_WORLD_RANK"]),
    "size": int(os.environ["OMPI_COMM_WORLD_SIZE"]),
    "host": socket.gethostname(),
    "address": socket.gethostbyname(socket.gethostname()),
    "env": {name: os.environ.get(name) for name in names},
    "generated": sorted(n for n in os.environ if n.startswith(("HOROVODJOB_", "AZ_BATCHAI_"))),
    "attempt": os.environ["HOROVODJOB_ATTEMPT"],
    "hostfile": open(os.environ["HOROVODJOB_HOSTFILE"]).read(),
    "batchai_hostfile": open(os.environ["AZ_BATCHAI_MPI_HOST_FILE"]).read(),
    "argv": sys.argv[1:],
    "uids": status["Uid"].split(),
    "capabilities": status["CapEff"].strip(),
    "seccomp": status["Seccomp"].strip(),
    "home": writable(os.path.expanduser("~")),
    "cwd": writable("."),
    "temp": writable(os.environ["AZ_BATCHAI_JOB_TEMP"]),
    "keys": sorted(os.listdir("/etc/horovodjob/mpi")) + sorted(os.listdir(run)),
    "token": os.path.exists("/var/run/secrets/kubernetes.io/serviceaccount"),
    "shm": shm.f_blocks * shm.f_frsize,
    "extra": open("/extra/made-by-init").read(),
}) + "\\n")
sys.stdout.flush()
"""
TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"team": "vision"}},
    "spec": {
        "initContainers": [
            {
                "name": "prepare",
                "image": "",
                "command": ["sh", "-c", "printf ready >/extra/made-by-init"],
                "volumeMounts": [{"name": "extra", "mountPath": "/extra"}],
                "securityContext": RESTRICTED,
            }
        ],
        "containers": [
            {"name": "worker", "volumeMounts": [{"name": "extra", "mountPath": "/extra"}]},
            {
                "name": "sidecar",
                "image": "",
                "command": ["sh", "-c", "trap exit TERM; while :; do sleep 0.2; done"],
                "securityContext": RESTRICTED,
            },
        ],
        "volumes": [{"name": "extra", "emptyDir": {}}],
    },
}


@pytest.fixture(scope="module")
def probes(module_namespace: Namespace) -> list[dict[str, Any]]:
    """The output of each rank of the job `probe`, in the order of the ranks; the job has succeeded."""
    namespace = module_namespace
    template = json.loads(json.dumps(TEMPLATE))
    for container in (template["spec"]["initContainers"][0], template["spec"]["containers"][1]):
        container["image"] = namespace.image
    env: list[dict[str, Any]] = [{"name": name, "value": value} for name, value in VALUES.items()]
    env.append({"name": "PROBE_NAMES", "value": json.dumps(list(SEEN))})
    env.append({"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}})
    namespace.apply(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "credentials", "namespace": namespace.name},
            "stringData": {"FROM_SECRET": SEEN["FROM_SECRET"]},
        },
        namespace.job(
            "probe",
            ["python3", "-c", PROBE, *ARGS],
            env=env,
            envFrom=[{"secretRef": {"name": "credentials"}}],
            worker={"replicas": 2, "slots": 2, "template": template},
            shmSize="80Mi",
        ),
        namespace.job("held", HELD),
    )
    namespace.wait_phase("probe", "Succeeded")
    found = [json.loads(line.partition("PROBE ")[2]) for line in namespace.output("probe") if "PROBE " in line]
    assert len(found) == RANKS
    return sorted(found, key=lambda one: int(one["rank"]))


def test_the_launcher_has_its_hosts_in_an_annotation_and_every_rank_runs_on_its_own(
    probes: list[dict[str, Any]], module_namespace: Namespace
) -> None:
    assert [one["rank"] for one in probes] == list(range(RANKS))
    assert {one["size"] for one in probes} == {RANKS}
    assert [one["host"] for one in probes] == ["probe-worker-0"] * 2 + ["probe-worker-1"] * 2
    hostfiles = {one["hostfile"] for one in probes} | {one["batchai_hostfile"] for one in probes}
    assert hostfiles == {"".join(f"{probes[rank]['address']} slots=2\n" for rank in (0, 2))}
    launcher = module_namespace.pods("probe")["probe-launcher"]
    assert launcher["metadata"]["annotations"]["horovodjob.dev/hosts"] == probes[0]["hostfile"]


def test_environment_and_arguments_reach_every_rank_byte_for_byte(probes: list[dict[str, Any]]) -> None:
    batch_ai = ("JOB_MOUNT_ROOT", "JOB_TEMP", "STDOUTERR_DIR", "MPI_HOST_FILE", "NUM_GPUS")
    wanted = {f"AZ_BATCHAI_{name}" for name in batch_ai}
    wanted |= {f"HOROVODJOB_{name}" for name in ("NAME", "NAMESPACE", "ATTEMPT", "HOSTFILE")}
    for one in probes:
        assert one["env"] == SEEN | {"POD_NAME": one["host"]}
        assert one["argv"] == ARGS
        assert wanted <= set(one["generated"])
        assert one["attempt"] == "1"
        assert (one["home"], one["cwd"], one["temp"]) == (True, True, True), "a rank can write there"
        assert one["shm"] == 80 * 1024 * 1024


def test_nothing_runs_as_root_or_with_a_capability_a_token_or_the_private_key(probes: list[dict[str, Any]]) -> None:
    for one in probes:
        assert (one["uids"], one["capabilities"], one["seccomp"]) == (["1000"] * 4, "0" * 16, "2")
        assert not one["token"]
        assert "ssh_host_ed25519_key" in one["keys"]
        assert "id_ed25519" not in one["keys"]


def test_a_template_adds_an_init_container_a_volume_and_a_sidecar(
    probes: list[dict[str, Any]], module_namespace: Namespace
) -> None:
    assert {one["extra"] for one in probes} == {"ready"}
    workers = [pod for pod in module_namespace.pods_ever("probe") if "worker" in pod["metadata"]["name"]]
    assert len(workers) == 2
    for worker in workers:
        assert worker["metadata"]["labels"]["team"] == "vision"
        assert [container["name"] for container in worker["spec"]["containers"]] == ["worker", "sidecar"]


def test_after_success_the_launcher_keeps_its_log_and_the_workers_are_deleted(
    probes: list[dict[str, Any]], module_namespace: Namespace
) -> None:
    wait_for("the workers are gone", lambda: list(module_namespace.pods("probe")) == ["probe-launcher"])
    assert module_namespace.status("probe")["exitCode"] == 0
    assert "mpirun ended with exit code 0" in module_namespace.log("probe-launcher", "launcher")


def test_the_launcher_rejects_hosts_without_the_key_of_the_job(
    probes: list[dict[str, Any]], module_namespace: Namespace
) -> None:
    namespace = module_namespace
    namespace.wait_phase("held", "Running")
    worker = namespace.pods("held")["held-worker-0"]["status"]["podIP"]
    ssh = "ssh -F /run/horovodjob/ssh_config -o ConnectTimeout=60 -o LogLevel=INFO"
    assert "works" in namespace.exec("held-launcher", "sh", "-c", f"{ssh} {worker} echo works")
    options = namespace.exec("held-launcher", "ssh", "-F", "/run/horovodjob/ssh_config", "-G", worker)
    assert "sntrup761" not in options, "each connection takes a tenth of a second of a processor"
    script = (
        "ssh-keygen -q -t ed25519 -N '' -f /tmp/other && "
        'printf "horovodjob %s\\n" "$(cut -d" " -f1,2 /tmp/other.pub)" >/tmp/known_hosts && '
        f"{ssh} -o UserKnownHostsFile=/tmp/known_hosts {worker} echo works 2>&1; echo code $?"
    )
    other = namespace.exec("held-launcher", "sh", "-c", script)
    nobody = f"{ssh} -o UserKnownHostsFile=/dev/null {worker} echo works 2>&1; echo code $?"
    for answer in (other, namespace.exec("held-launcher", "sh", "-c", nobody)):
        assert "Host key verification failed" in answer
        assert "works" not in answer
        assert "code 255" in answer
    namespace.release("held-worker-0")
    namespace.wait_phase("held", "Succeeded")
