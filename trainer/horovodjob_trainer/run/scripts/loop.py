"""A run of a script with a training loop of its own."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from horovodjob_trainer.hvd.leaving import common_end
from horovodjob_trainer.hvd.model_optimizers import used_optimizers
from horovodjob_trainer.hvd.presence import begin_step
from horovodjob_trainer.run.ranks import check_on_all_ranks
from horovodjob_trainer.run.scripts.batches import known_batches
from horovodjob_trainer.run.scripts.options import RunOptions
from horovodjob_trainer.run.scripts.session import ScriptSession, check_ranks, open_session
from horovodjob_trainer.watch.activity import ACTIVITY
from horovodjob_trainer.watch.sections import Section


class Run:
    """A run in a directory, which continues after the last checkpoint when the script starts again.

    `optimizer` is one or several optimizers, by default those of the model. The other arguments are those of
    `RunCallback`.
    """

    def __init__(
        self, directory: str | os.PathLike[str], model: Any, optimizer: Any | Sequence[Any] = None, **options: Any
    ) -> None:
        self._options = RunOptions(Path(directory), **options)
        check_ranks()
        if not model.built:
            raise ValueError("the model of a run must be built: add an Input, or call the model with a batch")
        given = [optimizer] if optimizer is not None and not isinstance(optimizer, Sequence) else optimizer
        self._model, self._optimizers = model, list(used_optimizers(model) if given is None else given)
        if not self._optimizers:
            raise ValueError("the run needs the optimizer: hvd.Run(directory, model, optimizer)")
        self._session: ScriptSession | None = None
        self._metrics: Mapping[str, Any] = {}

    def steps(self, data: Any, epochs: int = 1, steps_per_epoch: int | None = None) -> Iterator[Any]:
        """The batches of the steps that remain. The body of the loop is a step, on every rank.

        `data` is a tf.data.Dataset of this rank or `Examples`. After SIGTERM, the loop exits the process with code 143
        when the checkpoint of the last step is on the disk.
        """
        batches = check_on_all_ranks(lambda: known_batches(data, steps_per_epoch))
        with (
            open_session(self._options, batches, self._model, self._optimizers, epochs) as session,
            common_end(session.place),
        ):
            self._session = session
            state = session.state
            state.unvalidated = None
            while state.epoch < epochs:
                session.begin_epoch()
                epoch = state.epoch
                while state.epoch == epoch:
                    with ACTIVITY.section(Section.INPUT):
                        batch = session.next_batch()
                    if self.ends_epoch:  # the body of the loop can validate
                        session.begin_last_step()
                        if ACTIVITY.current is Section.STEP:
                            ACTIVITY.enter(Section.EPOCH_END)
                    begin_step()
                    yield batch
                    session.end_step(lambda: self._metrics)
                session.end_epoch(self._metrics)
                session.end_validation(self._metrics)
            session.end()

    @property
    def epoch(self) -> int:
        """The number of completed epochs."""
        return 0 if self._session is None else self._session.state.epoch

    @property
    def step(self) -> int:
        """The number of completed steps, of all starts."""
        return 0 if self._session is None else self._session.state.step

    @property
    def ends_epoch(self) -> bool:
        """Whether the current step is the last one of its epoch."""
        session = self._session
        return session is not None and session.step_in_epoch + 1 == session.steps_in_epoch

    def report(self, **metrics: Any) -> None:
        """Set the values for the next progress report of rank 0."""
        self._metrics = metrics
