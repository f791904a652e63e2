"""A distributed training job from nothing: cluster, images, operator, job, and what became of it.

Without KUBECONFIG everything happens on the local cluster, which is started when it is not running. With
KUBECONFIG set it happens on that cluster, with images from IMAGE_REGISTRY. Each step looks at what is there
first, so running it again is quick, and a run that was interrupted needs no cleaning up.
Standard library only: it runs before anything of the project is installed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CACHE = Path(os.environ.get("HOROVODJOB_CACHE") or Path.home() / ".cache" / "horovodjob").absolute()
CLUSTER = ROOT / "localcluster"
STAGES = ROOT / "tests" / "stages"
# Which local cluster, should there be several.
CLUSTER_NAME = os.environ.get("CLUSTER_NAME", "main")
EXAMPLE = ROOT / "manifests" / "examples" / "digits.yaml"
CHART = ROOT / "charts" / "horovodjob-operator"
SYSTEM = "horovodjob-system"
RELEASE = "horovodjob-operator"
NAMESPACE = "horovodjob-demo"
JOB = "digits"
CLAIM = "training-data"
MODEL = "saved_models/keras_digits_trained_model.h5"
# The user that the trainer image runs as; a directory of the host gets no fsGroup.
IMAGE_UID = 1000
TRAINING_SECONDS = 1800
# Reasons that no time cures by itself, and how long they may last all the same.
HOPELESS = ("ImagePullFailed", "InvalidSpec", "NameConflict")
HOPELESS_SECONDS = 30
POLL_SECONDS = 0.5
# TensorFlow's remarks about the processor, which nobody at a demo needs.
NOISE = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: [IW] |^To enable the following instructions")
ACCURACY = re.compile(r"Test accuracy: ([\d.]+)")
STARTED = time.monotonic()


class DemoError(Exception):
    """The demo cannot continue; the message is one sentence for the user."""


def say(message: str = "") -> None:
    """One line, with the seconds since the start."""
    print(f"{time.monotonic() - STARTED:7.1f}s  {message}".rstrip(), flush=True)


@dataclass(frozen=True, slots=True)
class Target:
    """The cluster that the demo runs on."""

    kubeconfig: str
    kubectl_program: str
    helm_program: str
    local: bool

    def kubectl(self, *arguments: str, given: str | None = None) -> str:
        """What kubectl prints. Raises DemoError with kubectl's own words."""
        return self._run(self.command(*arguments), given)

    def helm(self, *arguments: str) -> str:
        """What Helm prints. Raises DemoError with Helm's own words."""
        return self._run([self.helm_program, *arguments])

    def _run(self, command: list[str], given: str | None = None) -> str:
        done = subprocess.run(command, input=given, env=self.env, capture_output=True, text=True, check=False)
        if done.returncode:
            words = done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"]
            raise DemoError(f"{Path(command[0]).name} {' '.join(command[1:4])}: {words[-1]}")
        return done.stdout

    def command(self, *arguments: str) -> list[str]:
        """A kubectl command line."""
        return [self.kubectl_program, *arguments]

    @property
    def env(self) -> dict[str, str]:
        return {**os.environ, "KUBECONFIG": self.kubeconfig}

    def apply(self, *objects: dict[str, Any]) -> None:
        """Applies objects."""
        self.kubectl("apply", "-f", "-", given=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))

    def get(self, *arguments: str) -> dict[str, Any] | None:
        """An object or a list, or nothing where there is none."""
        text = self.kubectl("get", *arguments, "--ignore-not-found", "-o", "json")
        found: dict[str, Any] | None = json.loads(text) if text.strip() else None
        return found


def target() -> Target:
    """Where the demo runs, with what it needs there checked."""
    folder = "cluster" if CLUSTER_NAME == "main" else f"cluster-{CLUSTER_NAME}"
    own = str(CACHE / folder / "kubeconfig")
    given = os.environ.get("KUBECONFIG", "")
    if given == own:  # the kubeconfig that an earlier run printed for export
        given = ""
    if given and not any(Path(path).exists() for path in given.split(os.pathsep)):
        raise DemoError(f"KUBECONFIG names {given}, which does not exist")
    if given and not os.environ.get("IMAGE_REGISTRY"):
        raise DemoError("KUBECONFIG is set, so IMAGE_REGISTRY has to name the registry with operator and trainer image")
    if not given and os.geteuid():
        raise DemoError("a local cluster needs root: use sudo, or set KUBECONFIG and IMAGE_REGISTRY for another one")
    if not given:
        # The binaries and the images in parallel: the first time, both are compiled.
        run_step("the cluster's binaries and the images", [sys.executable, str(STAGES), "builds"])
        run_step("local cluster", [sys.executable, str(CLUSTER), "--name", CLUSTER_NAME, "up"])
    return Target(given or own, program("kubectl"), program("helm4", "helm"), local=not given)


