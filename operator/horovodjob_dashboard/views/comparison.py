"""The comparison of jobs."""

from aiohttp import web

from horovodjob.training_history import comparison, metric_names
from horovodjob_dashboard.curves import charts_of_jobs
from horovodjob_dashboard.pages import VIEWER, Pages

MAX_COMPARED = 8


class ComparisonView:
    """The curves of several jobs over each other, and what differs between the jobs."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages

    def routes(self) -> list[web.RouteDef]:
        """The address of the comparison."""
        return [web.get("/compare", self.compare)]

    async def compare(self, request: web.Request) -> web.Response:
        """The page with the jobs of the query, the best one by a metric first."""
        names = request.query.getall("job", [])[:MAX_COMPARED]
        found = {}
        for name in names:
            namespace, _, job = name.partition("/")
            feed = await request[VIEWER].feed(namespace)
            if known := feed.jobs.get((namespace, job)):
                found[name] = known
        metrics = metric_names(found.values())
        metric = request.query.get("metric", "")
        metric = metric if metric in metrics else next(iter(metrics), "")
        rows = comparison(list(found.values()), metric) if metric else []
        return self._pages.page(
            request,
            "compare.html",
            {
                "names": list(found),
                "missing": [name for name in names if name not in found],
                "charts": charts_of_jobs(found),
                "metrics": metrics,
                "metric": metric,
                "rows": rows,
                "settings": list(dict.fromkeys(name for each in rows for name in each["settings"])),
            },
        )
