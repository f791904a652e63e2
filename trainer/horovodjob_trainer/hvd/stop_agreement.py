"""Ranks that end a training after the same step, although a callback has decided it on some of them only."""

import sys
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from horovodjob_trainer.hvd.exchange import exchange
from horovodjob_trainer.hvd.process_sets import UNSCOPED
from horovodjob_trainer.hvd.uneven_steps import listed, report_wait

PACKAGES = ("keras.", "horovodjob_trainer.")
BATCH_METHODS = ("on_batch_begin", "on_batch_end", "on_train_batch_begin", "on_train_batch_end")


def stop_agreement(callbacks: Sequence[Any], process_set: Any) -> "StopAgreement":
    """The callback that must be the last one of `fit`. Every rank calls it.

    It exchanges a number in each step only if a rank has a callback that can end the training after a step.
    """
    own = any(_acts_in_steps(each) for each in callbacks)
    in_steps = exchange.allgather_object(own, name="HorovodStopKind", process_set=process_set)
    return (StepStopAgreement if any(in_steps) else StopAgreement)(callbacks, process_set)


class StopAgreement(keras.callbacks.Callback):  # type: ignore[misc]
    """Ends the training on all ranks after the epoch in which callbacks end it on some of them.

    Raises RuntimeError if EarlyStopping ends it on some only: then it monitors another value on each rank.
    """

    def __init__(self, callbacks: Sequence[Any], process_set: Any) -> None:
        super().__init__()
        self.callbacks, self.process_set = callbacks, process_set
        self.is_agreed = False

    def on_train_begin(self, logs: Any = None) -> None:
        self.is_agreed = False

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if self.is_agreed:
            return
        own = self._stopping(epoch) if self.model.stop_training else None
        with report_wait(f"has ended epoch {epoch + 1} and waits for the other ranks"):
            ranks = exchange.allgather_object(own, name="HorovodStop", process_set=self.process_set)
        if not any(ranks) or all(ranks):
            return
        stopped, others = ([rank for rank, name in enumerate(ranks) if bool(name) == kind] for kind in (True, False))
        name = ranks[stopped[0]]
        text = f"{name} ends the training after epoch {epoch + 1} on {listed(stopped)} and not on {listed(others)}"
        if name.startswith("EarlyStopping"):
            raise RuntimeError(f"{text}: its metric differs between the ranks; list "
                               "hvd.callbacks.MetricAverageCallback() before it")  # fmt: skip
        self._stop(text)

    def _stop(self, text: str) -> None:
        self.is_agreed = self.model.stop_training = True
        if exchange.rank() == 0:
            print(f"Horovod: {text}, so it ends on all ranks", file=sys.stderr, flush=True)

    def _stopping(self, epoch: int) -> str:
        """The callback that has probably ended the training."""
        for each in self.callbacks:
            if isinstance(each, keras.callbacks.EarlyStopping) and each.stopped_epoch == epoch:
                return f"EarlyStopping of {each.monitor}"
        names = [type(each).__name__ for each in self.callbacks if _acts_in_steps(each) or _is_own(each)]
        return " or ".join(dict.fromkeys(names)) or "a callback"


class StepStopAgreement(StopAgreement):
    """Ends the training on all ranks after the step in which a callback ends it on some of them."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        own = tf.constant(int(self.model.stop_training), tf.int32)
        count = exchange.allreduce(
            own, op=exchange.Sum, name="HorovodStepStop", process_set=self.process_set, **UNSCOPED
        )
        if not int(count):
            return
        if int(count) == self.process_set.size():
            self.is_agreed = True
            return
        names = exchange.allgather_object(
            self._stopping(-1) if self.model.stop_training else None,
            name="HorovodStop",
            process_set=self.process_set,
        )
        stopped = [rank for rank, name in enumerate(names) if name]
        self._stop(f"{names[stopped[0]]} ends the training after step {batch + 1} of the epoch on {listed(stopped)}")


def _acts_in_steps(callback: Any) -> bool:
    """Whether a callback can end the training after a step."""
    if isinstance(callback, keras.callbacks.TerminateOnNaN | keras.callbacks.LambdaCallback):
        return True
    return _is_own(callback) and any(
        getattr(type(callback), name) is not getattr(keras.callbacks.Callback, name) for name in BATCH_METHODS
    )


def _is_own(callback: Any) -> bool:
    """Whether a callback is one of the script."""
    return not type(callback).__module__.startswith(PACKAGES)
