"""A callback that acts after the first batch of a training, which builds the variables of some models."""

from typing import Any

import keras


class FirstBatchCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Calls `after_first_batch` once in each training: before the second batch, a validation or the end of the epoch.

    It does not override `on_train_batch_end`, because Keras would then wait for the metrics of every batch.
    """

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0
        self.waits_for_first_batch = True

    def after_first_batch(self) -> None:
        """Act when the variables of the model and of its optimizer exist."""

    def on_train_begin(self, logs: Any = None) -> None:
        self.steps = 0
        self.waits_for_first_batch = True

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._end_first_batch()
        self.steps += 1

    def on_test_begin(self, logs: Any = None) -> None:
        self._end_first_batch()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._end_first_batch()

    def _end_first_batch(self) -> None:
        if self.steps and self.waits_for_first_batch:
            self.waits_for_first_batch = False
            self.after_first_batch()
