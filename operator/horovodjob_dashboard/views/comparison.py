"""The comparison of jobs."""

from collections.abc import Iterable
from typing import Any

from aiohttp import web

from horovodjob.training_history import Goal, comparison, declared_goal, default_metric, metric_names, rank
from horovodjob_dashboard.curves import charts_of_jobs
from horovodjob_dashboard.pages import VIEWER, Pages

Object = dict[str, Any]
MAX_COMPARED = 8
# The jobs of a page of the list.
MAX_NAMED = 100
GROUPS = ("experiment", "sweep")


class ComparisonView:
    """The curves of several jobs over each other, and what differs between the jobs."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages

    def routes(self) -> list[web.RouteDef]:
        """The address of the comparison."""
        return [web.get("/compare", self.compare)]

    async def compare(self, request: web.Request) -> web.Response:
        """The page with the jobs of the query, or of an experiment or a sweep, the best one by a metric first."""
        names = list(dict.fromkeys(request.query.getall("job", [])))[:MAX_NAMED]
        found = await _named(request, names)
        group = next((each for each in GROUPS if request.query.get(each)), "")
        if group:
            found |= await _grouped(request, group)
        metrics = metric_names(found.values())
        metric = request.query.get("metric", "")
        metric = metric if metric in metrics else default_metric(list(found.values())) or ""
        chosen = request.query.get("goal", "")
        goal = Goal(chosen) if chosen in set(Goal) else declared_goal(found.values(), metric)
        ordered = sorted(found, key=lambda name: rank(found[name], metric, goal))[:MAX_COMPARED]
        shown = {name: found[name] for name in ordered}
        rows = comparison(list(shown.values()), metric, goal)
        return self._pages.page(
            request,
            "compare.html",
            {
                "names": names,
                "group": group,
                "group_name": request.query.get(group, ""),
                "namespace": request.query.get("namespace", ""),
                "total": len(found),
                "missing": [name for name in names if name not in found],
                "charts": charts_of_jobs(_without_common_namespace(shown)),
                "metrics": metrics,
                "metric": metric,
                "goal": goal,
                "chosen_goal": chosen,
                "rows": list(zip(shown, rows, strict=True)),
                "settings": list(rows[0]["settings"]) if rows else [],
            },
        )


def _without_common_namespace(jobs: dict[str, Object]) -> dict[str, Object]:
    """The jobs by their short names if all are in one namespace."""
    if len({name.partition("/")[0] for name in jobs}) > 1:
        return jobs
    return {name.partition("/")[2]: job for name, job in jobs.items()}


async def _named(request: web.Request, names: Iterable[str]) -> dict[str, Object]:
    found = {}
    for name in names:
        namespace, _, job = name.partition("/")
        feed = await request[VIEWER].feed(namespace)
        if known := feed.job((namespace, job)):
            found[name] = known
    return found


async def _grouped(request: web.Request, group: str) -> dict[str, Object]:
    """The jobs of the experiment or of the sweep, in one namespace if the query names it."""
    namespace = request.query.get("namespace", "")
    feed = await request[VIEWER].feed(namespace)
    return {
        f"{key[0]}/{key[1]}": job
        for key, row in feed.rows.items()
        if namespace in ("", key[0]) and getattr(row, group) == request.query[group] and (job := feed.job(key))
    }
