"""`horovodjob.Client`: what `hvj` does, for programs and notebooks.

Every method raises ClientError, whose message is a sentence for the user, or an OSError of a local file.
"""

import functools
from collections.abc import Callable, Iterator, Mapping
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Concatenate, ParamSpec, TypeVar, Unpack

from horovodjob import training_history
from horovodjob.api.constants import Phase, Role
from horovodjob.azurefiles.credentials import Options
from horovodjob.client.cluster import kube
from horovodjob.client.cluster.watch import wait_for_deletion
from horovodjob.client.errors import UsageError, translated
from horovodjob.client.files.file_transfers import download_to
from horovodjob.client.files.job_files import STDOUTERR, open_directory
from horovodjob.client.jobs import batchai_records, job_creation, logs, sweep_records, termination
from horovodjob.client.jobs import sweep as sweeps
from horovodjob.client.jobs.logs import Line
from horovodjob.client.jobs.wait_limit import WaitLimit, limited_versions
from horovodjob.client.messages import Display
from horovodjob.client.runs import execution
from horovodjob.client.runs import sweep as run_sweeps
from horovodjob.client.runs.options import RunAndSweepOptions, RunOptions, SweepOptions, definition_fields, divided
from horovodjob.client.runs.request import request_of
from horovodjob.sweeps.definition import Definition
from horovodjob.sweeps.trials import Trial

Object = dict[str, Any]
Rows = list[Object]
FROM_ENVIRONMENT = Options()
Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Job:
    """A HorovodJob as the API server returned it; `Client.get` returns its later state."""

    manifest: Object = field(repr=False)

    def __repr__(self) -> str:
        return f"Job(name={self.name!r}, namespace={self.namespace!r}, phase={self.phase!r})"

    @property
    def name(self) -> str:
        """The name that the user chose."""
        return batchai_records.display_name(self.manifest)

    @property
    def namespace(self) -> str:
        return str(self.manifest["metadata"]["namespace"])

    @property
    def status(self) -> Object:
        """The status as the operator reports it."""
        return dict(self.manifest.get("status") or {})

    @property
    def phase(self) -> str:
        """Queued, Starting, Running, Restarting, Suspended, Terminating, Succeeded or Failed."""
        return str(self.status.get("phase") or Phase.QUEUED)

    @property
    def message(self) -> str | None:
        """What the job waits for, or why it failed."""
        return batchai_records.message(self.status)

    @property
    def is_finished(self) -> bool:
        """Whether the job is Succeeded or Failed, which never changes."""
        return batchai_records.is_finished(self.manifest)

    @property
    def exit_code(self) -> int | None:
        """The exit code of a finished job: its own, or 255 if it failed without one."""
        return batchai_records.exit_code(self.manifest) if self.is_finished else None

    @property
    def training(self) -> Object:
        """Progress of the training: epoch, epochs, progress, metrics, eta; empty before the first report."""
        return dict(self.status.get("training") or {})

    @property
    def history(self) -> Rows:
        """A row for each epoch: job, epoch, time, learningRate, samplesPerSecond, and each metric under its name."""
        return training_history.rows(self.manifest)

    @property
    def best(self) -> Object:
        """The best epoch: metric, mode, value and epoch; without mode and value if the program declares no mode."""
        return dict(self.training.get("best") or {})


JobName = str | Job
Jobs = list[Job]
Trials = list[Trial]


def _connected(
    method: Callable[Concatenate["Client", Parameters], Result],
) -> Callable[Concatenate["Client", Parameters], Result]:
    """The method with the connection of its client, and with errors of other libraries as ClientError."""

    @functools.wraps(method)
    def call(client: "Client", /, *arguments: Parameters.args, **options: Parameters.kwargs) -> Result:
        return _run(client.context.copy(), functools.partial(method, client, *arguments, **options))

    return call


def _run(context: Context, function: Callable[[], Result]) -> Result:
    try:
        return context.run(function)
    except Exception as error:
        if found := translated(error):
            raise found from error
        raise