def program(built: str, on_path: str = "") -> str:
    """The program that this project has built, else the one on PATH, which can have another name."""
    own = CACHE / "bin" / built
    found = str(own) if own.exists() else shutil.which(on_path or built)
    if not found:
        raise DemoError(f"there is no {on_path or built} on PATH")
    return found


def run_step(what: str, command: list[str]) -> None:
    """Runs one of the project's own programs, which shows its progress itself."""
    say(f"== {what}")
    if subprocess.run(command, check=False).returncode:
        raise DemoError(f"{what}: it did not work, the lines above say why")


def images(on: Target) -> dict[str, str]:
    """References of the two images, built and in the cluster's store where it is local."""
    say("== images")
    command = [sys.executable, str(CLUSTER / "images"), "load" if on.local else "names", "operator", "trainer"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise DemoError("images: it did not work, the lines above say why")
    return {role: entry["image"] for role, entry in json.loads(done.stdout).items()}


def install_operator(on: Target, image: str, trainer: str) -> None:
    """Installs the chart with this image, and that of jobs without one, and waits until the operator is ready."""
    say(f"== operator {image}: Helm release {RELEASE} in {SYSTEM}")
    on.apply(restricted_namespace(SYSTEM))
    repository, _, tag = image.rpartition(":")
    values = f"image.repository={repository},image.tag={tag},replicas=1,jobDefaults.image={trainer}"
    # On the local cluster, what kubectl has applied from the manifests becomes part of the release. Not a Deployment:
    # its selector cannot change.
    adoption = ("--take-ownership", "--force-conflicts") if on.local else ()
    install = ("upgrade", "--install", RELEASE, str(CHART), "--namespace", SYSTEM, *adoption)
    try:
        on.helm(*install, "--set", values, "--wait", "--timeout=120s")
    except DemoError as error:
        pods = (on.get("-n", SYSTEM, "pods") or {"items": []})["items"]
        raise DemoError(f"{error}; {pods_line(pods)}") from error
    say(f"operator ready: {SYSTEM}/{RELEASE}")


def restricted_namespace(name: str) -> dict[str, Any]:
    """A namespace at Pod Security restricted."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def prepare_namespace(on: Target) -> Path | None:
    """Makes the namespace and the volume; gives the volume's directory where that is on this machine."""
    say(f"== namespace {NAMESPACE}, Pod Security restricted")
    wait_while_terminating(on)
    on.apply(restricted_namespace(NAMESPACE))
    old = on.get("-n", NAMESPACE, "horovodjob", JOB)
    if old:
        say(f"deleting the {JOB} of an earlier run")
        on.kubectl("-n", NAMESPACE, "delete", "horovodjob", JOB, "--wait=true", "--timeout=120s", "--ignore-not-found")
    on.kubectl("-n", NAMESPACE, "wait", "pods", "--for=delete", "--timeout=120s", "-l", f"horovodjob.dev/job={JOB}")
    if on.local:
        return local_volume(on)
    if not on.get("-n", NAMESPACE, "pvc", CLAIM):
        on.apply(claim(storage_class(on), volume=None))
    return None


def wait_while_terminating(on: Target) -> None:
    """Lets an earlier deletion of the namespace come to its end."""
    if (on.get("namespace", NAMESPACE) or {}).get("status", {}).get("phase") == "Terminating":
        say("waiting until the namespace's earlier deletion is done")
        on.kubectl("wait", f"namespace/{NAMESPACE}", "--for=delete", "--timeout=180s")


def local_volume(on: Target) -> Path:
    """A directory of this machine as a volume that many pods may write.

    A cluster administrator makes it: Pod Security restricted forbids a pod to name a directory of the node itself.
    """
    directory = CACHE / "demo" / "data"
    directory.mkdir(parents=True, exist_ok=True)
    os.chown(directory, IMAGE_UID, IMAGE_UID)
    name = f"{NAMESPACE}-{CLAIM}"
    bound_claim = on.get("-n", NAMESPACE, "pvc", CLAIM)
    if bound_claim and bound_claim["status"].get("phase") == "Lost":
        on.kubectl("-n", NAMESPACE, "delete", "pvc", CLAIM)
        bound_claim = None
    if not bound_claim:  # a volume remembers the claim that it belonged to, even if that is deleted
        on.kubectl("delete", "pv", name, "--ignore-not-found", "--timeout=60s")
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteMany"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "",
            "hostPath": {"path": str(directory)},
            "claimRef": {"namespace": NAMESPACE, "name": CLAIM},
        },
    }
    on.apply(volume, claim("", volume=name))
    return directory


