"""The last checkpoint of a run while a rank waits for data that does not come."""

import time
from collections.abc import Sequence

import tensorflow as tf

from horovodjob_trainer import hvd
from horovodjob_trainer.run.ranks import log
from horovodjob_trainer.run.session import Session
from horovodjob_trainer.run.termination import LoopStage

ROUND_SECONDS = 1.0


def save_blocked(session: Session) -> None:
    """Write the checkpoint of the last step while a rank waits for a batch that does not come.

    The SIGTERM threads of all ranks call it, and return when the checkpoint is on the disk. They do not return if no
    rank waits, or if one has not received the signal. They exchange messages by an operation that the steps do not use.
    """
    while not _is_saved(session):
        time.sleep(ROUND_SECONDS)


def _is_saved(session: Session) -> bool:
    _messages([0, 0])  # all ranks are here: from now on, none waits long for another
    values, step = session.values, session.state.step
    with session.termination.held() as stage:
        ranks = _messages([step, stage])
        waiting = [rank for rank, (_, each) in enumerate(ranks) if each == LoopStage.BATCH]
        are_between = all(number == step and each != LoopStage.ELSEWHERE for number, each in ranks)
        has_gradients = values.accumulate > 1 and len(ranks) > 1
        if not (waiting and are_between and values.are_updated) or has_gradients:
            return False
        deadline = session.termination.begin_last_write()
        _use_values_of(session, waiting[0])
        if session.writer is not None:
            names = session.coordination.rank_names(waiting)
            log(f"The data does not respond: after SIGTERM, the next batch is missing on {names}")
            session.finish_write(session.writer, deadline)
        _messages([0, 0])  # the other ranks stay alive until the checkpoint is on the disk
    return True


def _use_values_of(session: Session, rank: int) -> None:
    """Give all ranks the values after the last step of one that waits: the others can be in the next step.

    The next step changes their counters and statistics, but no weight, as it needs this rank.
    """
    session.values.prepare_checkpoint()
    if hvd.size() > 1:
        hvd.broadcast_variables(session.values.variables, root_rank=rank)
    session.state.draws = hvd.broadcast_object(session.state.draws, root_rank=rank)


def _messages(own: Sequence[int]) -> list[list[int]]:
    """The numbers of all ranks."""
    if hvd.size() == 1:
        return [list(own)]
    with tf.device("CPU:0"):  # the steps may occupy the device
        sent = tf.constant([own] * hvd.size(), tf.int64)
        received: list[list[int]] = hvd.alltoall(sent, name="last_checkpoint").numpy().tolist()
    return received
