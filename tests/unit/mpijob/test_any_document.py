"""Any MPIJob is converted to a valid resource, or rejected: no other error."""

import contextlib
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from horovodjob.mpijob.conversion import ConversionError, convert
from support.batchai_documents import require_complete
from unit.batchai.test_any_document import VALUES, Path, paths, with_value
from unit.mpijob.test_conversion import MPIJOB


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(list(paths(MPIJOB))), VALUES)
def test_any_document_is_converted_or_rejected(path: Path, value: Any) -> None:
    with contextlib.suppress(ConversionError):
        require_complete(convert(with_value(MPIJOB, path, value)).job["spec"])
