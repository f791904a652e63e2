"""The list of jobs of `hvj dashboard` with thousands of jobs: first paint, processor time and memory.

    PYTHONPATH=tests:. .venv/bin/python benchmarks/dashboard.py [--jobs 5000] [--pages 20] [--minutes 10] [--lost 10]

A real API server has the jobs; one page is Chromium's, and the others are clients that do what a page does: they follow
the stream of changes, and read their rows after each. Every second some jobs report progress. Before that, the
connections are cut several times, and the API server is away for long enough that the jobs are listed again.
"""

import argparse
import os
import random
import re
import statistics
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

import requests
import yaml

from cli.cluster_state import ClusterState
from cli.dashboard.browser import Browser, dashboard
from cli.dashboard.chromium import Chromium, chromium
from cli.dashboard.sample_jobs import samples, training
from cli.proxy import Proxy, proxy
from localcluster.control_plane.standalone import ControlPlane
from support.api_client import Api, install_definition, wait_for

NAMESPACE = "team"
CHANGES_A_SECOND = 10
SECONDS_AWAY = 2
PAINT = "return performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
TICKS = os.sysconf("SC_CLK_TCK")


def create_jobs(cluster: ClusterState, number: int, first: int = 0) -> None:
    """Jobs of every phase: those from the first to the number."""
    kinds = samples()

    def create(index: int) -> None:
        kind = kinds[index % len(kinds)]
        name = f"{kind.name}-{index}"
        labels = {"horovodjob.dev/experiment": kind.experiment} if kind.experiment else {}
        cluster.create(name, labels, worker={"replicas": kind.workers, "gpus": kind.gpus})
        cluster.report(name, phase=kind.phase, **kind.status)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(create, range(first, number)))


def change_jobs(cluster: ClusterState, number: int, ended: threading.Event) -> int:
    """Reports progress of random jobs, the given number a second; how many it has reported."""
    for done in count():
        if ended.wait(1 / CHANGES_A_SECOND):
            return done
        index = random.randrange(number)
        name = f"{samples()[index % 10].name}-{index}"
        cluster.report(name, training=training(random.randrange(1, 24), 24))
    raise AssertionError


def follow(browser: Browser, ended: threading.Event) -> int:
    """Does what a page of the list does, until the end; how often it has read its rows."""
    session = requests.Session()
    session.cookies = browser.session.cookies
    session.headers.update(browser.session.headers)
    reads = 0
    with session.get(f"{browser.origin}/changes/{NAMESPACE}", stream=True, timeout=60) as stream:
        for line in stream.iter_lines(chunk_size=1):
            if ended.is_set():
                break
            if line.startswith(b"data: "):
                session.get(f"{browser.origin}/rows", timeout=60).raise_for_status()
                reads += 1
    return reads


def processor_seconds(pid: int) -> float:
    """Processor time of a process since its start."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def memory(pid: int) -> float:
    """Memory of a process in megabytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def lists(api: Api) -> int:
    """The lists of jobs that the API server has answered, each page of one counted."""
    pattern = r'^apiserver_request_total\{[^}]*resource="horovodjobs"[^}]*verb="LIST"[^}]*\} (\S+)$'
    return int(sum(float(each) for each in re.findall(pattern, api.text("/metrics"), re.MULTILINE)))


def lose_watches(cluster: ClusterState, opened: Browser, connection: Proxy, number: int) -> None:
    """Prints the memory after each loss: with a server that is there, and with one that is away for a while."""
    for how, lose in (("connections cut", connection.cut), ("lists", lambda: _lose_watch(cluster, connection))):
        sizes = [memory(opened.pid)]
        for _ in range(number):
            lose()
            time.sleep(SECONDS_AWAY)
            wait_for("a quiet server", lambda: _is_quiet(opened.pid))
            sizes.append(memory(opened.pid))
        print(f"memory before and after {number} {how}: {', '.join(f'{each:.1f}' for each in sizes)} MB", flush=True)


def _lose_watch(cluster: ClusterState, connection: Proxy) -> None:
    """The API server is away, and then lists the jobs again."""
    before = lists(cluster.api)
    with connection.away():
        time.sleep(SECONDS_AWAY)
    wait_for("the list", lambda: lists(cluster.api) > before)


