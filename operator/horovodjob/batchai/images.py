"""containerSettings of Batch AI: image, registry and shared memory."""

import json
import re
import shlex
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from horovodjob.api.constants import PodSecurity
from horovodjob.batchai.fields import SCRIPT, toolkits, warning
from horovodjob.conversion import secret
from horovodjob.document import Node

DOCKER_HUB = ("docker.io", "index.docker.io", "registry-1.docker.io", "hub.docker.com", "registry.hub.docker.com")
DOCKER_HUB_KEY = "https://index.docker.io/v1/"
# CUDA before 11 has no kernels for Ampere, before 10 none for Turing; CNTK, Caffe 2 and Chainer ended before.
OLD_IMAGE = re.compile(
    r"(^|/)tensorflow:(0|1)\.|(^|/)tensorflow:latest-(gpu|devel)|cuda-?(7|8|9|10)([._-]|$)|(^|/)(cntk|caffe2?|chainermn)(:|$)"
    r"|(^|/)pytorch:(v?0\.|0_)"
)
TENSORFLOW_1 = re.compile(r"(^|/)tensorflow:1\.")
TRAINER_IMAGE = re.compile(r"(^|/)horovodjob[-/]trainer(-gpu)?([:@]|$)")
# Interpreters; the second runs scripts for TensorFlow 1 and Keras 2 in the trainer image.
PYTHON, COMPAT = "python", "horovodjob-compat"
# Frameworks that the trainer image does not contain.
FRAMEWORKS = {"pyTorchSettings": "PyTorch", "cntkSettings": "CNTK", "chainerSettings": "Chainer"}
MPI_NAMES = (
    ("IntelMPI", re.compile(r"intel-?_?mpi|(^|[^a-z])impi([^a-z]|$)|l_mpi_|mpivars")),
    ("MPICH", re.compile("mpich")),
)
SHM_UNITS = {
    "": "",
    "b": "",
    "k": "Ki",
    "kb": "Ki",
    "m": "Mi",
    "mb": "Mi",
    "g": "Gi",
    "gb": "Gi",
    "t": "Ti",
    "tb": "Ti",
}


@dataclass(slots=True)
class Container:
    """Fields of the spec, and the Secret of the registry if the document has its password."""

    spec: dict[str, Any] = field(default_factory=dict)
    secrets: list[dict[str, Any]] = field(default_factory=list)
    interpreter: str = PYTHON

    @property
    def image(self) -> str:
        """The image; empty if there is none."""
        return str(self.spec.get("image", ""))


def is_trainer_image(image: str) -> bool:
    """Whether the name is that of this project's trainer image."""
    return TRAINER_IMAGE.search(image) is not None


def convert_container(
    properties: Node,
    settings: Node | None,
    image: str | None,
    job_name: str,
    namespace: str | None,
    pod_security: PodSecurity | None = None,
) -> Container:
    """Image, imagePullSecrets and shmSize; `image` replaces that of the document."""
    result = Container()
    registry = settings.child("imageSourceRegistry") if settings is not None else None
    if image is not None:
        result.spec["image"] = image
        if registry is not None and registry.has("credentials"):
            registry.notes.warn(registry.at("credentials"), "are not used: --image names another image")
        if is_trainer_image(image):
            _report_missing_frameworks(properties, image)
            if registry is not None:
                result.interpreter = _trainer_interpreter(properties, registry)
    elif registry is not None:
        _registry(registry, result, job_name, namespace)
    elif settings is None or not settings.has("imageSourceRegistry"):
        node, key = (
            (settings, "imageSourceRegistry.image") if settings is not None else (properties, "containerSettings")
        )
        node.notes.refuse(
            node.at(key), "is missing: Kubernetes runs jobs in containers, so add an image, or name one with --image"
        )
    if result.image and not is_trainer_image(result.image):
        where = "--image" if image is not None or registry is None else registry.at("image")
        _report_needs(properties, where, pod_security)
    if settings is not None and (size := settings.scalar("shmSize")):
        result.spec |= _shared_memory(settings, size)
    return result


def _shared_memory(settings: Node, size: str) -> dict[str, str]:
    match = re.fullmatch(r"(\d{1,18})([bkmgt]b?)?", size.strip().lower(), re.ASCII)
    if match and (match[2] or "") in SHM_UNITS:
        return {"shmSize": f"{match[1]}{SHM_UNITS[match[2] or '']}"}
    settings.notes.refuse(settings.at("shmSize"), "must be a size such as 512m or 16g")
    return {}


