"""A HorovodJob as the API server stores it."""

from datetime import datetime

from pydantic import Field

from horovodjob.api.base import Model
from horovodjob.api.spec import HorovodJobSpec
from horovodjob.api.status import HorovodJobStatus


class Metadata(Model):
    """The fields of ObjectMeta that decisions depend on."""

    name: str
    namespace: str
    uid: str
    generation: int = 1
    resource_version: str = "0"
    creation_timestamp: datetime
    deletion_timestamp: datetime | None = None
    finalizers: tuple[str, ...] = ()
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)


class HorovodJob(Model):
    """A distributed training job."""

    metadata: Metadata
    spec: HorovodJobSpec
    status: HorovodJobStatus = HorovodJobStatus()
    default_queue: str = ""
    """The queue of jobs without the label of one, in the operator's settings."""
    stored_spec: HorovodJobSpec | None = None
    """The spec without the defaults of the operator's settings, if it can differ from `spec`."""

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.metadata.namespace, self.metadata.name
