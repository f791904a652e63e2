"""Translation of error responses of the API server to the errors of the operator."""

import json

from horovodjob_operator.errors import AlreadyExists, ClusterError, Conflict, Gone, NotServed, Refused, Unavailable


def error_from_response(
    status: int, content: bytes, retry_after: str | None, *, method: str, path: str
) -> ClusterError:
    """The error for a response with an HTTP status of 400 or above; its body is usually a Status object."""
    try:
        answer = json.loads(content)
    except ValueError:
        answer = {}
    message = answer.get("message") or content[:300].decode(errors="replace") or f"HTTP {status}"
    if status == 409 and answer.get("reason") == "AlreadyExists":
        return AlreadyExists(message)
    # The conflict of a creation is one of its ResourceQuota, which another request has updated at the same time.
    if status == 409 and method != "POST":
        return Conflict(message)
    if status == 404:
        # The Status names the missing object or namespace, but has no name if the kind is unknown.
        return Gone(message) if (answer.get("details") or {}).get("name") else NotServed(message)
    if status in (400, 403, 405, 413, 415, 422):
        causes = (answer.get("details") or {}).get("causes") or ()
        if any(cause.get("reason") == "NamespaceTerminating" for cause in causes):
            return Gone(message)
        return Refused(message, over_quota=status == 403 and "exceeded quota" in message)
    return Unavailable(
        f"{method} {path}: {status} {message}" + (f", retry after {retry_after} s" if retry_after else "")
    )
