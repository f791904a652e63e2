"""Settings of the reduction on so many ranks that sums are rounded: equal bits, and the weights of one process."""

from typing import Any

import horovod.tensorflow as horovod
import keras
import numpy as np
import tensorflow as tf

from horovodjob_trainer import hvd
from horovodjob_trainer.hvd.bfloat16 import reduce_as_bfloat16
from trainer.hvd.cases.optimizers import Way, check, word_model
from trainer.hvd.cases.shared import are_equal, of_ranks

optimizers = keras.optimizers


def test_settings_of_the_reduction_do_not_change_the_training() -> None:
    fp16, bf16 = hvd.Compression.fp16, hvd.Compression.bf16
    pair = hvd.add_process_set([0, 1])

    def sgd() -> Any:
        return optimizers.SGD(0.1)

    check(
        {
            "sum": Way(lambda: optimizers.SGD(0.1 / hvd.size()), lambda model: {"op": hvd.Sum}, alone=sgd),
            "fp16": Way(sgd, lambda model: {"compression": fp16}, tolerance=0.01),
            "fp16 of fp16": Way(sgd, lambda model: {"compression": fp16}, policy="mixed_float16", tolerance=0.01),
            "bf16": Way(sgd, lambda model: {"compression": bf16}, tolerance=0.02, traced=True),
            "predivided": Way(sgd, lambda model: {"gradient_predivide_factor": 4.0}),
            "buckets": Way(sgd, lambda model: {"bucket_bytes": 50}, traced=True),
            "buckets of slices": Way(sgd, lambda model: {"bucket_bytes": 50}, model=word_model),
            "three groups": Way(sgd, lambda model: {"groups": 3}),
            "given groups": Way(sgd, lambda model: {"groups": [model.trainable_variables[1:3]]}),
            "slices as dense": Way(sgd, lambda model: {"sparse_as_dense": True}, model=word_model),
            "process set": Way(sgd, lambda model: {"process_set": pair}, ranks=2),
        }
    )


def test_bfloat16_is_first_added_within_each_node_if_it_has_several_ranks() -> None:
    """As if the ranks were on two nodes."""

    @tf.function  # type: ignore[untyped-decorator]
    def averages(*tensors: tf.Tensor) -> list[tf.Tensor]:
        return reduce_as_bfloat16(tensors, "sums", hvd.Average, horovod.global_process_set, hvd.size() // 2)

    shapes = [(3, 5), (7,), (1,), (11, 2)]  # 45 elements, which four ranks cannot divide equally
    own = [np.random.default_rng(hvd.rank()).normal(size=shape).astype(np.float32) for shape in shapes]
    found = [average.numpy() for average in averages(*map(tf.constant, own))]
    ranks = of_ranks(own)
    for number, average in enumerate(found):
        mean = np.mean([values[number] for values in ranks], axis=0)
        np.testing.assert_allclose(average, mean, rtol=0.01, atol=0.01)  # bfloat16 has 8 significant bits
        assert are_equal(average)
