"""Former name of the tutorial's network, for what still imports it."""

from typing import Any

from horovodjob_trainer import models


def tutorial_cnn(*, dropout: bool = True) -> Any:
    return models.tutorial_cnn((32, 32, 3), 10, dropout)
