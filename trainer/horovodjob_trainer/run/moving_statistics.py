"""The moving statistics of a model, such as those of BatchNormalization, of which each rank has its own in training."""

from collections.abc import Sequence
from typing import Any

from horovodjob_trainer import hvd


def moving_statistics(model: Any) -> list[Any]:
    """The variables that the forward pass changes: neither trained, nor of frozen layers, nor whole numbers."""
    frozen = {id(variable) for layer in model._flatten_layers() if not layer.trainable for variable in layer.weights}
    return [each for each in model.non_trainable_weights if "float" in each.dtype and id(each) not in frozen]


def average_moving_statistics(variables: Sequence[Any]) -> None:
    """Assign the averages over the ranks. Every rank must call it after the same step.

    The statistics are linear in those of the batches. So apart from rounding, the result is that of an average in each
    step, and an average between two others does not change the later one.
    """
    if variables and hvd.size() > 1:
        averages = hvd.grouped_allreduce([each.value for each in variables], op=hvd.Average, name="moving_statistics")
        for variable, average in zip(variables, averages, strict=True):
            variable.assign(average)
