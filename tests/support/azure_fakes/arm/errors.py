"""Errors of Azure Resource Manager and of the AKS resource provider, with their messages."""

from support.azure_fakes.https import Response


class ArmError(Exception):
    """An error: code and message of the response body."""

    def __init__(self, status: int, code: str, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.headers = status, code, message, headers

    def response(self) -> Response:
        headers = {name.replace("_", "-"): value for name, value in self.headers.items()}
        body = {"error": {"code": self.code, "message": self.message}}
        return Response(self.status, body, {"x-ms-failure-cause": "gateway", **headers})


def not_authorized(principal: str, action: str, scope: str) -> ArmError:
    message = (
        f"The client '{principal}' with object id '{principal}' does not have authorization to perform action "
        f"'{action}' over scope '{scope}' or the scope is invalid. If access was recently granted, please refresh "
        "your credentials."
    )
    return ArmError(403, "AuthorizationFailed", message)


def group_not_found(group: str) -> ArmError:
    return ArmError(404, "ResourceGroupNotFound", f"Resource group '{group}' could not be found.")


def cluster_not_found(group: str, name: str) -> ArmError:
    message = (
        f"The Resource 'Microsoft.ContainerService/managedClusters/{name}' under resource group '{group}' was not "
        "found. For more details please go to https://aka.ms/ARMResourceNotFoundFix"
    )
    return ArmError(404, "ResourceNotFound", message)


def pool_not_found(name: str) -> ArmError:
    return ArmError(404, "NotFound", f"Could not find the agent pool: {name}.")


def operation_in_progress(operation: str, started: str) -> ArmError:
    message = (
        f"Operation is not allowed because there's an in progress {operation} operation on the managed cluster "
        f"started at {started}. Please wait for it to finish before starting a new operation. See "
        "https://aka.ms/aks-pending-operation for more details."
    )
    return ArmError(409, "OperationNotAllowed", message)


def throttled(subscription: str, seconds: int) -> ArmError:
    message = (
        f"Number of requests for subscription '{subscription}' exceeded the limit. Please try again after "
        f"'{seconds}' seconds."
    )
    return ArmError(429, "SubscriptionRequestsThrottled", message, Retry_After=str(seconds))


def precondition_failed() -> ArmError:
    return ArmError(412, "PreconditionFailed", "The etag of the request does not match the etag of the resource.")


def quota_exceeded(requested: int, remaining: int, family: str, region: str) -> ArmError:
    message = (
        f"Insufficient vcpu quota requested {requested}, remaining {remaining} for family {family} for region {region}."
    )
    return ArmError(400, "ErrCode_InsufficientVCPUQuota", message)
