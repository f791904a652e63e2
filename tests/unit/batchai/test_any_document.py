"""Any document is converted to a valid resource, or rejected: no other error, no value of a secret."""

import copy
from collections.abc import Iterator
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from horovodjob.batchai.choices import Choices
from horovodjob.batchai.conversion import Conversion, ConversionError, convert
from support.batchai_documents import EVERYTHING, NFS_SERVERS, SECRET_VALUES, Object, require_complete

Path = tuple[str | int, ...]
SHORT = [
    "$A",
    "${AZ_BATCHAI_JOB_MOUNT_ROOT}/x",
    "'",
    "a;b",
    "4",
    "-1",
    "1.5",
    "..",
    "$",
    "\\",
    "a\nb",
    "\x00",
    "x" * 5000,
]
LONG = ["https://[", "https://account.file.core.windows.net/share", "mount -t nfs h:/p", "mpirun -np", "P7D"]
TEXTS = st.text(max_size=10) | st.sampled_from([*SHORT, *LONG])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)


def paths(value: Any, path: Path = ()) -> Iterator[Path]:
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from paths(inner, (*path, key))


def with_value(document: Object, path: Path, value: Any) -> Any:
    if not path:
        return value
    result = inner = copy.deepcopy(document)
    for key in path[:-1]:
        inner = inner[key]  # type: ignore[index]
    inner[path[-1]] = value  # type: ignore[index]
    return result


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(list(paths(EVERYTHING))), VALUES)
def test_any_document_is_converted_or_rejected(path: Path, value: Any) -> None:
    outcome = conversion(with_value(EVERYTHING, path, value))
    if isinstance(outcome, ConversionError):
        seen = f"{outcome} {outcome.warnings}"
    else:
        require_complete(outcome.job["spec"])
        seen = f"{outcome.job} {outcome.warnings}"
    assert not any(secret in seen for secret in SECRET_VALUES)


def conversion(document: Any) -> Conversion | ConversionError:
    try:
        return convert(document, name="My_Job", choices=Choices(nfs_servers=NFS_SERVERS))
    except ConversionError as error:
        return error
