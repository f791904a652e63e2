"""Errors for the user: one sentence with the error, its place and the remedy, and an exit code.

ClientError
├── UsageError    the command line, an argument or a file is wrong
├── NotFound      the object does not exist
├── Stalled       the job cannot continue until the user acts
├── TimedOut      the time limit is over
└── Defect        an error that nobody expects

A sentence names an argument of the library as `timeout=` or `gpus=0`; the command line shows its option instead.
This module translates errors of the Kubernetes and Azure clients; commands raise more specific errors themselves.
"""

import json
import re
import sys
from typing import Any

UNKNOWN_FIELD = re.compile(r'unknown field "([^"]+)"')
# By a policy, a webhook or a quota, and not for a missing right.
REFUSED_BY_ADMISSION = re.compile(r" is forbidden: (?!User )|^admission webhook ")


class ClientError(Exception):
    """The command failed; the message is a sentence for the user."""

    exit_code = 1


class UsageError(ClientError):
    """The command line, or a file that it names, is wrong."""

    exit_code = 2


class NotFound(ClientError):
    """The object that the command names does not exist."""

    exit_code = 3


class Stalled(ClientError):
    """The job cannot continue until the user acts."""

    exit_code = 4


class TimedOut(ClientError):
    """What the command waits for did not happen within the time that the user has set."""

    exit_code = 5


class Defect(ClientError):
    """An error that nobody expects."""


# Answers of the API server after which the same request can succeed; 0: the request has had none.
TRANSIENT = (0, 410, 429, 500, 502, 503, 504)


def translated(error: Exception) -> ClientError | None:
    """The error of a client's library as one sentence; None for any other error."""
    # A library that was never imported raised nothing, and importing it here would take a second.
    for module, translate in TRANSLATORS.items():
        if module in sys.modules and (found := translate(error)):
            return found
    return None


def is_transient(error: BaseException) -> bool:
    """Whether a server or its network is away or overloaded, so that the same request can succeed later."""
    return any(module in sys.modules and is_one(error) for module, is_one in PASSING.items())


def _is_passing_answer(error: BaseException) -> bool:
    from kubernetes.client.exceptions import ApiException

    return isinstance(error, ApiException) and error.status in TRANSIENT


def _is_lost_connection(error: BaseException) -> bool:
    from urllib3.exceptions import HTTPError

    return isinstance(error, HTTPError)


def _is_unavailable_share(error: BaseException) -> bool:
    from horovodjob.azurefiles.errors import Unavailable

    return isinstance(error, Unavailable)


def to_client_error(error: Exception) -> ClientError:
    """The error as one sentence."""
    if isinstance(error, ClientError):
        return error
    if found := translated(error):
        return found
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return ClientError(f"{where}{error.strerror or error}")
    return Defect(f"{type(error).__name__}: {one_line(error)}; this is a defect of hvj")


def _kubernetes(error: Exception) -> ClientError | None:
    from kubernetes.client.exceptions import ApiException
    from kubernetes.config.config_exception import ConfigException

    if isinstance(error, ConfigException):
        return ClientError(f"kubeconfig: {one_line(error)}; use `kubeconfig=` or `context=`")
    if isinstance(error, ApiException):
        return _api_error(error)
    return None


def _api_error(error: Any) -> ClientError:
    status, message = error.status, api_message(error)
    if handshake := getattr(
        error.__context__, "resp_body", None
    ):  # the client reports errors of a WebSocket with status 0
        status, message = getattr(error.__context__, "status_code", 0), server_message(handshake)
    match status:
        case 400 | 422 if fields := _fields_of_this_version(message):
            return ClientError(
                f"the HorovodJobs of this cluster have no {' and no '.join(fields)}, because their definition is older "
                "than this hvj: ask the cluster's administrator for an upgrade (see `hvj doctor`), or do without"
            )
        case 401:
            return ClientError(
                "the cluster does not accept your credentials; sign in again and try `kubectl auth whoami`"
            )
        case 403 if REFUSED_BY_ADMISSION.search(message):
            return ClientError(message)
        case 403:
            return ClientError(f"{message}; ask the cluster's administrator for this permission")
        case 404 if "page not found" in message or "could not find the requested resource" in message:
            return ClientError("the cluster does not serve this resource; `hvj doctor` shows what is missing")
        case 404 if namespace := re.fullmatch(r'namespaces "(.+)" not found', message):
            name = namespace[1]
            return NotFound(f"namespace {name} does not exist; `hvj workspace create -w {name}` creates it")
        case 404:
            return NotFound(message)
        case 409:
            return ClientError(f"{message}; try again if another user changed it at the same time")
        case 429 | 500 | 502 | 503 | 504:
            return ClientError(f"the API server answers {status} ({message}); try again later")
        case 0 | None:
            return ClientError(f"no connection to the API server: {message}; check `kubectl cluster-info`")
    return ClientError(message)


