"""A fake of the Azure CLI: the commands of manifests/aks, with their options, on a subscription in a JSON file.

FAKE_AZ names the file, which the fake changes as the commands do. A command or an option that the scripts do not use is
refused as the real `az` refuses what it does not know. `calls` of the subscription has the arguments of each call.
"""

import itertools
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jmespath

Options = dict[str, list[str]]
Subscription = dict[str, Any]
SUBSCRIPTION = "00000000-0000-4000-8000-00000000abcd"
FLAGS = ("--all", "--wait", "--yes", "--overwrite-existing")


class Refusal(Exception):
    """An error of `az`, with its exit code."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


def not_found(what: str) -> Refusal:
    return Refusal(f"(ResourceNotFound) {what} was not found.", 3)


def subscription(**changes: Any) -> Subscription:
    """A subscription whose owner is signed in, with quota for everything."""
    dsv5 = {"family": "standardDSv5Family", "vCPUs": "4", "restrictions": []}
    t4 = {"family": "Standard NCASv3_T4 Family", "vCPUs": "4", "restrictions": []}
    quotas = {"cores": 100, "lowPriorityCores": 100, dsv5["family"]: 100, t4["family"]: 100}
    return {
        "version": "2.78.0",
        "signed_in": True,
        "permissions": [{"actions": ["*"], "notActions": []}],
        "providers": {},
        "skus": {"Standard_D4s_v5": dsv5, "Standard_NC4as_T4_v3": t4},
        "quotas": {name: [limit, 0] for name, limit in quotas.items()},
        "groups": {},
        "deployments": {},
        "pools": [],
        "images": [],
        "budgets": {},
        "calls": [],
    } | changes


def group_of(state: Subscription, options: Options) -> Any:
    name = options["--resource-group"][0]
    if name not in state["groups"]:
        raise Refusal(f"(ResourceGroupNotFound) Resource group '{name}' could not be found.", 3)
    return state["groups"][name]


def rest(state: Subscription, options: Options) -> Any:
    url, method = options["--url"][0], options["--method"][0]
    path = url.partition("?")[0]
    if "api-version=" not in url:
        raise Refusal("Bad Request: MissingApiVersionParameter")
    if path.endswith("/providers/Microsoft.Authorization/permissions"):
        return {"value": state["permissions"]}
    if path.endswith("/providers/Microsoft.CostManagement/query"):
        return {"properties": {"rows": [[1.25, "EUR"]]}}
    budget = path.rpartition("/providers/Microsoft.Consumption/budgets/")[2]
    if budget not in state["budgets"]:
        raise not_found(url)
    if method == "delete":
        del state["budgets"][budget]
        return None
    return {"properties": {"filter": {"dimensions": {"values": state["budgets"][budget]}}}}


def show_provider(state: Subscription, options: Options) -> Any:
    return {"registrationState": state["providers"].get(options["--namespace"][0], "Registered")}


def register_provider(state: Subscription, options: Options) -> None:
    (name,) = options["--namespace"]
    if state.get("may_not_register"):
        raise Refusal(
            f"(AuthorizationFailed) The client does not have authorization to perform action '{name}/register/action'."
        )
    state["providers"][name] = "Registered"


def list_skus(state: Subscription, options: Options) -> Any:
    return [
        {
            "name": name,
            "family": sku["family"],
            "capabilities": [{"name": "MemoryGB", "value": "28"}, {"name": "vCPUs", "value": sku["vCPUs"]}],
            "restrictions": sku["restrictions"],
        }
        for name, sku in state["skus"].items()
        if name.startswith(options["--size"][0])
    ]


def list_usage(state: Subscription, options: Options) -> Any:
    return [
        {"name": {"value": name}, "limit": str(limit), "currentValue": str(used)}
        for name, (limit, used) in state["quotas"].items()
    ]


def create_group(state: Subscription, options: Options) -> Any:
    tags = dict(each.split("=") for each in options.get("--tags", ()))
    state["groups"][options["--name"][0]] = {"tags": tags or None}
    return state["groups"][options["--name"][0]]


def show_group(state: Subscription, options: Options) -> Any:
    return group_of(state, {"--resource-group": options["--name"]})


def delete_group(state: Subscription, options: Options) -> None:
    show_group(state, options)
    del state["groups"][options["--name"][0]]


def deploy(state: Subscription, options: Options) -> Any:
    group_of(state, options)
    parameters = dict(each.split("=", 1) for each in options["--parameters"])
    template = Path(options["--template-file"][0]).read_text()
    if unknown := [name for name in parameters if f"\nparam {name} " not in template]:
        raise Refusal(f"(InvalidTemplate) the template has no parameter {unknown[0]}")
    if failure := state.pop("deployment_error", None):
        raise Refusal(failure)
    state["pools"] = ["system", "cpunp"]
    state["pools"] += ["gpunp"] * (parameters["withGpuPool"] == "true") + ["gpuspot"] * (
        parameters["withSpotPool"] == "true"
    )
    if parameters["budgetEmails"] != "[]":
        state["budgets"][parameters["clusterName"]] = [*options["--resource-group"]]
    names = ("registry", "registryServer", "storageAccount", "share", "clientId", "nodeResourceGroup")
    outputs = {name: {"value": f"the{name.lower()}"} for name in names if f"\noutput {name} " in template}
    state["deployments"][options["--name"][0]] = {
        "properties": {"provisioningState": "Succeeded", "outputs": outputs, "parameters": parameters}
    }
    return state["deployments"][options["--name"][0]]


def show_deployment(state: Subscription, options: Options) -> Any:
    if options["--name"][0] not in state["deployments"]:
        raise not_found("The deployment")
    return state["deployments"][options["--name"][0]]


def list_pools(state: Subscription, options: Options) -> Any:
    group_of(state, options)
    if not state["pools"]:
        raise not_found("The Resource 'Microsoft.ContainerService/managedClusters'")
    return [{"name": name} for name in state["pools"]]


def show_image(state: Subscription, options: Options) -> Any:
    if options["--image"][0] not in state["images"]:
        raise Refusal("2026-11-26 manifest is not found")
    return {"name": options["--image"][0]}


def run_task(state: Subscription, options: Options) -> None:
    (context,) = map(Path, options[""])
    task = (context / options["--file"][0]).read_text()
    for name in ("Dockerfile", "pyproject.toml", "uv.lock", "operator", "trainer", "images", "LICENSE"):
        if not (context / name).exists():
            raise Refusal(f"failed to run step: {name} is not in the context")
    values = dict(each.split("=") for each in options["--set"])
    if values["target"] == state.get("build_error") or "DOCKER_BUILDKIT=1" not in task:
        raise Refusal("Run failed: the build ended with exit code 1")
    state["images"].append(f"horovodjob/{values['target']}:{values['tag']}")


def sign_in(state: Subscription, options: Options) -> Any:
    if not state["signed_in"]:
        raise Refusal("Please run 'az login' to setup account.")
    return {"id": SUBSCRIPTION, "name": "a subscription"}


Command = Callable[[Subscription, Options], Any]
COMMANDS: dict[str, tuple[Command, str]] = {
    "version": (lambda state, options: {"azure-cli": state["version"]}, ""),
    "account show": (sign_in, ""),
    "ad signed-in-user show": (lambda state, options: {"id": "the-user"}, ""),
    "rest": (rest, "--method --url --body"),
    "provider show": (show_provider, "--namespace"),
    "provider register": (register_provider, "--namespace --wait"),
    "vm list-skus": (list_skus, "--location --size --all"),
    "vm list-usage": (list_usage, "--location"),
    "group exists": (lambda state, options: options["--name"][0] in state["groups"], "--name"),
    "group create": (create_group, "--name --location --tags"),
    "group show": (show_group, "--name"),
    "group delete": (delete_group, "--name --yes"),
    "resource list": (lambda state, options: [], "--resource-group"),
    "deployment group create": (deploy, "--resource-group --name --template-file --parameters"),
    "deployment group what-if": (
        lambda state, options: group_of(state, options) and None,
        "--resource-group --template-file --parameters",
    ),
    "deployment group show": (show_deployment, "--resource-group --name"),
    "aks nodepool list": (list_pools, "--resource-group --cluster-name"),
    "aks get-credentials": (lambda state, options: None, "--resource-group --name --overwrite-existing"),
    "acr repository show": (show_image, "--name --image"),
    "acr run": (run_task, "--registry --file --set --timeout"),
}


def parsed(arguments: list[str]) -> tuple[Command, Options]:
    """The command and its options; "" has what belongs to none. Raises Refusal."""
    words = list(itertools.takewhile(lambda each: not each.startswith("-"), arguments))
    name = next((" ".join(words[:n]) for n in (3, 2, 1) if " ".join(words[:n]) in COMMANDS), "")
    if not name:
        raise Refusal(f"'{' '.join(words)}' is misspelled or not recognized by the system.", 2)
    command, known = COMMANDS[name]
    options: Options = {}
    last = ""
    for each in arguments[len(name.split()) :]:
        if each.startswith("--"):
            if each not in {*known.split(), "--query", "--output"}:
                raise Refusal(f"unrecognized arguments: {each}", 2)
            last = each
            options.setdefault(each, [])
        elif last == "--parameters" or (last and last not in FLAGS and (last == "--set" or not options[last])):
            options[last].append(each)
            last = last if last == "--parameters" else ""
        else:
            options.setdefault("", []).append(each)
    return command, options


def tsv(found: Any) -> str:
    """The output of `--output tsv`."""
    if found is None:
        return ""
    rows = found if isinstance(found, list) else [found]
    text = {True: "true", False: "false"}
    return "".join(
        "\t".join(
            str(text.get(cell, cell) if isinstance(cell, bool) else cell)
            for cell in (row if isinstance(row, list) else [row])
        )
        + "\n"
        for row in rows
    )


def main() -> int:
    """The exit code of one call."""
    path = Path(os.environ["FAKE_AZ"])
    state = json.loads(path.read_text())
    state["calls"].append(sys.argv[1:])
    try:
        command, options = parsed(sys.argv[1:])
        if sys.argv[1] != "version":
            sign_in(state, options)
        found = command(state, options)
    except Refusal as error:
        sys.stderr.write(f"ERROR: {error}\n")
        return error.code
    finally:
        path.write_text(json.dumps(state))
    if query := options.get("--query"):
        found = jmespath.search(query[0], found)
    match options.get("--output", ["json"]):
        case ["tsv"]:
            sys.stdout.write(tsv(found))
        case ["none"]:
            pass
        case _:
            sys.stdout.write("" if found is None else f"{json.dumps(found)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
