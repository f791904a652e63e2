"""Settings of the operator process, from its environment; each has a default that fits most clusters."""

import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from horovodjob_operator.domain.job_defaults import JobDefaults, parse_job_defaults

NAMESPACE = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"


@dataclass(frozen=True, slots=True)
class Settings:
    """How the process runs."""

    http_port: int = 8080
    """Port of /healthz, /readyz and /metrics."""
    metrics_authorization: int = 0
    """1: /metrics answers those only who have the right to `get` it, by TokenReview and SubjectAccessReview."""
    progress_url: str = ""
    """Where jobs post how far they are: the Service in front of `progress_port`; empty: they do not."""
    progress_port: int = 8081
    log_level: str = "INFO"
    lease_namespace: str = ""
    """Namespace of the leader election's Lease; empty: this process is alone and needs none."""
    lease_name: str = "horovodjob-operator"
    identity: str = ""
    """Who holds the Lease: the pod's name, so that a restarted container is the leader again at once."""
    watch_timeout_seconds: int = 240
    resync_seconds: int = 300
    concurrent_writes: int = 64
    namespaces: str = ""
    """The namespaces that are watched, separated by commas; empty: all."""
    job_defaults: str = ""
    """JSON with what jobs get that do not set it themselves, see JobDefaults."""
    preflight: int = 0
    """1: look on Azure Files, by workload identity, whether shares and script exist before pods are created."""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> "Settings":
        """Settings from variables HOROVODJOB_OPERATOR_<NAME>; raises ValueError with one sentence."""
        values: dict[str, str | int] = {}
        for name, default in ((field, getattr(cls(), field)) for field in cls.__dataclass_fields__):
            variable = f"HOROVODJOB_OPERATOR_{name.upper()}"
            text = environ.get(variable, "")
            if not text:
                continue
            if isinstance(default, int) and not text.isdecimal():
                raise ValueError(f"{variable} is {text!r}; it must be a number")
            values[name] = int(text) if isinstance(default, int) else text
        values.setdefault("identity", socket.gethostname())
        settings = cls(**values)  # type: ignore[arg-type]
        if wrong := [name for name in settings.watched_namespaces if not re.fullmatch(NAMESPACE, name)]:
            raise ValueError(f"HOROVODJOB_OPERATOR_NAMESPACES names {wrong[0]!r}, which is not the name of a namespace")
        try:
            _ = settings.defaults
        except ValueError as error:
            raise ValueError(f"HOROVODJOB_OPERATOR_JOB_DEFAULTS: {error}") from None
        return settings

    @property
    def defaults(self) -> JobDefaults:
        """What jobs get that do not set it themselves. Raises ValueError."""
        return parse_job_defaults(self.job_defaults)

    @property
    def watched_namespaces(self) -> tuple[str, ...]:
        """The namespaces that are watched, each once; none: all."""
        return tuple(dict.fromkeys(name for part in self.namespaces.split(",") if (name := part.strip())))