def _fields_of_this_version(message: str) -> list[str]:
    """The fields that the API server does not know and this version has; the others are errors of the user."""
    unknown = UNKNOWN_FIELD.findall(message.rpartition("strict decoding error:")[2])  # after a quoted patch
    if not unknown:
        return []
    from horovodjob.api.crd import has_field

    return [path for path in dict.fromkeys(unknown) if has_field(path)]


def api_message(error: Any) -> str:
    """The message of the API server in an ApiException."""
    return server_message(error.body or "") or one_line(error.reason or "no answer")


def server_message(body: str | bytes) -> str:
    """The message of a Status object, or the text of any other response."""
    try:
        return one_line(json.loads(body)["message"])
    except (ValueError, TypeError, KeyError):
        return one_line(body.decode(errors="replace") if isinstance(body, bytes) else body)


def _files(error: Exception) -> ClientError | None:
    from horovodjob.azurefiles.errors import FilesError, InvalidLocation
    from horovodjob.azurefiles.errors import NotFound as FilesNotFound

    if isinstance(error, FilesNotFound):
        return NotFound(str(error))
    if isinstance(error, InvalidLocation):
        return UsageError(str(error))
    return ClientError(str(error)) if isinstance(error, FilesError) else None


def _connection(error: Exception) -> ClientError | None:
    from urllib3.exceptions import HTTPError, MaxRetryError

    if isinstance(error, MaxRetryError):
        pool = error.pool
        where = f"{pool.host}:{pool.port}" if pool is not None else "the server"
        return ClientError(f"no connection to {where}: {_reason(error.reason)}; check the address and the network")
    if isinstance(error, HTTPError):
        return ClientError(f"the connection was lost: {_reason(error)}; try again")
    return None


def _reason(error: BaseException | None) -> str:
    # urllib3 writes its connection object before the message: "<...HTTPSConnection(...) at 0x7f..>: Failed to ...".
    message = one_line(error)
    return message.rpartition(">: ")[2] or message


def _azure(error: Exception) -> ClientError | None:
    from azure.core.exceptions import (
        AzureError,
        ClientAuthenticationError,
        HttpResponseError,
        ResourceNotFoundError,
        ServiceRequestError,
    )

    if not isinstance(error, AzureError):
        return None
    message = one_line(error.message)
    if isinstance(error, ClientAuthenticationError):
        return ClientError(f"Azure does not accept the credentials: {message}; sign in with `az login` or set a key")
    if isinstance(error, ResourceNotFoundError):
        return NotFound(f"Azure: {message}")
    if isinstance(error, HttpResponseError):
        return ClientError(f"Azure answers {error.status_code}: {message}")
    if isinstance(error, ServiceRequestError):
        return ClientError(f"no connection to Azure: {_reason(error)}; check the account's name and the network")
    return ClientError(f"Azure: {message}")


def one_line(message: object) -> str:
    """The first sentence or line of a message, without its final full stop."""
    lines = str(message).strip().splitlines()
    return lines[0].strip().rstrip(".") if lines else ""


TRANSLATORS = {
    "kubernetes.client": _kubernetes,
    "horovodjob.azurefiles.errors": _files,
    "azure.core": _azure,
    "urllib3": _connection,
}
PASSING = {
    "kubernetes.client": _is_passing_answer,
    "horovodjob.azurefiles.errors": _is_unavailable_share,
    "urllib3": _is_lost_connection,
}