def claim(storage_class: str | None, *, volume: str | None) -> dict[str, Any]:
    """The claim that the example job mounts; no storage class means the cluster's default."""
    spec: dict[str, Any] = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    if storage_class is not None:
        spec["storageClassName"] = storage_class
    if volume is not None:
        spec["volumeName"] = volume
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": CLAIM, "namespace": NAMESPACE},
        "spec": spec,
    }


def storage_class(on: Target) -> str | None:
    """A class whose volumes many pods can write: STORAGE_CLASS, Azure Files, or the cluster's default."""
    if given := os.environ.get("STORAGE_CLASS"):
        return given
    classes = on.get("storageclasses") or {"items": []}
    files = [one["metadata"]["name"] for one in classes["items"] if one["provisioner"] == "file.csi.azure.com"]
    return min(files, key=len) if files else None


def submit(on: Target, image: str) -> None:
    """Applies the example with this image."""
    say(f"== HorovodJob {JOB}: {EXAMPLE.relative_to(ROOT)}")
    text = re.sub(r"(?m)^  image: .*$", f"  image: {image}", EXAMPLE.read_text())
    on.kubectl("-n", NAMESPACE, "apply", "-f", "-", given=text)


class LauncherLog(threading.Thread):
    """Follows the log of one launcher pod."""

    def __init__(self, on: Target, uid: str) -> None:
        super().__init__(daemon=True)
        self.on = on
        self.uid = uid

    def run(self) -> None:
        """Prints the lines worth reading until the pod ends."""
        command = self.on.command("-n", NAMESPACE, "logs", "--follow", f"{JOB}-launcher")
        with subprocess.Popen(
            command, env=self.on.env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, errors="replace"
        ) as process:
            for line in process.stdout or ():
                text = line.rstrip().rpartition("\r")[2]
                if text and not NOISE.search(text):
                    say(f"  | {text[:140]}")


def pods_line(pods: list[dict[str, Any]]) -> str:
    """All pods of the job in one line."""
    return "  ".join(f"{pod['metadata']['name']} {pod_state(pod)}" for pod in pods) or "no pods yet"


def pod_state(pod: dict[str, Any]) -> str:
    """A pod's state as kubectl would put it."""
    if pod["metadata"].get("deletionTimestamp"):
        return "Terminating"
    for status in pod["status"].get("containerStatuses") or ():
        if waiting := status["state"].get("waiting"):
            return str(waiting.get("reason", "Waiting"))
        if status.get("ready"):
            return "Ready"
    return str(pod["status"].get("phase", "Unknown"))


def job_line(job: dict[str, Any]) -> str:
    """Where the job stands, and why."""
    status = job.get("status", {})
    phase = status.get("phase", "not seen by the operator yet")
    ready = condition(job, "Ready")
    why = " ".join(part for part in (ready.get("reason", ""), ready.get("message", "")) if part)
    return f"{phase}  workers {status.get('workersReady') or '-'}  {why}".rstrip()


def condition(job: dict[str, Any], wanted: str) -> dict[str, Any]:
    """A condition of the job, or an empty one."""
    conditions: list[dict[str, Any]] = job.get("status", {}).get("conditions", [])
    return next((one for one in conditions if one["type"] == wanted), {})


