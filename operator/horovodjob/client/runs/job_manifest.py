"""The job of a run, and its code as a ConfigMap: objects that can be put into Git as they are."""

import copy
import re
import secrets
import shlex
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from horovodjob.api.constants import API_VERSION, KIND, LABEL_EXPERIMENT, MOUNT_ROOT, Role
from horovodjob.batchai import names
from horovodjob.batchai.names import ANNOTATION_NAME
from horovodjob.client.cluster import kube
from horovodjob.client.cluster.default_gpus import default_gpus
from horovodjob.client.errors import NotFound, UsageError
from horovodjob.client.files import volume_pods
from horovodjob.client.jobs import batchai_records, manifests
from horovodjob.client.jobs.manifests import Submission
from horovodjob.client.runs import archive, claim_code, install_packages, packages, share_code
from horovodjob.client.runs.directory import CodeFile, code_files
from horovodjob.client.runs.file_tree import FileTree, file_tree, unpack_command
from horovodjob.client.runs.options import declared
from horovodjob.client.runs.request import RunRequest
from horovodjob.command_line import literal, shell_text

Object = dict[str, Any]
CODE, CODE_DIRECTORY = "code", "/job/code"
ARCHIVE, ARCHIVE_DIRECTORY = "code-archive", "/job/archive"
OUTPUT = "output"  # $AZ_BATCHAI_OUTPUT_output
PACKAGES, PACKAGES_DIRECTORY = "packages", "/job/packages"
INTERPRETERS = {".py": "python3", ".sh": "sh"}


@dataclass(frozen=True, slots=True)
class RunSubmission(Submission):
    """A job and what `hvj run` must send first.

    With a `tree`, the directory is on a volume and arrives before the job.
    """

    tree: FileTree | None = None
    left_out: tuple[str, ...] = ()
    note: str = ""
    """A sentence for the user about a value that the command has chosen."""


def submission(request: RunRequest, namespace: str) -> RunSubmission:
    """The job with its code. Reads the directory once, and with `source` a job; creates nothing. Raises UsageError."""
    made = _repeated(request, namespace) if request.source else _new(request, namespace)
    spec, metadata, options = made.job["spec"], made.job["metadata"], request.options
    worker, elastic = spec.setdefault("worker", {}), options.get("elastic")
    if elastic:
        spec["elastic"] = {**spec.get("elastic", {}), "minReplicas": elastic[0], "maxReplicas": elastic[1]}
    if nodes := options.get("nodes") or (elastic and elastic[1]):
        worker["replicas"] = nodes
    if elastic and not elastic[0] <= worker["replicas"] <= elastic[1]:
        raise UsageError(f"`nodes={worker['replicas']}` is not within `elastic={':'.join(map(str, elastic))}`")
    if "gpus" in options:
        worker["gpus"] = options["gpus"]
    if "image" in options:
        spec["image"] = options["image"]
    if "pool" in options:
        spec["pool"] = options["pool"]
    if options.get("spot"):
        spec["spot"] = True
    if "retries" in options:
        spec["runPolicy"] = {**spec.get("runPolicy", {}), "backoffLimit": options["retries"]}
    for claim, path in options.get("mounts", {}).items():
        _add_volume(
            spec, f"claim-{claim[:56]}".replace(".", "-").rstrip("-"), path, persistentVolumeClaim={"claimName": claim}
        )
    if experiment := options.get("experiment"):
        metadata.setdefault("labels", {})[LABEL_EXPERIMENT] = names.label_value(experiment)
    for field, values in (("labels", options.get("labels")), ("annotations", options.get("annotations"))):
        if values:
            metadata[field] = {**metadata.get(field, {}), **values}
    manifests.with_variables(made, request.variables)
    _join_packages(spec)
    _name_worker_0(made.job)
    manifests.with_queue(made, options.get("queue"), None)
    return made


def _new(request: RunRequest, namespace: str) -> RunSubmission:
    directory, options = request.directory, request.options
    left_out: set[str] = set()
    files = files_of(request, left_out)
    words = program(request, directory, files)
    job = _metadata(options.get("name") or f"{_program_name(request, words)}-{secrets.token_hex(3)}", namespace)
    spec: Object = job["spec"]
    spec |= {
        "image": "",  # the operator's default
        "worker": {"template": _in_directory(Role.WORKER)},
        "launcher": {"template": _in_directory(Role.LAUNCHER)},
        # A script that fails mostly has an error, which a restart repeats. Lost nodes do not count as restarts.
        "runPolicy": {"backoffLimit": 0},
    }
    spec |= _program_fields(request, words)
    _add_volume(spec, CODE, CODE_DIRECTORY, emptyDir={})
    tree: FileTree | None = None
    volume = ""
    code: tuple[Object, ...] = ()
    if options.get("share") or options.get("claim"):
        tree = file_tree(files)
        volume = _volume_of(request, spec)
        commands = [unpack_command(tree, volume, CODE_DIRECTORY)]
    else:
        packed = archive.archive(directory, files)
        made = archive.config_map(job["metadata"]["name"], namespace, packed)
        code = (made,)
        _add_volume(spec, ARCHIVE, ARCHIVE_DIRECTORY, configMap={"name": made["metadata"]["name"]})
        commands = [archive.unpack_command(packed, ARCHIVE_DIRECTORY, CODE_DIRECTORY)]
    if "requirements" in options:
        _add_volume(spec, PACKAGES, PACKAGES_DIRECTORY, emptyDir={})
        commands.append(_install_command(request, files, volume))
    spec["preparation"] = {"command": " &&\n".join(commands)}
    note = ""
    if "gpus" not in options:
        number, note = default_gpus(is_placed=bool(options.get("pool") or options.get("queue")))
        spec["worker"] |= {} if number else {"gpus": 0}
    return RunSubmission(job, config_maps=code, tree=tree, left_out=tuple(sorted(left_out)), note=note)


