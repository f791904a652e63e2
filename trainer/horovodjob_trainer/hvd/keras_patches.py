"""Patches of Keras for distributed optimizers. The behavior of other optimizers does not change."""

import functools
from typing import Any

import keras

from horovodjob_trainer.hvd.callbacks import MetricAverageCallback
from horovodjob_trainer.hvd.optimizer import gradient_reduction, gradient_variables, is_distributed
from horovodjob_trainer.hvd.optimizer_copies import patch_copies
from horovodjob_trainer.hvd.synchronized_statistics import patch_batch_normalization
from horovodjob_trainer.hvd.training_checks import patch_fit
from horovodjob_trainer.watch.activity import ACTIVITY
from horovodjob_trainer.watch.sections import Section

LossScaleOptimizer = keras.optimizers.LossScaleOptimizer


def patch_keras() -> None:
    """Patch loss scaling, jit_compile="auto", the creation of copies, `fit`, `evaluate` and batch normalization."""
    if getattr(LossScaleOptimizer, "_is_patched_for_horovod", False):
        return
    LossScaleOptimizer._is_patched_for_horovod = True
    _patch_loss_scaling()
    _patch_automatic_xla()
    patch_copies()
    patch_fit()
    _patch_evaluate()
    patch_batch_normalization()


def _patch_loss_scaling() -> None:
    # With the policy mixed_float16, `Model.compile` wraps a distributed optimizer. All ranks must skip the same steps:
    # if one rank skipped a step, the others would wait for its gradients.
    original_apply, original_check_finite = LossScaleOptimizer.apply, LossScaleOptimizer.check_finite

    def apply(self: Any, grads: Any, trainable_variables: Any = None) -> Any:
        reduction = gradient_reduction(self)
        if reduction is None or reduction.is_at_update:
            return original_apply(self, grads, trainable_variables)
        # After the reduction, gradients are finite on all ranks or on none, including overflows from compression.
        reduced = reduction.reducer(list(grads), gradient_variables(self, trainable_variables))
        with reduction.already_reduced():
            return original_apply(self, reduced, trainable_variables)

    def check_finite(self: Any, grads: Any) -> Any:
        finite = original_check_finite(self, grads)
        reduction = gradient_reduction(self)
        if reduction is None or not reduction.is_at_update:
            return finite
        return reduction.reducer.is_true_on_all_ranks(finite)

    LossScaleOptimizer.apply = apply
    LossScaleOptimizer.check_finite = check_finite


def _patch_evaluate() -> None:
    # Keras gives callbacks a copy of the metrics that it returns.
    trainer = next(kind for kind in keras.Model.__mro__ if "evaluate" in vars(kind))
    original_evaluate = trainer.evaluate

    @functools.wraps(original_evaluate)
    def evaluate(self: Any, *args: Any, **kwargs: Any) -> Any:
        with ACTIVITY.section(Section.VALIDATION):
            result = original_evaluate(self, *args, **kwargs)
        callbacks = kwargs.get("callbacks")
        for callback in callbacks if isinstance(callbacks, list | tuple) else (callbacks,):
            if isinstance(callback, MetricAverageCallback) and callback.evaluation:
                is_dict = isinstance(result, dict)
                return callback.evaluation if is_dict else self._flatten_metrics_in_order(callback.evaluation)
        return result

    trainer.evaluate = evaluate


def _patch_automatic_xla() -> None:
    # On a GPU, "auto" means XLA, which cannot compile the allreduce.
    trainer = next(kind for kind in keras.Model.__mro__ if "_resolve_auto_jit_compile" in vars(kind))
    original_resolve = trainer._resolve_auto_jit_compile

    def _resolve_auto_jit_compile(self: Any) -> bool:
        return not is_distributed(getattr(self, "optimizer", None)) and original_resolve(self)

    trainer._resolve_auto_jit_compile = _resolve_auto_jit_compile
