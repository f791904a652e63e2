"""The namespaces that the operator reconciles, if their labels select them, and the defaults for the jobs of each."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from horovodjob.api.constants import ANNOTATION_JOB_DEFAULTS
from horovodjob_operator.domain.job_defaults import JobDefaults, NamespaceDefaults, parse_job_defaults

log = logging.getLogger("horovodjob.namespaces")


@dataclass(frozen=True, slots=True)
class _Namespace:
    uid: str
    annotation: str
    defaults: NamespaceDefaults


class NamespaceSelection:
    """All namespaces, or those that a watch reports. It calls `selected`, `deselected` and `changed` with a name."""

    def __init__(self, defaults: JobDefaults, *, is_selective: bool = False) -> None:
        self._defaults, self._is_selective = NamespaceDefaults(defaults), is_selective
        self._namespaces: dict[str, _Namespace] = {}
        self.has_listed = not is_selective
        self.selected: Callable[[str], object] = lambda _: None
        self.deselected: Callable[[str], object] = lambda _: None
        self.changed: Callable[[str], object] = lambda _: None

    def __contains__(self, namespace: str) -> bool:
        return not self._is_selective or namespace in self._namespaces

    def defaults(self, namespace: str) -> NamespaceDefaults:
        """The defaults for the jobs of a namespace: those of its annotation, completed with those of the operator."""
        found = self._namespaces.get(namespace)
        return found.defaults if found else self._defaults

    def namespace_updated(self, raw: Mapping[str, Any]) -> None:
        """A namespace with the labels exists, or has changed."""
        metadata = raw["metadata"]
        name, annotation = metadata["name"], (metadata.get("annotations") or {}).get(ANNOTATION_JOB_DEFAULTS, "")
        known = self._namespaces.get(name)
        if known and (known.uid, known.annotation) == (metadata["uid"], annotation):
            return
        self._namespaces[name] = _Namespace(metadata["uid"], annotation, self._parse(name, annotation))
        if known:
            log.info("namespace %s: its defaults for jobs have changed", name)
            self.changed(name)
        else:
            log.info("namespace %s: its labels select it", name)
            self.selected(name)

    def namespace_deleted(self, raw: Mapping[str, Any]) -> None:
        """A namespace is deleted, or no longer has the labels."""
        self._deselect(raw["metadata"]["name"])

    def namespaces_listed(self, uids: set[str], _version: int, _namespace: str) -> None:
        """All namespaces with the labels are listed."""
        for name in [name for name, known in self._namespaces.items() if known.uid not in uids]:
            self._deselect(name)
        self.has_listed = True

    def _deselect(self, name: str) -> None:
        if self._namespaces.pop(name, None):
            log.info("namespace %s: its labels do not select it any more, so its jobs are not changed", name)
            self.deselected(name)

    def _parse(self, name: str, annotation: str) -> NamespaceDefaults:
        try:
            return NamespaceDefaults(parse_job_defaults(annotation).completed_by(self._defaults.values))
        except ValueError as error:
            sentence = f"annotation {ANNOTATION_JOB_DEFAULTS} of namespace {name}: {error}"
            log.warning("%s; its jobs get no pods until it is corrected", sentence)
            return NamespaceDefaults(self._defaults.values, sentence)