def _program_fields(request: RunRequest, words: list[str]) -> Object:
    """The command or the script of the spec."""
    if request.is_command or request.options.get("module"):
        return {"command": [literal(each) for each in words]}
    interpreter, path, *arguments = words
    script: Object = {"path": f"{CODE_DIRECTORY}/{literal(path)}", "interpreter": interpreter}
    if arguments:
        script["args"] = [literal(each) for each in arguments]
    return {"script": script}


def _install_command(request: RunRequest, files: list[CodeFile], volume: str) -> str:
    """The command that installs the packages of --requirements. It keeps them on the volume, if there is one."""
    listed = _file_of(request.directory, files, request.options["requirements"], "`requirements=`")
    # A store that jobs of others can write is read only with the key of this user.
    store, key = f"{volume}/{packages.STORE}" if volume else "", packages.token(request.directory / listed)
    arguments = (f"{CODE_DIRECTORY}/{listed}", PACKAGES_DIRECTORY, store, key)
    return f"python3 {CODE_DIRECTORY}/{packages.SCRIPT} {shell_text(shlex.join(arguments))}"


def _name_worker_0(job: Object) -> None:
    """Give worker 0 a name if the others take packages from it, and the job the name of a Service: not with a digit."""
    spec = job["spec"]
    if f" {PACKAGES_DIRECTORY} '' " in spec.get("preparation", {}).get("command", ""):
        spec["network"] = {**spec.get("network", {}), "service": job["metadata"]["name"][0].isalpha()}


def _join_packages(spec: Object) -> None:
    """Let Python find the packages of --requirements, also if the user sets PYTHONPATH."""
    if not any(mount["mountPath"] == PACKAGES_DIRECTORY for mount in spec.get("volumeMounts", ())):
        return
    variables = spec.setdefault("env", [])
    own = next((each for each in variables if each["name"] == "PYTHONPATH"), None)
    if own is None:
        variables.append({"name": "PYTHONPATH", "value": PACKAGES_DIRECTORY})
    elif PACKAGES_DIRECTORY not in (value := own.get("value", "")).split(":") and "valueFrom" not in own:
        own["value"] = f"{value}:{PACKAGES_DIRECTORY}".lstrip(":")


def _volume_of(request: RunRequest, spec: Object) -> str:
    """The path of the share or claim of the request, which the job mounts and which also gets its logs and outputs."""
    if share := request.options.get("share"):
        entry = share_code.mount(share, share_code.account_of(request.account))
        spec["azureFiles"] = [entry]
        path, root = f"{MOUNT_ROOT}/{entry['name']}", f"$(AZ_BATCHAI_JOB_MOUNT_ROOT)/{entry['name']}"
    else:
        path = root = claim_code.DIRECTORY
        _add_volume(spec, claim_code.VOLUME, path, persistentVolumeClaim={"claimName": request.options["claim"]})
        for role in ("worker", "launcher"):
            spec[role]["template"]["spec"]["securityContext"] = dict(volume_pods.SECURITY_CONTEXT)
    spec["logs"] = {"pathPrefix": root}
    spec["outputs"] = [{"id": OUTPUT, "pathPrefix": root, "pathSuffix": OUTPUT}]
    return path


def _repeated(request: RunRequest, namespace: str) -> RunSubmission:
    """A job with the spec of another one, and a copy of its code."""
    options = request.options
    unused = [f"`{each.field}=`" for each in declared() if each.option.is_for_new_code and each.field in options]
    if unused or request.is_command:
        option = unused[0] if unused else "a command"
        raise UsageError(f"{option} has no effect with `source=`, which runs the code of the job again")
    old = kube.job(str(request.source), namespace)
    name = batchai_records.display_name(old)
    job = _metadata(options.get("name") or f"{name[:40]}-{secrets.token_hex(3)}", namespace)
    job["spec"] = spec = copy.deepcopy(old["spec"])
    if labels := old["metadata"].get("labels"):
        job["metadata"]["labels"] = dict(labels)
    for field in ("terminate", "suspend"):
        spec.get("runPolicy", {}).pop(field, None)
    if request.args or request.script is not None:
        if "script" not in spec:
            raise UsageError(f"job {name} has no spec.script, so its arguments cannot be changed")
        words = ([] if request.script is None else [request.script]) + list(request.args)
        spec["script"]["args"] = [literal(each) for each in words]
    return RunSubmission(job, config_maps=tuple(_copied_code(old, job)))