def _is_quiet(pid: int) -> bool:
    """Whether a process has used no processor time for a second."""
    before = processor_seconds(pid)
    time.sleep(1)
    return processor_seconds(pid) - before < 0.05


def seconds_of(action: Callable[[], object]) -> float:
    """How long an action takes."""
    begin = time.monotonic()
    action()
    return time.monotonic() - begin


def first_paint(page: Chromium) -> float:
    """Milliseconds from the request for the page to its first content."""
    return float(wait_for("the first paint", lambda: page.run(PAINT)))


def measure(
    cluster: ClusterState, page: Chromium, opened: Browser, connection: Proxy, arguments: argparse.Namespace
) -> None:
    """Prints the figures."""
    total = f"{arguments.jobs} jobs"
    read = seconds_of(lambda: wait_for("all jobs", lambda: total in opened.text("/")))
    print(f"from the first request to all {total}: {read:.2f} s", flush=True)
    paints = [first_paint(page.open(f"{opened.origin}/").shows(total)) for _ in range(5)]
    print(f"first paint: {statistics.median(paints):.0f} ms (of 5: {min(paints):.0f} to {max(paints):.0f})", flush=True)
    wait_for("a quiet server", lambda: _is_quiet(opened.pid))
    lose_watches(cluster, opened, connection, arguments.lost)
    ended = threading.Event()
    with ThreadPoolExecutor(arguments.pages + 1) as threads:
        listed, begin, used = lists(cluster.api), time.monotonic(), processor_seconds(opened.pid)
        changes = threads.submit(change_jobs, cluster, arguments.jobs, ended)
        clients = [threads.submit(follow, opened, ended) for _ in range(arguments.pages - 1)]
        for minute in range(1, round(arguments.minutes) + 1):
            time.sleep(max(begin + 60 * minute - time.monotonic(), 0))
            sizes = f"server {memory(opened.pid):.0f} MB, objects of the page {page.heap():.1f} MB"
            print(f"minute {minute}: {sizes}", flush=True)
        ended.set()
        used, passed = processor_seconds(opened.pid) - used, time.monotonic() - begin
        print(f"{changes.result()} changes in {passed:.0f} s, lists of jobs: {lists(cluster.api) - listed}")
        cluster.report(f"{samples()[0].name}-0", attempt=2)  # the last message of the streams
        reads = sum(each.result() for each in clients)
        print(f"processor time of the server: {used / passed:.2f} of a processor, {reads} reads of rows by the clients")


def kubeconfig_of(connection: Proxy, path: Path) -> Path:
    """The kubeconfig with the address of the proxy."""
    kubeconfig = yaml.safe_load(path.read_text())
    kubeconfig["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{connection.port}"
    made = path.with_name("proxied.kubeconfig")
    made.write_text(yaml.safe_dump(kubeconfig))
    return made


def main() -> None:
    """Creates the jobs, opens the pages and measures."""
    parser = argparse.ArgumentParser(description="Measures the dashboard's list of jobs.")
    parser.add_argument("--jobs", type=int, default=5000)
    parser.add_argument("--pages", type=int, default=20, help="open pages, one of them in Chromium")
    parser.add_argument("--lost", type=int, default=10, help="lost watches")
    parser.add_argument("--minutes", type=float, default=10, help="minutes of changes")
    arguments = parser.parse_args()
    with ControlPlane(controllers=True) as control_plane:
        api = Api(control_plane.kubeconfig)
        install_definition(api)
        api.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        cluster = ClusterState(api, NAMESPACE)
        print(f"created {arguments.jobs} jobs in {seconds_of(lambda: create_jobs(cluster, arguments.jobs)):.0f} s")
        with proxy(urlsplit(api.server).netloc) as connection:
            os.environ["KUBECONFIG"] = str(kubeconfig_of(connection, control_plane.kubeconfig))
            with dashboard("-w", NAMESPACE, is_open=False) as opened, chromium() as page:
                page.open(opened.address).shows("Jobs")
                opened.join(page)
                measure(cluster, page, opened, connection, arguments)


if __name__ == "__main__":
    main()
