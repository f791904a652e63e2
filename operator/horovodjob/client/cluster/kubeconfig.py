"""The files of a kubeconfig, and whether a pod's service account takes their place."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from horovodjob.client.errors import ClientError, one_line

SERVICE_ACCOUNT_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
DEFAULT_PATH = "~/.kube/config"


@contextlib.contextmanager
def readable(chosen: str | None) -> Iterator[str]:
    """One path, or several in the format of KUBECONFIG: the chosen ones, else those of the environment.

    Raises ClientError if no file exists, and for any error of the client about an invalid kubeconfig in the block.
    """
    from kubernetes.config import ConfigException
    from yaml import YAMLError

    paths = chosen or os.environ.get("KUBECONFIG") or DEFAULT_PATH
    if not any(path and Path(path).expanduser().is_file() for path in paths.split(os.pathsep)):
        raise ClientError(f"no kubeconfig at {paths}; name one with `kubeconfig=` or in KUBECONFIG")
    try:
        yield paths
    except (ConfigException, YAMLError, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        reason = (
            one_line(error) if isinstance(error, ConfigException) else f"it is not a kubeconfig ({one_line(error)})"
        )
        raise ClientError(f"cannot use {paths}: {reason}; use `kubeconfig=` or `context=`") from error


def is_replaced_by_service_account(chosen: str | None) -> bool:
    """Whether hvj runs in a pod without a kubeconfig and uses the pod's service account."""
    if chosen or os.environ.get("KUBECONFIG") or Path(DEFAULT_PATH).expanduser().exists():
        return False
    return "KUBERNETES_SERVICE_HOST" in os.environ