def _trainer_interpreter(properties: Node, registry: Node) -> str:
    """The interpreter of the trainer image for a script that the document runs in the image of its registry."""
    if not TENSORFLOW_1.search(registry.text("image") or "") or not _runs_default_interpreter(properties):
        return PYTHON
    registry.notes.warn(
        registry.at("image"),
        f"the script was written for TensorFlow 1, so {COMPAT} of the trainer image runs it; set "
        "pythonInterpreterPath to python3 for a script of today",
    )
    return COMPAT


def _runs_default_interpreter(properties: Node) -> bool:
    """Whether a toolkit has a script, and no interpreter of its own for it."""
    given = [node for key in toolkits() if properties.has(key) and (node := properties.child(key)) is not None]
    return any(node.has(SCRIPT) and not node.has("pythonInterpreterPath") for node in given)


def _report_missing_frameworks(properties: Node, image: str) -> None:
    """Warns about toolkits whose framework the trainer image does not contain."""
    for key, framework in FRAMEWORKS.items():
        if properties.has(key):
            properties.notes.warn(
                properties.at(key), f"needs {framework}, which {image} does not have: name another image"
            )


def _report_needs(properties: Node, where: str, pod_security: PodSecurity | None) -> None:
    """Warns about what Batch AI provided for an image."""
    sentence = "image or preparation must provide mpirun, ssh and sshd (OpenSSH), which Batch AI brought along"
    if pod_security is None:
        sentence += (
            "; Batch AI ran it as root, so the job has podSecurity: Baseline, unless the image has a user of its own "
            "and you use --pod-security Restricted"
        )
    properties.notes.warn(where, sentence)


def mpi_implementation(*texts: str) -> str | None:
    """The MPI implementation that an image or a command indicates, if it is not Open MPI."""
    for text in texts:
        for name, pattern in MPI_NAMES:
            if pattern.search(text.lower()):
                return name
    return None


def _registry(registry: Node, result: Container, job_name: str, namespace: str | None) -> None:
    image = registry.required_text("image")
    server = _host(registry.text("serverUrl"))
    if image is None:
        return
    image = image.strip()
    if server and server not in DOCKER_HUB and not image.startswith(f"{server}/"):
        image = f"{server}/{image}"
    if not image or re.search(r"\s", image):
        registry.notes.refuse(registry.at("image"), "must be an image such as registry.example.com/training:1")
    result.spec["image"] = image
    if OLD_IMAGE.search(image.lower()):
        registry.notes.warn(registry.at("image"), warning(registry.at("image"), image=image))
    if (credentials := registry.child("credentials")) is not None:
        _credentials(credentials, result, server or _host_of(image), job_name, namespace)


def _credentials(node: Node, result: Container, server: str, job_name: str, namespace: str | None) -> None:
    user, password = node.required_text("username"), node.text("password")
    reference = node.child("passwordSecretReference")
    name = f"{job_name}-registry"
    result.spec["imagePullSecrets"] = [{"name": name}]
    if (password is None) == (reference is None):
        problem = "is missing: add it" if password is None else "and passwordSecretReference: remove one of them"
        if not node.has("password") or password is not None:
            node.notes.refuse(node.at("password"), problem)
    elif reference is not None:
        url = reference.required_text("secretUrl")
        node.notes.warn(
            reference.path, warning(reference.at("secretUrl"), name=name, server=shlex.quote(server), url=url)
        )
    elif user is not None:
        auths = {DOCKER_HUB_KEY if server in DOCKER_HUB else server: {"username": user, "password": password}}
        values = {".dockerconfigjson": json.dumps({"auths": auths})}
        result.secrets.append(secret(name, namespace, values, "kubernetes.io/dockerconfigjson"))


def _host(url: str | None) -> str:
    text = (url or "").strip()
    try:
        return urlsplit(text if "://" in text else f"//{text}").netloc.rpartition("@")[2].lower()
    except ValueError:
        return ""


def _host_of(image: str) -> str:
    """The registry in an image's name, by Docker's rules."""
    first, slash, _ = image.partition("/")
    return first if slash and ("." in first or ":" in first or first == "localhost") else DOCKER_HUB[0]
