"""Two places where Keras must know that an optimizer is distributed. Optimizers that are not behave as ever."""

from typing import Any

import keras

from horovodjob_trainer.hvd.optimizer import distribution_of, is_distributed, variables_of

LossScaleOptimizer = keras.optimizers.LossScaleOptimizer


def teach_keras() -> None:
    """Replaces LossScaleOptimizer's `apply` and `check_finite` and the choice that jit_compile="auto" makes."""
    if getattr(LossScaleOptimizer, "_knows_horovod", False):
        return
    LossScaleOptimizer._knows_horovod = True
    _decide_together_which_steps_to_skip()
    _choose_no_xla()


def _decide_together_which_steps_to_skip() -> None:
    # `Model.compile` wraps a distributed optimizer itself under the policy mixed_float16. A rank that skipped a step
    # alone would leave the others waiting for its gradients.
    own_apply, own_check_finite = LossScaleOptimizer.apply, LossScaleOptimizer.check_finite

    def apply(self: Any, grads: Any, trainable_variables: Any = None) -> Any:
        distribution = distribution_of(self)
        if distribution is None or distribution.at_update:
            return own_apply(self, grads, trainable_variables)
        # Reduced first, they are finite on all ranks or on none, and what compression made infinite is seen.
        reduced = distribution.exchange(list(grads), variables_of(self, trainable_variables))
        with distribution.done():
            return own_apply(self, reduced, trainable_variables)

    def check_finite(self: Any, grads: Any) -> Any:
        finite = own_check_finite(self, grads)
        distribution = distribution_of(self)
        if distribution is None or not distribution.at_update:
            return finite
        return distribution.exchange.all_agree(finite)

    LossScaleOptimizer.apply = apply
    LossScaleOptimizer.check_finite = check_finite


def _choose_no_xla() -> None:
    # On a GPU "auto" means XLA, which cannot compile the exchange.
    trainer = next(kind for kind in keras.Model.__mro__ if "_resolve_auto_jit_compile" in vars(kind))
    own_choice = trainer._resolve_auto_jit_compile

    def _resolve_auto_jit_compile(self: Any) -> bool:
        return not is_distributed(self.optimizer) and own_choice(self)

    trainer._resolve_auto_jit_compile = _resolve_auto_jit_compile