def _copied_code(old: Object, job: Object) -> list[Object]:
    """The ConfigMaps with the code of a job, for another one that mounts them."""
    from kubernetes.client import ApiException

    copies = []
    old_name, metadata = old["metadata"]["name"], job["metadata"]
    for volume in job["spec"].get("volumes", []):
        source = volume.get("configMap", {}).get("name", "")
        if volume["name"] != ARCHIVE or not source.startswith(archive.code_prefix(old_name)):
            continue
        try:
            found = kube.plain(kube.core().read_namespaced_config_map(source, metadata["namespace"]))
        except ApiException as error:
            if error.status != 404:
                raise
            raise NotFound(f"ConfigMap {source} with the code of job {old_name} does not exist any more") from None
        copies.append(archive.copied(found, old_name, metadata["name"]))
        volume["configMap"]["name"] = copies[-1]["metadata"]["name"]
    return copies


def _metadata(name: str, namespace: str) -> Object:
    """A job without spec."""
    resource = kube.resource_name(name)
    metadata: Object = {"name": resource, "namespace": namespace}
    if name != resource:
        metadata["annotations"] = {ANNOTATION_NAME: name}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": {}}


def files_of(request: RunRequest, left_out: set[str]) -> list[CodeFile]:
    """The files of the directory, see `code_files`, and those that were generated beside it. Raises UsageError."""
    found = {file.path: file for file in code_files(request.directory, left_out)}
    generated = dict(request.generated)
    if "requirements" in request.options:
        generated[packages.SCRIPT] = Path(install_packages.__file__)
    for path, source in generated.items():
        found[path] = CodeFile(path, source, source.stat().st_size, False)
    return sorted(found.values(), key=lambda file: file.path)


def program(request: RunRequest, directory: Path, files: list[CodeFile]) -> list[str]:
    """The command of a rank in the directory, with its arguments; a script is a path below it. Raises UsageError."""
    if request.is_command:
        if not request.args:
            raise UsageError("name the command to run after --, such as `hvj run -- python3 train.py`")
        return list(request.args)
    if module := request.options.get("module"):
        if not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*", module):
            raise UsageError(f"-m {module!r} must be the name of a module, such as package.train, and no path")
        return ["python3", "-m", module, *request.args]
    if request.script is None:
        raise UsageError("name the script to run, such as `hvj run train.py`, or a job to run again with `source=`")
    script = _file_of(directory, files, request.script, "the script")
    interpreter = INTERPRETERS.get(PurePosixPath(script).suffix)
    if interpreter is None:
        raise UsageError(f"{script} is neither a .py nor a .sh file; run other programs with `hvj run -- COMMAND`")
    return [interpreter, script, *request.args]


def _program_name(request: RunRequest, words: list[str]) -> str:
    """What a job is called after: the script, the last part of the module, or the command."""
    if module := request.options.get("module"):
        name = module.rpartition(".")[2]
    else:
        name = PurePosixPath(words[0] if request.is_command else words[1]).stem
    if re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]{0,40}", name):
        return name
    legal = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return (legal if legal[:1].isalpha() else f"job-{legal}")[:40].rstrip("-")


def _file_of(directory: Path, files: list[CodeFile], given: str, what: str) -> str:
    """The path below the directory of a file that is named relative to it or to the current directory."""
    paths = {file.path for file in files}
    if not given.isprintable():
        raise UsageError(f"{what} {given!r} has characters in its name that no job can have: rename it")
    path = PurePosixPath(Path(given).as_posix()).as_posix().removeprefix("./")
    if path in paths:
        return path
    absolute = Path(given).absolute()
    if absolute.is_relative_to(directory.absolute()):
        path = absolute.relative_to(directory.absolute()).as_posix()
        if path in paths:
            return path
        if absolute.is_file():
            raise UsageError(f"{what} {given} is ignored by .gitignore or .hvjignore; add `!{path}` to .hvjignore")
    raise UsageError(f"{what} {given} is not a file of the directory {directory.resolve()}; see `workdir=`")


def _in_directory(role: Role) -> Object:
    """A pod template with the directory of the code as the current one."""
    return {"spec": {"containers": [{"name": role.value, "workingDir": CODE_DIRECTORY}]}}


def _add_volume(spec: Object, name: str, path: str, **source: Object) -> None:
    mounts = spec.setdefault("volumeMounts", [])
    if taken := next((mount for mount in mounts if mount["mountPath"] == path), None):
        raise UsageError(f"two volumes have the path {path}: {taken['name']} and {name}")
    spec.setdefault("volumes", []).append({"name": name, **source})
    mounts.append({"name": name, "mountPath": path})
