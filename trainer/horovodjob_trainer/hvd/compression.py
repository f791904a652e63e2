"""Compression of gradients for the allreduce."""

from typing import Any

import tensorflow as tf

from horovodjob_trainer.hvd.exchange import exchange

Base: Any = exchange.Compression


class BF16Compressor(Base.none):  # type: ignore[misc]
    """Sends gradients as bfloat16: half the bytes of float32 at its full range.

    Horovod cannot add bfloat16. `horovodjob_trainer.hvd.bfloat16` sends the bits and adds in float32.
    """

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """The tensor as bfloat16, and its original type."""
        return (tf.cast(tensor, tf.bfloat16) if tensor.dtype.is_floating else tensor), tensor.dtype

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """The tensor in its original type."""
        return tf.cast(tensor, ctx)


class Compression(Base):  # type: ignore[misc]
    """The compression methods `none`, `fp16` and `bf16`."""

    bf16 = BF16Compressor
