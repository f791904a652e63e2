"""A session that only the pages of one address can use.

A browser sends the cookies of a host to the servers of all its ports, and cookies alone would be the session of whoever
runs one of them. Each request therefore has a second secret in a header. The script of a page keeps it in its storage,
which browsers give to pages of the same scheme, host and port only.
"""

import hmac
import html
import re
import secrets
from dataclasses import dataclass, field

from aiohttp import web

HEADER = "X-HorovodJob-Page"
# Gets the page, with the secret, in place of this document; a new secret is stored before.
DOCUMENT = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>HorovodJob</title>
<meta name="page-secret" content="{secret}"><meta name="page-target" content="{target}">
<script src="/static/page.js" defer></script></head>
<body><noscript>The dashboard needs JavaScript.</noscript></body></html>
"""


class PageNeeded(Exception):
    """The request has the cookie of a session, and not the secret of its pages."""


@dataclass(frozen=True, slots=True)
class PageSession:
    """The two secrets of a session."""

    cookie: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    secret: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)

    def is_page(self, request: web.Request) -> bool:
        """Whether the request is of a page of the session. Raises PageNeeded if it does not say."""
        if HEADER not in request.headers:
            raise PageNeeded
        return is_same(request.headers[HEADER], self.secret)

    def begin(self, target: str) -> web.Response:
        """The first page of the session, which keeps the secret and opens the target."""
        return _document(self.secret, own_page(target))


def loader() -> web.Response:
    """What everybody gets who opens an address with the cookie: a script that asks for the page with the secret."""
    return _document("", "")


def cookie_name(prefix: str, request: web.Request) -> str:
    """The name of a cookie at the port of the request: two dashboards on one host need two names."""
    _, separator, port = request.host.rpartition(":")
    return f"{prefix}_{port}" if separator and port.isdecimal() else prefix


def own_page(target: str) -> str:
    """The address if it is one of the dashboard: browsers take // and /\\ for another host."""
    return target if re.match(r"/(?![/\\])", target) and target.isprintable() else "/"


def is_same(given: str, secret: str) -> bool:
    """Whether the texts are equal, in a time that does not depend on where they differ."""
    return hmac.compare_digest(given.encode(errors="replace"), secret.encode())


def _document(secret: str, target: str) -> web.Response:
    text = DOCUMENT.format(secret=html.escape(secret), target=html.escape(target))
    return web.Response(text=text, content_type="text/html")
