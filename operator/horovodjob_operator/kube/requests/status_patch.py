"""The patch of the status of a HorovodJob."""

from collections.abc import Mapping
from typing import Any

from horovodjob.api.job import HorovodJob
from horovodjob.api.status import HorovodJobStatus


def status_patch(job: HorovodJob, status: HorovodJobStatus) -> dict[str, Any]:
    """The merge patch that sets the status, valid for this version of the job only."""
    # Before the first write, defaults of the status exist in memory and not in storage, so all of it is sent.
    stored = status_dict(job.status) if job.status.phase else {}
    return {
        # The resource version and not the UID, which the API server does not compare when it updates a status.
        "metadata": {"resourceVersion": job.metadata.resource_version},
        "status": merge_patch(stored, status_dict(status)),
    }


def status_dict(status: HorovodJobStatus) -> dict[str, Any]:
    """The status as the API server stores it."""
    return status.model_dump(mode="json", by_alias=True, exclude_none=True)


def merge_patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON merge patch (RFC 7386) from `old` to `new`."""
    patch: dict[str, Any] = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            if nested := merge_patch(before, value):
                patch[key] = nested
        elif key not in old or before != value:
            patch[key] = value
    return patch
