"""Errors as a user reads them: one sentence with what, where and what to do, and an exit code.

Errors of the clients of Kubernetes and Azure are translated here; commands raise what they know better.
"""

import json
import re
import sys
from typing import Any


class CliError(Exception):
    """The command cannot do what was asked; the message is a sentence for the user."""

    exit_code = 1


class UsageError(CliError):
    """The command line, or a file that it names, is wrong."""

    exit_code = 2


class NotFound(CliError):
    """The object that the command names does not exist."""

    exit_code = 3


def explained(error: Exception) -> CliError:
    """The error in one sentence."""
    if isinstance(error, CliError):
        return error
    # A library that was never imported has raised nothing, and importing it here would take a second.
    for module, explanation in EXPLANATIONS.items():
        if module in sys.modules and (found := explanation(error)):
            return found
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return CliError(f"{where}{error.strerror or error}")
    return CliError(f"{type(error).__name__}: {one_line(error)}; this is a fault of hvj, and --debug shows where")


def _kubernetes(error: Exception) -> CliError | None:
    from kubernetes.client.exceptions import ApiException
    from kubernetes.config.config_exception import ConfigException

    if isinstance(error, ConfigException):
        return CliError(f"kubeconfig: {one_line(error)}; name another with --kubeconfig or --context")
    if isinstance(error, ApiException):
        return _api_error(error)
    return None


def _api_error(error: Any) -> CliError:
    status, message = error.status, api_message(error)
    if handshake := getattr(error.__context__, "resp_body", None):  # of a WebSocket, which the client reports as 0
        status, message = getattr(error.__context__, "status_code", 0), server_message(handshake)
    match status:
        case 401:
            return CliError("the cluster does not accept your credentials; sign in again and try `kubectl auth whoami`")
        case 403:
            return CliError(f"{message}; ask the cluster's administrator for this permission")
        case 404 if "page not found" in message or "could not find the requested resource" in message:
            return CliError("the cluster does not serve this resource; `hvj doctor` shows what is missing")
        case 404 if namespace := re.fullmatch(r'namespaces "(.+)" not found', message):
            name = namespace[1]
            return NotFound(f"workspace {name} does not exist; `hvj workspace create -w {name}` creates it")
        case 404:
            return NotFound(message)
        case 409:
            return CliError(f"{message}; try again if another user changed it at the same time")
        case 429 | 500 | 502 | 503 | 504:
            return CliError(f"the API server answers {status} ({message}); try again later")
        case 0 | None:
            return CliError(f"no connection to the API server: {message}; check `kubectl cluster-info`")
    return CliError(message)


def api_message(error: Any) -> str:
    """The API server's own words in an ApiException."""
    return server_message(error.body or "") or one_line(error.reason or "no answer")


def server_message(body: str | bytes) -> str:
    """The message of a Status object, or the text of an answer that is none."""
    try:
        return one_line(json.loads(body)["message"])
    except (ValueError, TypeError, KeyError):
        return one_line(body.decode(errors="replace") if isinstance(body, bytes) else body)


def _files(error: Exception) -> CliError | None:
    from horovodjob.azurefiles.errors import FilesError, InvalidLocation
    from horovodjob.azurefiles.errors import NotFound as FilesNotFound

    if isinstance(error, FilesNotFound):
        return NotFound(str(error))
    if isinstance(error, InvalidLocation):
        return UsageError(str(error))
    return CliError(str(error)) if isinstance(error, FilesError) else None


def _connection(error: Exception) -> CliError | None:
    from urllib3.exceptions import HTTPError, MaxRetryError

    if isinstance(error, MaxRetryError):
        pool = error.pool
        where = f"{pool.host}:{pool.port}" if pool is not None else "the server"
        return CliError(f"no connection to {where}: {_reason(error.reason)}; check the address and the network")
    if isinstance(error, HTTPError):
        return CliError(f"the connection broke: {_reason(error)}; try again")
    return None


def _reason(error: BaseException | None) -> str:
    # urllib3 writes its connection object before the words: "<...HTTPSConnection(...) at 0x7f..>: Failed to ...".
    words = one_line(error)
    return words.rpartition(">: ")[2] or words


def _azure(error: Exception) -> CliError | None:
    from azure.core.exceptions import (
        AzureError,
        ClientAuthenticationError,
        HttpResponseError,
        ResourceNotFoundError,
        ServiceRequestError,
    )

    if not isinstance(error, AzureError):
        return None
    words = one_line(error.message)
    if isinstance(error, ClientAuthenticationError):
        return CliError(f"Azure does not accept the credentials: {words}; sign in with `az login` or give a key")
    if isinstance(error, ResourceNotFoundError):
        return NotFound(f"Azure: {words}")
    if isinstance(error, HttpResponseError):
        return CliError(f"Azure answers {error.status_code}: {words}")
    if isinstance(error, ServiceRequestError):
        return CliError(f"no connection to Azure: {_reason(error)}; check the account's name and the network")
    return CliError(f"Azure: {words}")


def one_line(words: object) -> str:
    """The first sentence or line of a message, without its final full stop."""
    lines = str(words).strip().splitlines()
    return lines[0].strip().rstrip(".") if lines else ""


EXPLANATIONS = {
    "kubernetes.client": _kubernetes,
    "horovodjob.azurefiles.errors": _files,
    "azure.core": _azure,
    "urllib3": _connection,
}
