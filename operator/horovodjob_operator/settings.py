"""Settings of the operator, read from environment variables. The defaults suit most clusters."""

import json
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from horovodjob.api.constants import OPERATOR_APP_NAME
from horovodjob.api.storage_account import files_host
from horovodjob_operator.domain.job_defaults import JobDefaults, parse_job_defaults

NAMESPACE = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_KEY = r"([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_VALUE = r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?"
_REQUIREMENT = rf" *(!?{_KEY}|{_KEY} *(=|==|!=) *{_VALUE}|{_KEY} +(in|notin) +\( *{_VALUE}( *, *{_VALUE})* *\)) *"
_ACCOUNT = r"[a-z0-9]{3,24}(\.[a-z0-9][-a-z0-9.]*)?"
SELECTOR = f"{_REQUIREMENT}(,{_REQUIREMENT})*"


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings. Flags are 0 or 1."""

    http_port: int = 8080
    """Port of /healthz and /readyz, and of /metrics without TLS."""
    metrics_authorization: int = 0
    """1: /metrics requires the right to `get` it, checked by a TokenReview and a SubjectAccessReview."""
    metrics_tls_port: int = 0
    """Port of /metrics over TLS; 0: no TLS."""
    metrics_tls_directory: str = ""
    """Directory with tls.crt and tls.key, read again when they change; empty: a self-signed certificate."""
    progress_url: str = ""
    """URL for progress reports, that of the Service for `progress_port`; empty: jobs send no reports."""
    progress_port: int = 8081
    log_level: str = "INFO"
    lease_namespace: str = ""
    """Namespace of the Lease for leader election; empty: no leader election, because there is only one replica."""
    lease_name: str = OPERATOR_APP_NAME
    identity: str = ""
    """Holder of the Lease: the name of the pod, so that a restarted container becomes the leader at once."""
    watch_timeout_seconds: int = 240
    resync_seconds: int = 300
    concurrent_writes: int = 64
    namespaces: str = ""
    """Watched namespaces, separated by commas; empty: all."""
    namespace_selector: str = ""
    """Label selector of the watched namespaces, as of `kubectl -l`; empty: their names, or all."""
    job_defaults: str = ""
    """Default values for jobs as JSON, see JobDefaults."""
    read_nodes: int = 0
    """1: the conditions of nodes are read when an attempt ends or stalls; needs the right to `get` nodes."""
    preflight: str = ""
    """The storage accounts of each namespace on which shares and scripts of jobs are checked before pods are created,
    as JSON: {"team-a": ["account"]}; an account in another cloud by its host. Empty: no checks."""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> "Settings":
        """Settings from the variables HOROVODJOB_OPERATOR_<NAME>. Raises ValueError with one sentence."""
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
        if settings.namespace_selector and settings.namespaces:
            raise ValueError(
                "HOROVODJOB_OPERATOR_NAMESPACES and HOROVODJOB_OPERATOR_NAMESPACE_SELECTOR are both set: "
                "name the namespaces, or select them by label"
            )
        if settings.namespace_selector and not re.fullmatch(SELECTOR, settings.namespace_selector):
            raise ValueError(
                f"HOROVODJOB_OPERATOR_NAMESPACE_SELECTOR is {settings.namespace_selector!r}; "
                "it must be a label selector, such as team=a or team in (a,b)"
            )
        try:
            _ = settings.defaults
        except ValueError as error:
            raise ValueError(f"HOROVODJOB_OPERATOR_JOB_DEFAULTS: {error}") from None
        try:
            _ = settings.preflight_hosts
        except ValueError as error:
            raise ValueError(
                f"HOROVODJOB_OPERATOR_PREFLIGHT: {error}; it must name the storage accounts of each namespace, such as "
                '{"team-a": ["myaccount"]}'
            ) from None
        return settings

    @property
    def preflight_hosts(self) -> dict[str, frozenset[str]]:
        """The hosts of the storage accounts that are checked, by namespace. Raises ValueError."""
        return parse_preflight(self.preflight)

    @property
    def defaults(self) -> JobDefaults:
        """Default values for jobs. Raises ValueError."""
        return parse_job_defaults(self.job_defaults)

    @property
    def watched_namespaces(self) -> tuple[str, ...]:
        """Watched namespaces without duplicates; empty: all."""
        return tuple(dict.fromkeys(name for part in self.namespaces.split(",") if (name := part.strip())))


def parse_preflight(text: str) -> dict[str, frozenset[str]]:
    """The hosts by namespace in a JSON object with lists of accounts or hosts. Raises ValueError."""
    try:
        found = json.loads(text or "{}")
    except ValueError as error:
        raise ValueError(f"not JSON ({error})") from None
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")
    hosts = {}
    for namespace, accounts in found.items():
        if not re.fullmatch(NAMESPACE, namespace):
            raise ValueError(f"{namespace!r} is not the name of a namespace")
        if not isinstance(accounts, list) or not all(re.fullmatch(_ACCOUNT, str(each)) for each in accounts):
            raise ValueError(f"{json.dumps(accounts)} of namespace {namespace} is not a list of storage accounts")
        hosts[namespace] = frozenset(each if "." in each else files_host(each) for each in accounts)
    return hosts
