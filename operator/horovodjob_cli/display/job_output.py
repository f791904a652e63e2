"""The output of a job as it arrives, with its progress: lines on standard output, everything else on standard error."""

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import Any

from horovodjob.api.constants import Phase, Role
from horovodjob.api.managed_by import is_dispatched
from horovodjob.client.errors import NotFound
from horovodjob.client.jobs import batchai_records, logs, other_cluster
from horovodjob.client.jobs.log_lines import is_bar
from horovodjob.client.jobs.logs import Line, Selection, Unfinished
from horovodjob.client.jobs.wait_limit import WaitLimit
from horovodjob.client.messages import message
from horovodjob.escaping import COLOR, escaped
from horovodjob.terminal import Terminal
from horovodjob_cli.display.image_pulls import ImagePulls
from horovodjob_cli.display.job_wait import error_lines, progress_text, training_text, transition_text
from horovodjob_cli.display.line_writer import LineWriter
from horovodjob_cli.display.wait_notices import WaitNotices

Object = dict[str, Any]
OUTPUT = Selection(Role.LAUNCHER)  # mpirun forwards that of all ranks
BAR_WIDTH = 20


def show_output(job: Object, limit: WaitLimit, *, quiet: bool, raw: bool = False) -> Object:
    """The job after its end; until then shows the output from its first line, transitions and the progress.

    `raw` shows the bytes of the program, which can control a terminal. Raises NotFound if the job is deleted, Stalled,
    TimedOut.
    """
    before, has_lines = "", False
    with _display(quiet=quiet, raw=raw) as display:
        if batchai_records.is_finished(job):
            for line in logs.current_lines(job, OUTPUT):
                has_lines = True
                display.line(line.data)
        else:
            if not quiet:
                display.pulls = ImagePulls(job, lambda text: display.note(_timed(text)))
                display.pulls.follow()
            notices = WaitNotices(lambda text: None if quiet else display.note(_timed(text)))
            for news in logs.followed_job(job, OUTPUT):
                match news:
                    case Line():
                        has_lines = True
                        display.line(news.data)
                    case Unfinished():
                        display.state(news.data)
                    case None:
                        notices.look(job)
                    case _:
                        job = news
                        transition = transition_text(job)
                        if transition != before and not quiet:
                            display.note(_timed(transition))
                            if is_dispatched(job["spec"]):
                                display.note(other_cluster.whereabouts(job))
                        before = transition
                        display.progress(job)
                limit.check(job)
        display.end()
    if not batchai_records.is_finished(job):
        raise NotFound(f"job {batchai_records.display_name(job)} was deleted; its output ends here")
    for error in error_lines(job, shown=OUTPUT.role if has_lines and OUTPUT.role else ""):
        message(f"{error}")
    return job


def _timed(text: str) -> str:
    return f"{time.strftime('%H:%M:%S')} {text}"


class _Display:
    """Plain lines, for a pipe."""

    pulls: ImagePulls | None = None

    def __init__(self, *, raw: bool) -> None:
        self._writer = LineWriter(raw=raw)

    def line(self, data: bytes) -> None:
        """A line of the job's output."""
        self._writer.line(data)

    def state(self, data: bytes) -> None:
        """The state of a progress bar of the job."""
        self._writer.state(data)

    def note(self, text: str) -> None:
        """A line about the job."""
        self._writer.clear()
        message(f"{text}")

    def progress(self, job: Object) -> None:
        """Show the progress of the job."""

    def end(self) -> None:
        """Show what the program could still have changed."""
        self._writer.end()


class _Bar(_Display):
    """A progress bar in the last line of the terminal."""

    def __init__(self) -> None:
        super().__init__(raw=False)
        self.state_text = ""
        self._terminal = Terminal()
        self._bars: Any = None
        self._task: Any = None
        self._job: Object | None = None

    def begin(self, bars: Any) -> None:
        """Show the bar by this widget, which asks for its texts."""
        self._bars, self._task = bars, bars.add_task("", total=1)

    def text(self) -> str:
        """The text beside the bar at this moment."""
        if self._job is None:
            return ""
        status, now = self._job.get("status", {}), time.time()
        pull = self.pulls.text(now=now) if self.pulls and status.get("phase") == Phase.STARTING else ""
        return training_text(status, now=now) or "  ".join(filter(None, (progress_text(self._job, now=now), pull)))

    def line(self, data: bytes) -> None:
        self.state_text = ""
        if not sys.stdout.isatty():
            super().line(data)
            return
        self._print(self._terminal.line(data.decode(errors="replace")))

    def state(self, data: bytes) -> None:
        if is_bar(data):
            rows = self._terminal.shown(data.decode(errors="replace"))
            self.state_text = COLOR.sub("", rows[-1]) if rows else ""

    def end(self) -> None:
        self.state_text = ""
        super().end()
        self._print(self._terminal.rest())

    def _print(self, rows: list[str]) -> None:
        from rich.text import Text

        for row in rows:
            self._bars.console.print(Text.from_ansi(row), soft_wrap=True)

    def note(self, text: str) -> None:
        from rich.text import Text

        self._bars.console.print(Text(escaped(text), style="dim"), soft_wrap=True)

    def progress(self, job: Object) -> None:
        self._job = job
        training = job.get("status", {}).get("training") or {}
        self._bars.update(self._task, completed=training.get("progress", 0))


@contextlib.contextmanager
def _display(*, quiet: bool, raw: bool) -> Iterator[_Display]:
    if quiet or raw or not sys.stderr.isatty():
        yield _Display(raw=raw)
        return
    from rich.console import Console, Group
    from rich.progress import BarColumn, Progress, ProgressColumn, Task
    from rich.table import Column
    from rich.text import Text

    class Moment(ProgressColumn):
        """Text that changes with the time."""

        def render(self, task: Task) -> Text:
            return Text(escaped(bar.text()))

    class Lines(Progress):
        """The state of the program's own progress bar above that of the job."""

        def get_renderable(self) -> Any:
            state = Text(bar.state_text, no_wrap=True, overflow="ellipsis")
            return Group(state, super().get_renderable()) if state else super().get_renderable()

    columns = (BarColumn(BAR_WIDTH), Moment(Column(no_wrap=True, overflow="ellipsis")))
    console = Console(stderr=True, highlight=False)
    bar = _Bar()
    bars = Lines(*columns, console=console, transient=True, refresh_per_second=4)
    bar.begin(bars)
    with bars:
        yield bar
