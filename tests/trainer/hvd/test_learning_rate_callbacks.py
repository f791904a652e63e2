"""The callbacks that set the learning rate: what they ask of the device, which runs steps ahead of the host."""

from typing import Any

from horovodjob_trainer.hvd.learning_rate import LearningRateScheduleCallback


class Optimizer:
    """An optimizer that counts how often its learning rate is read and set."""

    def __init__(self) -> None:
        self.rate, self.reads, self.assignments = 1.0, 0, 0
        self.momentum, self.built = 0.0, True

    @property
    def learning_rate(self) -> float:
        self.reads += 1
        return self.rate

    @learning_rate.setter
    def learning_rate(self, rate: float) -> None:
        self.assignments += 1
        self.rate = rate


class Model:
    def __init__(self) -> None:
        self.optimizer = Optimizer()


def run(callback: Any, model: Model, *, epochs: int, steps: int) -> None:
    callback.set_model(model)
    callback.set_params({"steps": steps})
    callback.on_train_begin()
    for epoch in range(epochs):
        callback.on_epoch_begin(epoch)
        for batch in range(steps):
            callback.on_train_batch_begin(batch)


def test_a_warm_up_reads_the_rate_from_the_device_once_in_an_epoch() -> None:
    model = Model()
    run(LearningRateScheduleCallback(1.0, lambda epoch: 1 + epoch, staircase=False), model, epochs=2, steps=50)
    assert model.optimizer.rate == 1 + 1 + 49 / 50
    assert model.optimizer.reads == 2


def test_a_rate_that_stays_the_same_is_not_set_again() -> None:
    model = Model()
    run(LearningRateScheduleCallback(0.5, lambda epoch: 1.0, staircase=False), model, epochs=1, steps=50)
    assert model.optimizer.assignments == 1
