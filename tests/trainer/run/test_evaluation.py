"""An evaluation waits for the device at its end only."""

from typing import Any

import numpy as np
import pytest


def test_the_logs_of_a_batch_are_not_converted_during_an_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    import keras
    from keras.src.callbacks import callback_list

    from horovodjob_trainer.run.metrics import evaluation
    from horovodjob_trainer.run.termination import Termination

    rounds: list[bool] = []
    conversions: list[Any] = []
    convert = callback_list.python_utils.pythonify_logs

    def no_termination(requested: bool, seconds: float) -> tuple[bool, int]:
        rounds.append(requested)
        return False, 1

    def counted(logs: Any) -> Any:
        conversions.append(logs)
        return convert(logs)

    monkeypatch.setattr(evaluation, "termination_is_requested", no_termination)
    monkeypatch.setattr(callback_list.python_utils, "pythonify_logs", counted)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(loss="mse")
    callbacks = evaluation._TerminationRounds(model, Termination())
    values = model.evaluate(
        np.zeros((40, 2)), np.ones((40, 1)), batch_size=2, verbose=0, return_dict=True, callbacks=callbacks
    )
    assert values["loss"] == pytest.approx(1.0)
    assert len(rounds) == 20
    assert len([logs for logs in conversions if logs]) <= 1
