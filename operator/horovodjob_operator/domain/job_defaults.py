"""Defaults that the cluster's administrator sets for all jobs. They are in the pods, and never in a job's spec."""

from typing import Annotated

from pydantic import ConfigDict, Field, StringConstraints, ValidationError
from pydantic.alias_generators import to_camel

from horovodjob.api.azure_files import AzureFileShare, MountOption
from horovodjob.api.base import LabelValue, Model, Name, Quantity
from horovodjob.api.spec import HorovodJobSpec, LocalObjectReference, Toleration
from horovodjob_operator.domain.resources.azure_files import option_name


class JobDefaults(Model):
    """What a job gets that does not set the field itself; of lists and maps, the entries with other keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)
    image: Annotated[str, StringConstraints(min_length=1, max_length=1024, pattern=r"^\S+$")] | None = None
    """Of jobs with an empty image."""
    node_selector: dict[str, LabelValue] = Field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()
    priority_class_name: Name | None = None
    image_pull_secrets: tuple[LocalObjectReference, ...] = ()
    shm_size: Annotated[Quantity, StringConstraints(max_length=32)] | None = None
    mount_options: tuple[MountOption, ...] = ()
    """Of shares on Azure Files that are mounted over SMB."""

    def applied(self, spec: HorovodJobSpec) -> HorovodJobSpec:
        """The spec of a job with these defaults."""
        own = {(toleration.key, toleration.effect) for toleration in spec.tolerations or ()}
        added = tuple(each for each in self.tolerations if (each.key, each.effect) not in own)
        return spec.model_copy(
            update={
                "image": spec.image or self.image or "",
                "node_selector": {**self.node_selector, **(spec.node_selector or {})} or None,
                "tolerations": (*(spec.tolerations or ()), *added) or None,
                "priority_class_name": spec.priority_class_name or self.priority_class_name,
                "image_pull_secrets": spec.image_pull_secrets or self.image_pull_secrets or None,
                "shm_size": self.shm_size if spec.shm_size is None else spec.shm_size,
                "azure_files": tuple(map(self._share, spec.azure_files)) if spec.azure_files else spec.azure_files,
            }
        )

    def _share(self, share: AzureFileShare) -> AzureFileShare:
        if share.protocol == "nfs" or not self.mount_options:
            return share
        own = share.mount_options or ()
        names = {option_name(option) for option in own}
        added = tuple(option for option in self.mount_options if option_name(option) not in names)
        return share.model_copy(update={"mount_options": (*added, *own)})


def parsed_job_defaults(text: str) -> JobDefaults:
    """The defaults of a JSON object; an empty text has none. Raises ValueError with one sentence."""
    try:
        return JobDefaults.model_validate_json(text or "{}")
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the object"
        raise ValueError(f"{where}: {first['msg']}") from None
