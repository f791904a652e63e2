"""Errors of the service: status, `x-ms-error-code` and an XML body."""

from xml.sax.saxutils import escape

STATUSES = {
    "AuthenticationFailed": 403,
    "AuthorizationFailure": 403,
    "AuthorizationPermissionMismatch": 403,
    "ConditionNotMet": 412,
    "DirectoryNotEmpty": 409,
    "InvalidAuthenticationInfo": 401,
    "InvalidHeaderValue": 400,
    "InvalidRange": 416,
    "KeyBasedAuthenticationNotPermitted": 403,
    "MissingRequiredHeader": 400,
    "NoAuthenticationInformation": 401,
    "ParentNotFound": 404,
    "ResourceAlreadyExists": 409,
    "ResourceNotFound": 404,
    "ServerBusy": 503,
    "ShareAlreadyExists": 409,
    "ShareNotFound": 404,
    "TooManyRequests": 429,
    "UnsupportedQueryParameter": 400,
}


class Refusal(Exception):
    """An error response of the service."""

    def __init__(self, code: str, detail: str = "", headers: dict[str, str] | None = None) -> None:
        super().__init__(code, detail)
        self.code, self.detail, self.headers = code, detail, headers or {}
        self.status = STATUSES[code]

    @property
    def body(self) -> bytes:
        """The response body of the error."""
        detail = f"<AuthenticationErrorDetail>{escape(self.detail)}</AuthenticationErrorDetail>" if self.detail else ""
        text = f"<Error><Code>{self.code}</Code><Message>{self.code}</Message>{detail}</Error>"
        return f'<?xml version="1.0" encoding="utf-8"?>{text}'.encode()
