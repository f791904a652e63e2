"""Counts requests to the API server by verb, resource and status code."""

import re

import aiohttp
from aiohttp import ClientHandlerType, ClientRequest, ClientResponse

from horovodjob_operator.metrics import API_REQUESTS

PATH = re.compile(
    r"^/apis?/(?:[^/]+/)?v[^/]+(?:/namespaces/(?P<namespace>[^/]+))?"
    r"/(?P<resource>[^/]+)(?:/(?P<name>[^/]+))?(?:/(?P<sub>.+))?$"
)
VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "GET": "get"}


def verb_resource_namespace(request: ClientRequest) -> tuple[str, str, str]:
    """Verb and resource of a request, as RBAC names them, and its namespace; empty if it is about all namespaces."""
    match = PATH.match(request.url.path)
    if not match:
        return request.method.lower(), "other", ""
    resource, name, sub = match["resource"], match["name"], match["sub"]
    verb = VERBS.get(request.method, request.method.lower())
    if not name and verb == "get":
        verb = "watch" if "watch" in request.url.query else "list"
    elif not name and verb == "delete":
        verb = "deletecollection"
    return verb, f"{resource}/{sub}" if sub else resource, match["namespace"] or ""


async def count_request(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
    """Client middleware: sends the request and counts it."""
    verb, resource, _ = verb_resource_namespace(request)
    try:
        response = await handler(request)
    except aiohttp.ClientError:
        API_REQUESTS.labels(verb, resource, "error").inc()
        raise
    API_REQUESTS.labels(verb, resource, str(response.status)).inc()
    return response
