"""Settings of the operator process, from its environment; each has a default that fits most clusters."""

import socket
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """How the process runs."""

    http_port: int = 8080
    """Port of /healthz, /readyz and /metrics."""
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
        return cls(**values)  # type: ignore[arg-type]
