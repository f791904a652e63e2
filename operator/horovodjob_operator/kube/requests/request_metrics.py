"""Counts requests to the API server by verb, resource and status code."""

import re

import aiohttp
from aiohttp import ClientHandlerType, ClientRequest, ClientResponse

from horovodjob_operator.metrics import API_REQUESTS

PATH = re.compile(
    r"^/apis?/(?:[^/]+/)?v[^/]+(?:/namespaces/[^/]+)?/(?P<resource>[^/]+)(?:/(?P<name>[^/]+))?(?:/(?P<sub>.+))?$"
)
VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "GET": "get"}


def verb_and_resource(request: ClientRequest) -> tuple[str, str]:
    """Verb and resource of a request, as RBAC names them."""
    match = PATH.match(request.url.path)
    if not match:
        return request.method.lower(), "other"
    resource, name, sub = match["resource"], match["name"], match["sub"]
    verb = VERBS.get(request.method, request.method.lower())
    if not name and verb == "get":
        verb = "watch" if "watch" in request.url.query else "list"
    elif not name and verb == "delete":
        verb = "deletecollection"
    return verb, f"{resource}/{sub}" if sub else resource


async def count_request(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
    """Client middleware: sends the request and counts it."""
    verb, resource = verb_and_resource(request)
    try:
        response = await handler(request)
    except aiohttp.ClientError:
        API_REQUESTS.labels(verb, resource, "error").inc()
        raise
    API_REQUESTS.labels(verb, resource, str(response.status)).inc()
    return response
