"""Keras callbacks that commit and update the state of an elastic training."""

from typing import Any

import keras


class CommitStateCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Commits the state every `batches_per_commit` batches and at the end of each epoch. List it last."""

    def __init__(self, state: Any, batches_per_commit: int = 1) -> None:
        super().__init__()
        self.state = state
        self.batches_per_commit = batches_per_commit
        self.batches_remaining = batches_per_commit

    def on_train_begin(self, logs: Any = None) -> None:
        self.batches_remaining = self.batches_per_commit  # the same on existing and new ranks

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.batches_remaining -= 1
        if self.batches_remaining == 0:
            self.batches_remaining = self.batches_per_commit
            # Not after the last batch of an epoch: on_epoch_end commits.
            if not 0 < (self.params.get("steps") or 0) <= getattr(self.state, "batch", 0):
                self.commit()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.commit()

    def commit(self) -> None:
        """Commit the state. A subclass can override it."""
        self.state.commit()


class UpdateBatchStateCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Sets `state.batch` to the number of completed batches in this epoch.

    An epoch that is resumed after a reset ends when the batches before and after the reset complete it.
    """

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self.batches_before_reset = 0
        self.ends_epoch = False

    def on_train_begin(self, logs: Any = None) -> None:
        self.batches_before_reset = self.state.batch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.state.batch = self.batches_before_reset + batch + 1
        if self.batches_before_reset and not self.model.stop_training:
            self.ends_epoch = 0 < (self.params.get("steps") or 0) <= self.state.batch
            self.model.stop_training = self.ends_epoch

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if self.ends_epoch:  # ends only the epoch, not the training
            self.ends_epoch = self.model.stop_training = False
        self.batches_before_reset = 0
        self.state.batch = 0


class UpdateEpochStateCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Sets `state.epoch` to the number of completed epochs, including those before resets."""

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self.offset: int | None = None

    def on_train_begin(self, logs: Any = None) -> None:
        self.offset = None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if self.offset is None:  # `fit` counts from 0 again or from initial_epoch
            self.offset = self.state.epoch - epoch

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.state.epoch = (self.offset or 0) + epoch + 1
