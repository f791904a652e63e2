"""Variables, directories and secrets of Batch AI as env, inputs and outputs of a HorovodJob."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from horovodjob.batchai.fields import refusal, warning
from horovodjob.batchai.variables import (
    GENERATED,
    environment_value,
    expandable_path,
    report_absent,
    with_todays_names,
)
from horovodjob.command_line import SIMPLE_VALUE
from horovodjob.conversion import secret
from horovodjob.document import Node

IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}", re.ASCII)
VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}", re.ASCII)


@dataclass(slots=True)
class Environment:
    """The converted fields, and the variables, each with whether it is one word outside quotes."""

    variables: dict[str, bool] = field(default_factory=lambda: dict.fromkeys(GENERATED, True))
    inputs: list[dict[str, Any]] = field(default_factory=list)
    outputs: list[dict[str, Any]] = field(default_factory=list)
    env: list[dict[str, Any]] = field(default_factory=list)
    secrets: list[dict[str, Any]] = field(default_factory=list)


def convert_environment(properties: Node, job_name: str, namespace: str | None) -> Environment:
    """Inputs, outputs and variables, in the order in which the containers define them."""
    result = Environment()
    for node in properties.children("inputDirectories"):
        _directory(node, result, "inputs", "path")
    for node in properties.children("outputDirectories"):
        _directory(node, result, "outputs", "pathPrefix")
    values: dict[str, str] = {}
    for node in properties.children("environmentVariables"):
        _variable(node, result)
    for node in properties.children("secrets"):
        _secret(node, result, job_name, values)
    if values:
        result.secrets.append(secret(f"{job_name}-secrets", namespace, values))
    return result


def _directory(node: Node, result: Environment, kind: str, key: str) -> None:
    identifier, path = node.required_text("id"), path_field(node, key, result.variables, required=True)
    directories = result.inputs if kind == "inputs" else result.outputs
    if identifier is not None and not IDENTIFIER.fullmatch(identifier):
        node.notes.refuse(
            node.at("id"), "must have letters, digits and underscores only, as it is part of a variable's name"
        )
    elif identifier in [directory["id"] for directory in directories]:
        node.notes.refuse(node.at("id"), "is the id of an earlier entry: choose another")
    elif identifier is not None and path is not None:
        directory = {"id": identifier, key: path}
        if kind == "outputs":
            require_absolute(node, key, path)
            if suffix := path_field(node, "pathSuffix", result.variables):
                directory["pathSuffix"] = suffix.strip("/")
                if ".." in suffix.split("/"):
                    node.notes.refuse(node.at("pathSuffix"), "must be a path without .., such as models")
        directories.append(directory)
    if identifier is not None:
        result.variables[f"AZ_BATCHAI_{kind[:-1].upper()}_{identifier}"] = True


def path_field(node: Node, key: str, variables: Mapping[str, bool], *, required: bool = False) -> str | None:
    """A path with its variables in Kubernetes' notation."""
    text = node.required_text(key) if required else node.text(key)
    if text is None:
        return None
    before = len(node.notes.problems)
    report_absent(text, variables, node.at(key), node.notes)
    if len(node.notes.problems) > before:
        return text
    return expandable_path(with_todays_names(text), variables, node.at(key), node.notes)


def require_absolute(node: Node, key: str, path: str) -> None:
    """Refuses a path that does not begin with a slash or a variable."""
    if not path.startswith(("/", "$(")):
        node.notes.refuse(node.at(key), "must be an absolute path, such as $AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/logs")


def _name(node: Node, result: Environment) -> str | None:
    name = node.required_text("name")
    where = node.at("name")
    if name is None:
        return None
    if not VARIABLE_NAME.fullmatch(name):
        node.notes.refuse(where, "must be a variable's name: letters, digits and underscores, no digit first")
    elif name.startswith(("AZ_BATCHAI_", "HOROVODJOB_")):
        node.notes.refuse(where, refusal(where))
    elif name in result.variables:
        node.notes.refuse(where, "is the name of an earlier variable: remove one of them")
    else:
        return name
    return None


def _variable(node: Node, result: Environment) -> None:
    name, text = _name(node, result), node.scalar("value")
    if text is None and not node.has("value"):
        node.notes.refuse(node.at("value"), "is missing: add it")
    if name is None or text is None:
        return
    report_absent(text, result.variables, node.at("value"), node.notes)
    result.env.append({"name": name, "value": environment_value(with_todays_names(text), result.variables)})
    result.variables[name] = SIMPLE_VALUE.fullmatch(text) is not None


def _secret(node: Node, result: Environment, job_name: str, values: dict[str, str]) -> None:
    name, text, reference = _name(node, result), node.scalar("value"), node.child("valueSecretReference")
    source = f"{job_name}-secrets"
    if reference is not None:
        if node.has("value"):
            node.notes.refuse(node.path, "has a value and a reference to a key vault: remove one of them")
        url = reference.required_text("secretUrl")
        source = f"{job_name}-keyvault"
        node.notes.warn(
            reference.path,
            warning(reference.at("secretUrl"), secret=source, key=name or node.at("name"), url=url),
        )
    elif text is None:
        if not node.has("value") and not node.has("valueSecretReference"):
            node.notes.refuse(node.at("value"), "is missing: add it, or valueSecretReference")
        return
    if name is None:
        return
    if reference is None and text is not None:
        values[name] = text
    result.env.append({"name": name, "valueFrom": {"secretKeyRef": {"name": source, "key": name}}})
    result.variables[name] = False
