"""Batch AI's job.json, converted to a HorovodJob."""

from collections.abc import Mapping
from typing import Any

from horovodjob.conversion import Conversion, ConversionError, Note

__all__ = ["Conversion", "ConversionError", "Note", "convert"]


def convert(
    document: Any,
    *,
    name: str,
    namespace: str | None = None,
    experiment: str | None = None,
    pool: str | None = None,
    storage_account: str | None = None,
    storage_key: str | None = None,
    image: str | None = None,
    gpus: int | None = None,
    nfs_servers: Mapping[str, str] | None = None,
) -> Conversion:
    """The HorovodJob of a parsed job.json, with its Secrets and warnings; nfs_servers has `host:/path` by server name.

    Raises ConversionError with every problem of the document.
    """
    raise NotImplementedError
