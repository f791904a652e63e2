"""Averages as bfloat16 on four ranks, as if they were on two nodes: `node_sums.py`. Each rank checks the result."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import horovod.tensorflow as horovod
import numpy as np
import tensorflow as tf

from horovodjob_trainer import hvd
from horovodjob_trainer.hvd.bfloat16 import reduce_as_bfloat16

RANKS_PER_NODE = 2


@tf.function  # type: ignore[untyped-decorator]
def averages(*tensors: tf.Tensor) -> list[tf.Tensor]:
    return reduce_as_bfloat16(tensors, "sums", hvd.Average, horovod.global_process_set, RANKS_PER_NODE)


tf.config.threading.set_intra_op_parallelism_threads(1)
hvd.init()
assert hvd.size() == 2 * RANKS_PER_NODE
shapes = [(3, 5), (7,), (1,), (11, 2)]  # 45 elements, which four ranks cannot divide equally
own = [np.random.default_rng(hvd.rank()).normal(size=shape).astype(np.float32) for shape in shapes]
found = [average.numpy() for average in averages(*map(tf.constant, own))]
ranks = hvd.allgather_object((own, found))
for number, average in enumerate(found):
    mean = np.mean([values[number] for values, _ in ranks], axis=0)
    np.testing.assert_allclose(average, mean, rtol=0.01, atol=0.01)  # bfloat16 has 8 significant bits
    assert all(np.array_equal(average, others[number]) for _, others in ranks)
