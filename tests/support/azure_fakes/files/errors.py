"""Errors of the service: status, `x-ms-error-code` and an XML body."""

from xml.sax.saxutils import escape

MESSAGES = {
    "AuthenticationFailed": (
        403,
        "Server failed to authenticate the request. Make sure the value of Authorization header is formed correctly "
        "including the signature.",
    ),
    "AuthorizationFailure": (403, "This request is not authorized to perform this operation."),
    "AuthorizationPermissionMismatch": (
        403,
        "This request is not authorized to perform this operation using this permission.",
    ),
    "ConditionNotMet": (412, "The condition specified using HTTP conditional header(s) is not met."),
    "DirectoryNotEmpty": (409, "The specified directory is not empty."),
    "InvalidAuthenticationInfo": (
        401,
        "Server failed to authenticate the request. Please refer to the information in the www-authenticate header.",
    ),
    "InvalidHeaderValue": (400, "The value for one of the HTTP headers is not in the correct format."),
    "InvalidQueryParameterValue": (
        400,
        "Value for one of the query parameters specified in the request URI is invalid.",
    ),
    "InvalidRange": (416, "The range specified is invalid for the current size of the resource."),
    "InvalidResourceName": (400, "The specified resource name contains invalid characters."),
    "KeyBasedAuthenticationNotPermitted": (
        403,
        "Key based authentication is not permitted on this storage account.",
    ),
    "Md5Mismatch": (
        400,
        "The MD5 value specified in the request did not match the MD5 value calculated by the server.",
    ),
    "MissingRequiredHeader": (400, "An HTTP header that's mandatory for this request is not specified."),
    "NoAuthenticationInformation": (
        401,
        "Server failed to authenticate the request. Please refer to the information in the www-authenticate header.",
    ),
    "ParentNotFound": (404, "The specified parent path does not exist."),
    "ResourceAlreadyExists": (409, "The specified resource already exists."),
    "ResourceNotFound": (404, "The specified resource does not exist."),
    "ResourceTypeMismatch": (409, "The specified resource type does not match the type of the existing resource."),
    "ServerBusy": (503, "The server is currently unable to receive requests. Please retry your request."),
    "ShareAlreadyExists": (409, "The specified share already exists."),
    "ShareNotFound": (404, "The specified share does not exist."),
    "TooManyRequests": (429, "The request is being throttled."),
    "UnsupportedQueryParameter": (400, "One of the query parameters specified in the request URI is not supported."),
}


class Refusal(Exception):
    """An error response of the service."""

    def __init__(self, code: str, detail: str = "", headers: dict[str, str] | None = None) -> None:
        super().__init__(code, detail)
        self.code, self.detail, self.headers = code, detail, headers or {}
        self.status, self.message = MESSAGES[code]

    @property
    def body(self) -> bytes:
        """The response body of the error."""
        detail = f"<AuthenticationErrorDetail>{escape(self.detail)}</AuthenticationErrorDetail>" if self.detail else ""
        text = f"<Error><Code>{self.code}</Code><Message>{escape(self.message)}</Message>{detail}</Error>"
        return f'<?xml version="1.0" encoding="utf-8"?>{text}'.encode()
