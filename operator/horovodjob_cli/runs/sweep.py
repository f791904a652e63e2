"""A sweep of runs: jobs of one script and its directory, with other arguments each."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from horovodjob.api.constants import LABEL_EXPERIMENT
from horovodjob.batchai.names import ANNOTATION_NAME
from horovodjob.conversion import ConversionError
from horovodjob.sweeps import definition as definitions
from horovodjob.sweeps import template
from horovodjob.sweeps.definition import Definition
from horovodjob_cli.cluster import kube
from horovodjob_cli.errors import UsageError
from horovodjob_cli.jobs.manifests import Submission

Object = dict[str, Any]


def definition(made: Submission, options: Sequence[str], settings: Mapping[str, Any]) -> Definition:
    """The sweep of a run. Each option NAME=VALUES is an argument --NAME=VALUE of its script. Raises UsageError."""
    metadata, spec = made.job["metadata"], template.literal(copy.deepcopy(made.job["spec"]))
    if "script" not in spec:
        raise UsageError("--sweep adds arguments to a script, and the job of --from has no spec.script")
    found: dict[str, str] = {}
    for option in options:
        name, equals, values = option.partition("=")
        if not equals or name in found:
            problem = "names a parameter twice" if equals else "must be NAME=VALUES, such as lr=log:1e-4:1e-1"
            raise UsageError(f"--sweep {option!r} {problem}")
        found[name] = values
    spec["script"]["args"] = [*spec["script"].get("args", []), *(f"--{name}=${{{name}}}" for name in found)]
    job = {**made.job, "metadata": {"labels": metadata.get("labels", {})}, "spec": spec}
    try:
        return definitions.parse({"name": metadata["name"], **settings, "parameters": found, "job": job})
    except ConversionError as error:
        raise UsageError("; ".join(map(str, error.problems))) from None


def send_code(made: Submission, sweep: Definition) -> None:
    """Create the ConfigMap with the code, as part of the sweep's experiment: it is deleted with that."""
    from kubernetes.client import ApiException

    experiment = (made.job["metadata"].get("labels") or {}).get(LABEL_EXPERIMENT, sweep.name)
    for each in made.config_maps:
        metadata = each["metadata"]
        labels = {**metadata["labels"], LABEL_EXPERIMENT: experiment}
        body = {**each, "metadata": {**metadata, "labels": labels, "annotations": {ANNOTATION_NAME: experiment}}}
        try:
            kube.core().create_namespaced_config_map(metadata["namespace"], body)
        except ApiException as error:
            if error.status != 409:  # its name has a hash of its contents, so it is the same code
                raise
