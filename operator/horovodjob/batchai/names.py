"""Names of Batch AI (letters, digits, `-` and `_`, up to 64) as names in Kubernetes."""

import hashlib
import re
from collections.abc import Mapping
from typing import Any

ANNOTATION_NAME = "horovodjob.dev/batchai-name"
DNS_LABEL_LENGTH = 63
# The name of a worker pod, `<job>-worker-<index>`, is a DNS label too; a job has up to 10000 workers.
JOB_NAME_LENGTH = DNS_LABEL_LENGTH - len("-worker-9999")
HASH_LENGTH = 6


def resource_name(name: str, length: int = JOB_NAME_LENGTH) -> str:
    """The Kubernetes name for a Batch AI name: a DNS label of at most `length` characters.

    The default length is that of a job; 63 fits a namespace. A name that is too long keeps its beginning and ends with
    a hash of the whole name, so two long names stay different. Raises ValueError for a name without a letter or digit.
    """
    label = re.sub(r"[^a-z0-9-]", "-", name.lower()).strip("-")
    if not label:
        raise ValueError(f"the name {name!r} has no letter and no digit; a Kubernetes name needs at least one")
    if len(label) <= length:
        return label
    digest = hashlib.sha256(name.encode()).hexdigest()[:HASH_LENGTH]
    return f"{label[: length - HASH_LENGTH - 1].rstrip('-')}-{digest}"


def pool_name_error(name: str) -> str | None:
    """The reason why AKS cannot have a node pool of this name, or None."""
    if re.fullmatch(r"[a-z][a-z0-9]{0,11}", name):
        return None
    return f"AKS has no node pool {name!r}: a pool has up to 12 lower-case letters and digits and begins with a letter"


def label_value(name: str) -> str:
    """The name as the value of a label, unchanged if that is allowed."""
    if re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", name):
        return name
    return resource_name(name, DNS_LABEL_LENGTH)


def display_name(object_: Mapping[str, Any]) -> str:
    """The name of an object that the user chose; Kubernetes may not allow it."""
    metadata = object_["metadata"]
    return str((metadata.get("annotations") or {}).get(ANNOTATION_NAME) or metadata["name"])
