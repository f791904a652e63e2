"""Names that Kubeflow's controller gives to files, hosts, labels and volumes, as those of a HorovodJob."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from horovodjob.api.constants import LABEL_JOB, LABEL_REPLICA_INDEX, LABEL_ROLE, OPERATOR_APP_NAME, Role
from horovodjob.conversion import Notes

HOSTFILE = "$(HOROVODJOB_HOSTFILE)"
HOSTFILES = re.compile(r"/etc/mpi/hostfile\b|\$\{?OMPI_MCA_orte_default_hostfile\b\}?")
# What else a program can read of Kubeflow's directory; horovodrun's own option has the same meaning here.
DIRECTORY = re.compile(r"(?<!--host-discovery-script[ =])/etc/mpi(?:/[\w.]+)?")
MANAGED_BY = "app.kubernetes.io/managed-by"
# Version 2 of the controller, and the last two of version 1.
LABELS = {
    "training.kubeflow.org/job-name": LABEL_JOB,
    "training.kubeflow.org/job-role": LABEL_ROLE,
    "training.kubeflow.org/replica-type": LABEL_ROLE,
    "training.kubeflow.org/replica-index": LABEL_REPLICA_INDEX,
    "training.kubeflow.org/operator-name": MANAGED_BY,
    "mpi-job-name": LABEL_JOB,
    "mpi-job-role": LABEL_ROLE,
    "mpi_job_name": LABEL_JOB,
    "mpi_role_type": LABEL_ROLE,
}
VOLUMES = ("mpi-job-config", "ssh-auth")
ROLES = {"launcher": Role.LAUNCHER.value, "worker": Role.WORKER.value}


@dataclass(slots=True)
class Translation:
    """The MPIJob with the names of a HorovodJob; records what it changes, and whether pods need DNS names."""

    original: str
    name: str
    notes: Notes
    first_worker: int = 0
    needs_service: bool = False

    def pod_template(self, template: Any, path: str, main_container: str | None) -> Any:
        """A pod template of a replica."""
        spec = template.get("spec") if isinstance(template, Mapping) else None
        if not isinstance(spec, Mapping):
            return template
        path = f"{path}.spec"
        changed = {key: self._selectors(value, f"{path}.{key}") for key, value in spec.items()}
        changed["volumes"] = self._volumes(changed.get("volumes"), f"{path}.volumes")
        for key in ("containers", "initContainers"):
            changed[key] = self._containers(changed.get(key), f"{path}.{key}", main_container)
        return {**template, "spec": {key: value for key, value in changed.items() if key in spec}}

    def _selectors(self, value: Any, path: str) -> Any:
        """The value with the labels of pods in selectors and in lists of label keys."""
        if isinstance(value, list):
            return [self._selectors(item, f"{path}[{index}]") for index, item in enumerate(value)]
        if not isinstance(value, Mapping):
            return value
        result: dict[str, Any] = {}
        for key, inner in value.items():
            here = f"{path}.{key}"
            if key == "labelSelector" and isinstance(inner, Mapping):
                result[key] = self._selector(inner, here)
            elif key in ("matchLabelKeys", "mismatchLabelKeys") and isinstance(inner, list):
                result[key] = [self._label(label, here) for label in inner]
            else:
                result[key] = self._selectors(inner, here)
        return result

    def _selector(self, selector: Mapping[str, Any], path: str) -> dict[str, Any]:
        result = dict(selector)
        if isinstance(labels := selector.get("matchLabels"), Mapping):
            result["matchLabels"] = {
                (new := self._label(key, f"{path}.matchLabels")): self._label_value(new, value, renamed=new != key)
                for key, value in labels.items()
            }
        if isinstance(expressions := selector.get("matchExpressions"), list):
            result["matchExpressions"] = [
                self._expression(item, f"{path}.matchExpressions[{index}]") for index, item in enumerate(expressions)
            ]
        return result

    def _expression(self, expression: Any, path: str) -> Any:
        if not isinstance(expression, Mapping):
            return expression
        key = expression.get("key")
        new = self._label(key, f"{path}.key")
        if new == key:
            return expression
        result = {**expression, "key": new}
        if isinstance(values := expression.get("values"), list):
            result["values"] = [self._label_value(new, value, renamed=True) for value in values]
        return result

    def _label(self, key: Any, path: str) -> Any:
        if not isinstance(key, str) or (key not in LABELS and "kubeflow.org/" not in key):
            return key
        if key in LABELS:
            self.notes.warn(path, f"{key} is {LABELS[key]} now: the pods have the labels of a HorovodJob")
            return LABELS[key]
        self.notes.warn(path, f"no pod of a HorovodJob has the label {key}: use {LABEL_JOB} or {LABEL_ROLE}")
        return key

    def _label_value(self, label: str, value: Any, *, renamed: bool) -> Any:
        if not renamed or not isinstance(value, str):
            return value
        if label == LABEL_JOB:
            return self.name if value == self.original else value
        return OPERATOR_APP_NAME if label == MANAGED_BY else ROLES.get(value.lower(), value)

    def _volumes(self, volumes: Any, path: str) -> Any:
        if not isinstance(volumes, list):
            return volumes
        own = [volume for volume in volumes if isinstance(volume, Mapping) and volume.get("name") in VOLUMES]
        for volume in own:
            self.notes.warn(path, f"the volume {volume['name']} is omitted: {self._instead(volume['name'])}")
        for volume in volumes:
            source = volume if isinstance(volume, Mapping) else {}
            for key, field, suffix in (("configMap", "name", "config"), ("secret", "secretName", "ssh")):
                reference = source.get(key)
                if isinstance(reference, Mapping) and reference.get(field) == f"{self.original}-{suffix}":
                    self.notes.warn(path, f"{reference[field]} does not exist for a HorovodJob: remove its volume")
        return [volume for volume in volumes if volume not in own]

    def _instead(self, volume: str) -> str:
        return "the hosts are in the file $HOROVODJOB_HOSTFILE" if volume == VOLUMES[0] else "the operator has own keys"

    def _containers(self, containers: Any, path: str, main_container: str | None) -> Any:
        if not isinstance(containers, list):
            return containers
        main = 0 if path.endswith(".containers") else None
        for index, container in enumerate(containers):
            named = isinstance(container, Mapping) and container.get("name") == main_container
            if main is not None and main_container and named:
                main = index
        return [
            self._container(container, f"{path}[{index}]", is_main=index == main)
            for index, container in enumerate(containers)
        ]

    def _container(self, container: Any, path: str, *, is_main: bool) -> Any:
        if not isinstance(container, Mapping):
            return container
        result = dict(container)
        if isinstance(mounts := container.get("volumeMounts"), list):
            own = [mount for mount in mounts if isinstance(mount, Mapping) and mount.get("name") in VOLUMES]
            for mount in own:
                where = f"{path}.volumeMounts"
                self.notes.warn(where, f"the mount of {mount['name']} is omitted: {self._instead(mount['name'])}")
            result["volumeMounts"] = [mount for mount in mounts if mount not in own]
        for key in ("command", "args"):
            if isinstance(words := container.get(key), list):
                result[key] = [self._text(word, f"{path}.{key}", is_main=is_main) for word in words]
                self._report_files(" ".join(word for word in result[key] if isinstance(word, str)), f"{path}.{key}")
        if isinstance(variables := container.get("env"), list):
            result["env"] = [
                {**variable, "value": self._text(variable["value"], f"{path}.env", is_main=is_main)}
                if isinstance(variable, Mapping) and "value" in variable
                else variable
                for variable in variables
            ]
            for variable in result["env"]:
                self._report_files(
                    str(variable.get("value", "")) if isinstance(variable, Mapping) else "", f"{path}.env"
                )
        return result

    def _text(self, text: Any, path: str, *, is_main: bool) -> Any:
        """A word or value with the path of the hostfile and the DNS names of pods."""
        if not isinstance(text, str):
            return text
        if is_main:
            text = HOSTFILES.sub(HOSTFILE, text)
        return self._host_names(text, path) if self.original else text

    def _report_files(self, text: str, path: str) -> None:
        for file in dict.fromkeys(DIRECTORY.findall(text)):
            self.notes.warn(path, f"{file} does not exist: the hosts are in the file $HOROVODJOB_HOSTFILE")

    def _host_names(self, text: str, path: str) -> str:
        job = re.escape(self.original)
        pattern = rf"(?<![\w-]){job}-(launcher|worker-(\d+|\$\{{?\w+\}}?|\$\(\w+\)|))(?:\.{job}(?:-worker)?)?(?![\w-])"

        def renamed(match: re.Match[str]) -> str:
            self.needs_service = True
            role = match[1]
            if self.first_worker and match[2]:
                if match[2].isdecimal():
                    role = f"worker-{int(match[2]) + self.first_worker}"
                else:
                    self.notes.warn(path, f"the launcher is replica 0, so the first worker is {self.name}-worker-1")
            elif not match[2] and role != "launcher":  # a name that a program composes
                return f"{self.name}-{role}"
            return f"{self.name}-{role}.{self.name}"

        result = re.sub(pattern, renamed, text)
        if result != text:
            self.notes.warn(path, "names of pods are those of the HorovodJob now, with network.service for their DNS")
        return result
