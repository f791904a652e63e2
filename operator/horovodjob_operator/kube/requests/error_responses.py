"""The error for a response of the API server, sorted by who can correct it."""

import re
from collections.abc import Mapping
from typing import Any

import pydantic_core

from horovodjob.api.constants import Reason
from horovodjob_operator.errors import AlreadyExists, ClusterError, Conflict, Gone, NotServed, Refused, Unavailable

# A Status has no field that says which part of the API server refused the object: 403 is the answer of authorizers, of
# most admission plugins and of webhooks. So their messages are matched, each as a whole from its beginning, because
# what follows can be anybody's words. The sources are the files of Kubernetes that write these messages.
_FORBIDDEN = r'\S+(?: "[^"]*")? is forbidden: '
_PATTERNS: tuple[tuple[Reason, re.Pattern[str]], ...] = tuple(
    (reason, re.compile(pattern))
    for reason, pattern in (
        # apiserver/pkg/admission/plugin/webhook/errors/statuserror.go: with any code that the webhook chooses
        (Reason.ADMISSION_DENIED, r'admission webhook "[^"]*" denied the request'),
        # apiserver/pkg/endpoints/handlers/responsewriters/errors.go: the same for RBAC and for authorization webhooks
        (Reason.OPERATOR_FORBIDDEN, _FORBIDDEN + r'User "[^"]*" cannot \w+ '),
        # plugin/pkg/admission/gc/gc_admission.go, OwnerReferencesPermissionEnforcement
        (Reason.OPERATOR_FORBIDDEN, _FORBIDDEN + r"cannot set (?:blockOwnerDeletion|an ownerRef)"),
        # apiserver/pkg/admission/plugin/resourcequota/controller.go; without a status the quota is a new one
        (Reason.QUOTA_EXCEEDED, _FORBIDDEN + r"(?:exceeded quota|status unknown for quota): "),
        # The same file: the quota limits a resource that the pod does not name.
        (Reason.INVALID_SPEC, _FORBIDDEN + r"failed quota: "),
        # Admission plugins that look up what the spec names: ServiceAccount, Priority, RuntimeClass
        (Reason.INVALID_SPEC, _FORBIDDEN + r"error looking up service account "),
        (Reason.INVALID_SPEC, _FORBIDDEN + r"no PriorityClass with name "),
        (Reason.INVALID_SPEC, _FORBIDDEN + r"pod rejected: RuntimeClass "),
        # ValidatingAdmissionPolicy, with any of four codes; MutatingAdmissionPolicy
        (Reason.ADMISSION_DENIED, r"(?:" + _FORBIDDEN + r")?(?:Validating|Mutating)AdmissionPolicy "),
        (Reason.ADMISSION_DENIED, r"(?:" + _FORBIDDEN + r")?policy .* denied request"),
        # All other plugins, such as PodSecurity and LimitRanger; the authorizers' answer is above.
        (Reason.ADMISSION_DENIED, _FORBIDDEN),
    )
)
_REFUSED = (400, 403, 405, 413, 415, 422)


def error_from_response(
    status: int, content: bytes, retry_after: str | None, *, method: str, path: str
) -> ClusterError:
    """The error for a response with an HTTP status of 400 or above; its body is usually a Status object."""
    try:
        answer = pydantic_core.from_json(content)
    except ValueError:
        answer = {}
    message = str(answer.get("message") or content[:300].decode(errors="replace") or f"HTTP {status}")
    if status == 409 and answer.get("reason") == "AlreadyExists":
        return AlreadyExists(message)
    reason = next((reason for reason, pattern in _PATTERNS if pattern.match(message)), None)
    if reason is Reason.ADMISSION_DENIED and method != "GET":
        return Gone(message) if _is_namespace_terminating(answer) else Refused(message, reason)
    # The conflict of a creation is one of its ResourceQuota, which another request has updated at the same time.
    if status == 409 and method != "POST":
        return Conflict(message)
    if status == 404:
        # The Status names the missing object or namespace, but has no name if the kind is unknown.
        return Gone(message) if (answer.get("details") or {}).get("name") else NotServed(message)
    if status in _REFUSED:
        return Gone(message) if _is_namespace_terminating(answer) else Refused(message, reason or Reason.INVALID_SPEC)
    return Unavailable(
        f"{method} {path}: {status} {message}" + (f", retry after {retry_after} s" if retry_after else "")
    )


def _is_namespace_terminating(answer: Mapping[str, Any]) -> bool:
    causes = (answer.get("details") or {}).get("causes") or ()
    return any(cause.get("reason") == "NamespaceTerminating" for cause in causes)
