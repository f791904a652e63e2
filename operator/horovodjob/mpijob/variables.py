"""Environment variables of the ranks: those of the workers, and those that the launcher's mpirun exports to them."""

import re
from collections.abc import Mapping
from typing import Any

from horovodjob.mpijob.launcher import Launch
from horovodjob.mpijob.pods import RolePod, environment

Variables = dict[str, dict[str, Any]]
# $(NAME), unless the first $ is escaped.
REFERENCE = re.compile(r"(?<!\$)(?:\$\$)*\$\(([A-Za-z_][\w.-]*)\)")


def job_variables(worker: RolePod, launcher: RolePod, launched: Launch) -> dict[str, Any]:
    """The job's `env`; variables of only the launcher stay with it, and envFrom that ranks need moves to both roles."""
    ranks = environment(worker)
    own = {name: each for name, each in environment(launcher).items() if name not in launched.parameters}
    if not worker.exists:
        ranks, own = own, {}
    exports = _Exports(ranks, own, worker, launcher)
    names = launched.exported | (set(own) if launched.exports_all else set())
    for name in [name for name in own if name in names]:
        exports.add(name, own[name])
    for name, value in launched.env.items():
        exports.add(name, {"name": name, "value": value})
    if launched.exports_all or names - own.keys() - ranks.keys() - launched.env.keys() or exports.unknown:
        _share_sources(worker, launcher)
    if rest := [variable for name, variable in own.items() if ranks.get(name) != variable]:
        launcher.main["env"] = rest
    return {"env": _in_order(ranks)} if ranks else {}


class _Exports:
    """Variables of the launcher, added to those of the ranks."""

    def __init__(self, ranks: Variables, own: Variables, worker: RolePod, launcher: RolePod) -> None:
        self.ranks, self.own, self.worker, self.launcher = ranks, own, worker, launcher
        self.unknown: set[str] = set()

    def add(self, name: str, variable: dict[str, Any]) -> None:
        """Sets a variable of the ranks to the value that it has in the launcher."""
        resolved = self._resolved(variable, frozenset())
        before = self.ranks.get(name)
        if before is not None and before != resolved and self.worker.container is not None:
            self.worker.container.notes.warn(
                self.worker.container.at("env"), f"the value of {name} is omitted: mpirun exports that of the launcher"
            )
        self.ranks[name] = resolved
        source = resolved.get("valueFrom")
        is_of_pod = isinstance(source, Mapping) and bool({"fieldRef", "resourceFieldRef"} & source.keys())
        if is_of_pod and self.worker.exists and self.launcher.container is not None:
            self.launcher.container.notes.warn(
                self.launcher.container.at("env"),
                f"{name} is a field of the pod: a rank has that of its worker, and not that of the launcher",
            )

    def _resolved(self, variable: dict[str, Any], seen: frozenset[str]) -> dict[str, Any]:
        """The variable without references to variables that have another value in the workers."""
        value = variable.get("value")
        if not isinstance(value, str):
            return variable
        whole = REFERENCE.fullmatch(value)
        if whole and whole[1] in self.own and whole[1] not in seen and value.startswith("$("):
            source = self._resolved(self.own[whole[1]], seen | {whole[1]})
            return {**source, "name": variable["name"]}
        return {**variable, "value": REFERENCE.sub(lambda match: self._text(match, seen), value)}

    def _text(self, match: re.Match[str], seen: frozenset[str]) -> str:
        name = match[1]
        if name in seen or name not in self.own:
            self.unknown.add(name)
            return match[0]
        source = self._resolved(self.own[name], seen | {name})
        if "valueFrom" not in source:
            return match[0].removesuffix(f"$({name})") + str(source.get("value", ""))
        if self.ranks.setdefault(name, source) != source and self.launcher.container is not None:
            self.launcher.container.notes.warn(
                self.launcher.container.at("env"),
                f"{name} has another source in the workers, and $({name}) in another variable has the value from there",
            )
        return match[0]


def _share_sources(worker: RolePod, launcher: RolePod) -> None:
    """Gives the sources of the launcher's envFrom to both roles: mpirun exports variables from them."""
    own, shared = (pod.main.get("envFrom") or [] for pod in (launcher, worker))
    if not worker.exists or not isinstance(own, list) or not isinstance(shared, list):
        return
    missing = [source for source in own if source not in shared]
    if missing and launcher.container is not None:
        launcher.container.notes.warn(
            launcher.container.at("envFrom"), "becomes envFrom of all pods: mpirun exports variables from it"
        )
        worker.main["envFrom"] = launcher.main["envFrom"] = [*shared, *missing]


def _in_order(variables: Variables) -> list[dict[str, Any]]:
    """The variables, each after those to which it refers."""
    result: Variables = {}

    def put(name: str, seen: frozenset[str]) -> None:
        if name in result or name in seen or name not in variables:
            return
        for reference in _references(variables[name]):
            put(reference, seen | {name})
        result[name] = variables[name]

    for name in variables:
        put(name, frozenset())
    return list(result.values())


def _references(variable: Mapping[str, Any]) -> list[str]:
    value = variable.get("value")
    return REFERENCE.findall(value) if isinstance(value, str) else []
