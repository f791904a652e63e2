"""Defaults of the administrator for all jobs. They apply to the pods, and are never stored in a spec. Pure."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import ConfigDict, Field, StringConstraints, ValidationError
from pydantic.alias_generators import to_camel

from horovodjob.api.azure_files import AzureFileShare, MountOption
from horovodjob.api.base import LabelValue, Model, Name, Quantity
from horovodjob.api.pod_fields import LocalObjectReference, Toleration
from horovodjob.api.spec import HorovodJobSpec
from horovodjob_operator.domain.resources.parts.azure_files import option_name

ImageReference = Annotated[str, StringConstraints(min_length=1, max_length=1024, pattern=r"^\S+$")]


class JobDefaults(Model):
    """Values of fields that a job does not set; lists and maps are merged by key."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)
    image: ImageReference | None = None
    """For jobs with an empty image."""
    gpu_image: ImageReference | None = None
    """For those of them whose workers have GPUs, instead of `image`, whose TensorFlow may have no CUDA."""
    node_selector: dict[str, LabelValue] = Field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()
    priority_class_name: Name | None = None
    queue: Name | None = None
    """A LocalQueue of Kueue, for jobs without the label of one."""
    image_pull_secrets: tuple[LocalObjectReference, ...] = ()
    shm_size: Annotated[Quantity, StringConstraints(max_length=32)] | None = None
    mount_options: tuple[MountOption, ...] = ()
    """For shares of Azure Files that are mounted over SMB."""

    def apply_to(self, spec: HorovodJobSpec) -> HorovodJobSpec:
        """The spec, completed with these defaults."""
        own = {(toleration.key, toleration.effect) for toleration in spec.tolerations or ()}
        image = (self.gpu_image if spec.worker.gpus else None) or self.image
        defaults = (each for each in self.tolerations if (each.key, each.effect) not in own)
        return spec.model_copy(
            update={
                "image": spec.image or image or "",
                "node_selector": {**self.node_selector, **(spec.node_selector or {})} or None,
                "tolerations": (*(spec.tolerations or ()), *defaults) or None,
                "priority_class_name": spec.priority_class_name or self.priority_class_name,
                "image_pull_secrets": spec.image_pull_secrets or self.image_pull_secrets or None,
                "shm_size": self.shm_size if spec.shm_size is None else spec.shm_size,
                "azure_files": tuple(map(self._share, spec.azure_files)) if spec.azure_files else spec.azure_files,
            }
        )

    def completed_by(self, other: "JobDefaults") -> "JobDefaults":
        """These defaults, completed with others that apply where these do not."""
        own = {(toleration.key, toleration.effect) for toleration in self.tolerations}
        names = {option_name(option) for option in self.mount_options}
        options = (option for option in other.mount_options if option_name(option) not in names)
        tolerations = (each for each in other.tolerations if (each.key, each.effect) not in own)
        return JobDefaults(
            image=self.image or other.image,
            gpu_image=self.gpu_image or (None if self.image else other.gpu_image),
            node_selector={**other.node_selector, **self.node_selector},
            tolerations=(*self.tolerations, *tolerations),
            priority_class_name=self.priority_class_name or other.priority_class_name,
            queue=self.queue or other.queue,
            image_pull_secrets=self.image_pull_secrets or other.image_pull_secrets,
            shm_size=other.shm_size if self.shm_size is None else self.shm_size,
            mount_options=(*options, *self.mount_options),
        )

    def _share(self, share: AzureFileShare) -> AzureFileShare:
        if share.protocol == "nfs" or not self.mount_options:
            return share
        own = share.mount_options or ()
        names = {option_name(option) for option in own}
        defaults = (option for option in self.mount_options if option_name(option) not in names)
        return share.model_copy(update={"mount_options": (*defaults, *own)})


@dataclass(frozen=True, slots=True)
class NamespaceDefaults:
    """Default values for the jobs of a namespace."""

    values: JobDefaults
    error: str = ""
    """Why the annotation of the namespace cannot be read: its jobs get no pods, because its defaults are unknown."""


def parse_job_defaults(text: str) -> JobDefaults:
    """The defaults in a JSON object; none in an empty text. Raises ValueError with one sentence."""
    try:
        return JobDefaults.model_validate_json(text or "{}")
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the object"
        raise ValueError(f"{where}: {first['msg']}") from None
