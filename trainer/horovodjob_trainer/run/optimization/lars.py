"""The optimizer LARS, which Keras does not have."""

from typing import Any

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="horovodjob_trainer")
class LARS(keras.optimizers.SGD):  # type: ignore[misc]
    """SGD with momentum and a learning rate for each layer (You et al. 2017, arXiv:1708.03888, algorithm 1).

    The rate of a layer is the learning rate times `trust_coefficient` * |w| / (|g| + `weight_decay` * |w|), for weights
    w and gradient g, which includes the weight decay. Variables without weight decay, such as biases, are trained with
    the learning rate itself.
    """

    def __init__(
        self,
        learning_rate: Any = 0.01,
        momentum: float = 0.9,
        trust_coefficient: float = 0.001,
        name: str = "LARS",
        **settings: Any,
    ) -> None:
        super().__init__(learning_rate, momentum, name=name, **settings)
        self.trust_coefficient = trust_coefficient

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Apply the gradient of a variable."""
        if self._use_weight_decay(variable):
            gradient = self._scaled(ops.cast(gradient, variable.dtype), variable)
        super().update_step(gradient, variable, learning_rate)

    def _scaled(self, gradient: Any, variable: Any) -> Any:
        decay = self.weight_decay or 0.0
        weight_norm, gradient_norm = ops.norm(ops.reshape(variable, (-1,))), ops.norm(ops.reshape(gradient, (-1,)))
        divisor = gradient_norm + decay * weight_norm
        is_defined = ops.logical_and(weight_norm > 0, divisor > 0)
        ratio = self.trust_coefficient * weight_norm / ops.where(is_defined, divisor, 1.0)
        return (gradient + decay * variable) * ops.where(is_defined, ratio, 1.0)

    def _apply_weight_decay(self, variables: Any) -> None:
        """Nothing: the decay is part of the gradient."""

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "trust_coefficient": self.trust_coefficient}