class Client:
    """A connection to a cluster: the kubeconfig's, or the pod's own. Clients of several clusters work side by side.

    Jobs are in `namespace`, by default that of the kubeconfig's context. Methods take a Job or its name.
    """

    def __init__(
        self, namespace: str | None = None, *, kubeconfig: str | PathLike[str] | None = None, context: str | None = None
    ) -> None:
        self.context = copy_context()
        _run(self.context, lambda: kube.choose(None if kubeconfig is None else str(kubeconfig), context))
        self.namespace: str = _run(self.context, lambda: kube.namespace(namespace))

    @_connected
    def run(
        self,
        program: str | Callable[..., Any] | None = None,
        *arguments: object,
        source: JobName | None = None,
        timeout: float | None = None,
        **options: Unpack[RunOptions],
    ) -> Job:
        """Create a job that runs a script of a directory, or a function, and return it.

        The directory (`workdir`, by default the current one) is sent to the `share` of Azure Files or to the
        PersistentVolumeClaim `claim`, which the job mounts, and without both as a ConfigMap. Of a function, its source
        is sent. `source` is a job to run again with these changes, in which case all words are its new arguments.
        Directories that are left out by default are named on standard error, unless `quiet` is set. Raises UsageError;
        TimedOut if the pod that receives the directory on a claim has not started after `timeout` seconds.
        """
        with TemporaryDirectory(prefix="hvj-run-") as directory:
            request = request_of(program, arguments, options, Path(directory), source=_source_name(source))
            display = Display(quiet=options.get("quiet", False))
            return Job(execution.create(request, self.namespace, WaitLimit(timeout), display))

    @_connected
    def get(self, job: JobName) -> Job:
        """The job as it is now. Raises NotFound."""
        return Job(self._find(job))

    @_connected
    def list(self, experiment: str | None = None) -> Jobs:
        """The jobs of the namespace, or of one experiment, the oldest first."""
        return [Job(each) for each in kube.jobs(self.namespace, experiment)]

    @_connected
    def wait(
        self,
        job: JobName,
        progress: Callable[[Job], None] | None = None,
        *,
        timeout: float | None = None,
        wait_stalled: bool = False,
    ) -> Job:
        """The job after its end; `progress` gets it now and after each change.

        Raises Stalled if the job has been stalled for 15 s and only you can correct it, unless `wait_stalled` is set;
        TimedOut after `timeout` seconds; NotFound if the job is deleted.
        """
        limit = WaitLimit(timeout, waits_for_stalled=wait_stalled)
        for version in limited_versions(self._find(job), limit):
            if progress is not None:
                progress(Job(version))
            if batchai_records.is_finished(version):
                break
        return Job(version)

    def logs(
        self,
        job: JobName,
        *,
        follow: bool = True,
        role: Role | str | None = None,
        worker: int | None = None,
        tail: int | None = None,
        timeout: float | None = None,
        wait_stalled: bool = False,
    ) -> Iterator[Line]:
        """The lines of the job's containers, each with `source` (launcher, worker-0), `text` and `data` (its bytes).

        With `follow`, until the job ends, across restarts. `tail` limits the lines of each pod to begin with. Raises as
        `wait` does.
        """
        context = self.context.copy()
        selection = logs.Selection(Role(role) if role is not None else None, worker, tail)
        limit = WaitLimit(timeout, waits_for_stalled=wait_stalled)
        lines = _run(context, lambda: logs.lines(self._find(job), selection, limit, follow=follow))
        end = object()
        while (line := _run(context, lambda: next(lines, end))) is not end:
            if isinstance(line, Line):
                yield line

    @_connected
    def sweep(
        self,
        sweep: Mapping[str, Any] | PathLike[str] | str | Callable[..., Any] | None = None,
        *arguments: object,
        parameters: Mapping[str, Any] | None = None,
        source: JobName | None = None,
        progress: Callable[[str], None] | None = None,
        timeout: float | None = None,
        wait_stalled: bool = False,
        **options: Unpack[RunAndSweepOptions],
    ) -> Trial:
        """Run a sweep until all its trials have ended, and return the best one; one that was interrupted continues.

        With `parameters`, the other arguments are those of `run`: a program with its directory, or a job to run again,
        gets each parameter as --NAME=VALUE, and a function by its name. Without, `sweep` is a definition, the
        pathlib.Path of a file with one, or the name of a sweep that has jobs. `new` tries all again with changed code,
        image or settings. `progress` gets a line for each trial that begins or ends. Raises ClientError if no trial is
        complete, or if neither `goal` nor a program says what is best, and as `wait` does.
        """
        run_options, settings = divided(options)
        show, limit = progress or (lambda line: None), WaitLimit(timeout, waits_for_stalled=wait_stalled)
        if parameters is None:
            if arguments or run_options or source is not None:
                raise UsageError("a sweep of a program needs parameters, such as parameters={'lr': 'log:1e-4:1e-1'}")
            definition, is_new = self._definition(sweep, settings), settings.get("new", False)
            running = sweeps.Sweep(definition, self.namespace, show, is_new=is_new)
            job_creation.check_needs(running.first_job())
            running.run(limit)
            return running.complete()
        if sweep is not None and not isinstance(sweep, str) and not callable(sweep):
            raise UsageError("parameters are those of a script or a function; a definition has its own")
        with TemporaryDirectory(prefix="hvj-run-") as directory:
            request = request_of(sweep, arguments, run_options, Path(directory), source=_source_name(source))
            display = Display(quiet=run_options.get("quiet", False))
            with run_sweeps.prepared(request, self.namespace, parameters, settings, show, limit, display) as running:
                running.run(limit)
            return running.complete()

    def _definition(self, sweep: object, settings: SweepOptions) -> Definition:
        changes = definition_fields(settings)
        if isinstance(sweep, str):
            return sweep_records.existing(sweep, self.namespace, **changes)
        if isinstance(sweep, Mapping):
            return sweep_records.parsed("the sweep", sweep, **changes)
        if isinstance(sweep, PathLike):
            return sweep_records.of_file(Path(sweep), **changes)
        raise UsageError("name a sweep, or a script with parameters={'lr': 'log:1e-4:1e-1'}")

    @_connected
    def trials(self, sweep: str) -> Trials:
        """The trials of a sweep so far, by number. Raises NotFound."""
        jobs = sweep_records.jobs_of(sweep, self.namespace)
        return [*sweep_records.trials_of(jobs, sweep_records.of_jobs(sweep, jobs)).values()]

    @_connected
    def history(self, job: JobName) -> Rows:
        """The rows of `Job.history`, as `pandas.DataFrame(rows)` takes them."""
        return Job(self._find(job)).history

    @_connected
    def download(
        self,
        job: JobName,
        destination: str | PathLike[str] = ".",
        *,
        output: str = STDOUTERR,
        path: str = ".",
        account: Options = FROM_ENVIRONMENT,
        timeout: float | None = None,
    ) -> Path:
        """Download a file or a directory of one of the job's outputs, its log files by default.

        `output` is an id of spec.outputs, `path` is below it. Returns the new path, which is below `destination` if
        that is a directory. Raises TimedOut if the pod that reads a volume has not started after `timeout` seconds.
        """
        with open_directory(self._find(job), output, path, account, WaitLimit(timeout)) as place:
            record = download_to(Path(destination), place.store, place.path, name=output, display=Display(quiet=True))
        return Path(record["name"])

    @_connected
    def terminate(self, job: JobName, *, wait: bool = True, timeout: float | None = None) -> Job:
        """End a job permanently; its record, logs and files remain. A job that has ended stays as it is.

        Raises TimedOut after `timeout` seconds.
        """
        return Job(termination.terminate(self._find(job), wait=wait, timeout=timeout))

    @_connected
    def delete(self, job: JobName, *, wait: bool = True, timeout: float | None = None) -> None:
        """Delete a job and its pods; files on a share remain. Raises NotFound, and TimedOut after `timeout` seconds."""
        found = self._find(job)
        kube.delete_job(found)
        if wait:
            limit, name = WaitLimit(timeout), batchai_records.display_name(found)
            wait_for_deletion(found, lambda: limit.check_time(f"job {name} and its pods were not deleted"))

    def _find(self, job: JobName) -> Object:
        if isinstance(job, Job):
            return kube.job(job.manifest["metadata"]["name"], job.namespace)
        return kube.job(job, self.namespace)


def _source_name(source: JobName | None) -> str | None:
    return source.name if isinstance(source, Job) else source
