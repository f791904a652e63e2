"""The dtype policy of Keras for the GPUs of a run."""

from collections.abc import Sequence

import tensorflow as tf

from horovodjob_trainer import hvd
from horovodjob_trainer.import_string import is_import_string
from horovodjob_trainer.launch import Launch

Capability = tuple[int, int]
FLOAT16: Capability = (7, 0)  # the first compute capability with tensor cores, for float16
BFLOAT16: Capability = (8, 0)  # and the first with fast bfloat16 operations, which have the range of float32


def dtype_policy(setting: str, model: str, launch: Launch) -> str:
    """The policy of --precision. With `auto`, it is the same on all ranks.

    With elastic Horovod, a rank decides alone, because it cannot ask those that join later.
    """
    if setting != "auto":
        return setting
    own = _compute_capabilities()
    every = [own] if launch.elastic else hvd.allgather_object(own)
    return default_policy(every, model)


def default_policy(capabilities: Sequence[Sequence[Capability]], model: str) -> str:
    """`mixed_bfloat16` or `mixed_float16` if the GPU of each rank computes fast with this type, else `float32`.

    A model of the user's own always gets `float32`, because its layers may not support another type.
    """
    lowest = min(min(of_rank, default=(0, 0)) for of_rank in capabilities)
    if is_import_string(model) or lowest < FLOAT16:
        return "float32"
    return "mixed_bfloat16" if lowest >= BFLOAT16 else "mixed_float16"


def _compute_capabilities() -> list[Capability]:
    """Those of the GPUs that this rank uses. A device without one, which is not from NVIDIA, counts as the lowest."""
    used = tf.config.get_visible_devices("GPU")
    return [tf.config.experimental.get_device_details(each).get("compute_capability", (0, 0)) for each in used]