def watch(on: Target) -> dict[str, Any]:
    """Shows the job until it ends, and gives it."""
    log: LauncherLog | None = None
    shown: tuple[str, str] = ("", "")
    began = last_well = time.monotonic()
    while time.monotonic() < began + TRAINING_SECONDS:
        job = on.get("-n", NAMESPACE, "horovodjob", JOB)
        if job is None:
            raise DemoError(f"the HorovodJob {JOB} was deleted while it ran")
        pods = (on.get("-n", NAMESPACE, "pods", "-l", f"horovodjob.dev/job={JOB}") or {"items": []})["items"]
        lines = (job_line(job), pods_line(pods))
        if lines[0] != shown[0]:
            say(f"{JOB}: {lines[0][:200]}")
        if lines[1] != shown[1]:
            say(f"  pods: {lines[1]}")
        shown = lines
        log = followed(on, log, pods)
        if job.get("status", {}).get("phase") in ("Succeeded", "Failed"):
            if log:
                log.join(timeout=10)
            return job
        if condition(job, "Ready").get("reason") not in HOPELESS:
            last_well = time.monotonic()
        elif time.monotonic() > last_well + HOPELESS_SECONDS:
            raise DemoError(f"the job does not get on: {lines[0]}")
        time.sleep(POLL_SECONDS)
    raise DemoError(f"the HorovodJob {JOB} has not ended within {TRAINING_SECONDS // 60} minutes")


def followed(on: Target, log: LauncherLog | None, pods: list[dict[str, Any]]) -> LauncherLog | None:
    """The log of the launcher that runs now; each attempt has a launcher of its own."""
    for pod in pods:
        started = pod["status"].get("phase") in ("Running", "Succeeded", "Failed")
        if pod["metadata"]["name"] == f"{JOB}-launcher" and started:
            uid = pod["metadata"]["uid"]
            if log is None or (log.uid != uid and not log.is_alive()):
                log = LauncherLog(on, uid)
                log.start()
    return log


def conclude(on: Target, job: dict[str, Any], directory: Path | None, *, applied: float) -> None:
    """Says what came out and what to do next."""
    status = job["status"]
    if status["phase"] != "Succeeded":
        errors = status.get("errors") or [{}]
        last = " ".join(str(errors[-1].get("message", "")).split())[-300:]
        raise DemoError(f"the job failed: {job_line(job)}{': ' + last if last else ''}")
    if directory:
        written = [path for path in directory.glob(f"**/{MODEL}") if path.stat().st_mtime >= applied]
        if not written:
            raise DemoError(f"the job succeeded but wrote no model {MODEL} below {directory}")
    accuracy = ACCURACY.findall(on.kubectl("-n", NAMESPACE, "logs", f"{JOB}-launcher"))
    print(f"\nTrained by {job['spec']['worker']['replicas']} workers with synchronised gradients.")
    print(f"  validation accuracy  {accuracy[-1] if accuracy else 'is not in the log'}")
    print(f"  model on the volume  {MODEL}  (claim {NAMESPACE}/{CLAIM}, output `model` of the job)")
    if directory:
        print(f"  model on this host   {written[-1]}")
    kubectl = on.kubectl_program if on.local else "kubectl"
    print("\nWhat to try next:")
    print(f"  export KUBECONFIG={on.kubeconfig}")
    print(f"  {kubectl} get hvj -n {NAMESPACE} -o wide")
    print(f"  {kubectl} describe hvj {JOB} -n {NAMESPACE}")
    print(f"  {kubectl} logs {JOB}-launcher -n {NAMESPACE}")
    print(f"  {kubectl} explain hvj.spec")
    print(f"  {kubectl} delete hvj {JOB} -n {NAMESPACE}")
    if on.local:
        print("  make cluster-down")


def main() -> int:
    """The whole demo; the exit status says whether a model was trained."""
    try:
        on = target()
        names = images(on)
        install_operator(on, names["operator"], names["trainer"])
        directory = prepare_namespace(on)
        applied = time.time()
        submit(on, names["trainer"])
        job = watch(on)
        trained = time.time() - applied
        conclude(on, job, directory, applied=applied)
        total = time.monotonic() - STARTED
        print(f"\n{total:.0f} s in all, {trained:.0f} s of them from `kubectl apply` to {job['status']['phase']}.")
    except (DemoError, subprocess.CalledProcessError) as error:
        print(f"\ndemo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ndemo: interrupted; `make demo` continues from here", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
