"""Compression of gradients for the exchange over MPI."""

from typing import Any

import tensorflow as tf


class NoneCompressor:
    """Sends gradients as they are."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """The tensor, and what `decompress` needs."""
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """The tensor in its original type."""
        return tensor if ctx is None else tf.cast(tensor, ctx)


class FP16Compressor(NoneCompressor):
    """Rounds gradients to float16. The exchange adds, and sends, them as float32."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """The tensor as float16, and its original type."""
        return (tf.cast(tensor, tf.float16) if tensor.dtype.is_floating else tensor), tensor.dtype


class Compression:
    """The compression methods `none` and `fp16`."""

    none, fp16 = NoneCompressor, FP16Compressor
