"""Templates and what all pages show: the viewer, the cluster and its neighbours."""

import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
from aiohttp import web
from markupsafe import Markup

from horovodjob.api.constants import Phase
from horovodjob.client.jobs.job_times import active_seconds, age_text, current_time, duration_text
from horovodjob.escaping import escaped
from horovodjob_dashboard.job_rows import JobRow
from horovodjob_dashboard.page_settings import PageSettings
from horovodjob_dashboard.viewer import Viewer

HERE = Path(__file__).parent
STATIC = HERE / "static"
KEPT_ROWS = 2000
VIEWER = web.RequestKey("viewer", Viewer)


class Link(NamedTuple):
    """A context of the kubeconfig in the header."""

    name: str
    root: str


class Pages:
    """Renders templates. `root` is the part of all addresses before those of this cluster."""

    def __init__(
        self,
        root: str = "",
        contexts: Sequence[Link] = (),
        *,
        settings: PageSettings | None = None,
        has_sessions: bool = False,
    ) -> None:
        self.root, self.has_sessions = root, has_sessions
        self._templates = jinja2.Environment(
            loader=jinja2.FileSystemLoader(HERE / "templates"),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            finalize=_visible,
        )
        self._rendered_row = lru_cache(KEPT_ROWS)(self._render_row)
        self._templates.globals |= {
            "root": root,
            "contexts": contexts,
            "settings": settings or PageSettings(),
            "has_sessions": has_sessions,
            "phases": list(Phase),
            "job_row": self._job_row,
        }
        self._templates.filters |= {"age": _age, "duration": _duration, "clock": _clock}

    def page(self, request: web.Request, template: str, values: Mapping[str, Any], status: int = 200) -> web.Response:
        """A page, or the part of one that replaces an older version."""
        text = self.text(template, viewer=request.get(VIEWER), **values)
        return web.Response(text=text, content_type="text/html", status=status)

    def _job_row(self, job: JobRow, until: str, age: str, duration: str) -> Markup:
        """A row of the list. Pages share it until something of it changes."""
        return self._rendered_row(job, until, age, duration)

    def text(self, template: str, **values: Any) -> str:
        """A page as text."""
        return self._templates.get_template(template).render(**values)

    def _render_row(self, job: JobRow, until: str, age: str, duration: str) -> Markup:
        template = self._templates.get_template("job_row.html")
        return Markup(template.render(job=job, until=until, age=age, duration=duration))


def _visible(value: Any) -> Any:
    """A value of a template without characters that change the direction of text, or that nobody sees."""
    is_text = isinstance(value, str) and not isinstance(value, Markup)
    return "\t".join(map(escaped, value.split("\t"))) if is_text else value


def _age(created: str) -> str:
    """The time since the creation of a job."""
    return age_text(created, current_time())


def _duration(times: dict[str, Any]) -> str:
    """How long the job has been active; empty before its admission."""
    seconds = active_seconds(times, current_time())
    return "" if seconds is None else duration_text(seconds)


def _clock(moment: str) -> str:
    """A time in the time zone of the process, without the date of today; UTC, as in a pod, is named.

    A text that is no time in this zone, such as the end of the year 9999 east of Greenwich, stays as it is.
    """
    try:
        local = datetime.fromisoformat(moment).astimezone()
    except (ValueError, OverflowError):
        return moment
    text = local.strftime("%H:%M:%S" if local.date().isoformat() == time.strftime("%Y-%m-%d") else "%Y-%m-%d %H:%M")
    return f"{text} UTC" if local.tzname() == "UTC" else text
