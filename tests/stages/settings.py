"""Paths and names that the stages share."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("HOROVODJOB_CACHE") or Path.home() / ".cache" / "horovodjob").absolute()
LOGS = CACHE / "logs"
VENV = ROOT / ".venv"
CLUSTER = ROOT / "localcluster"
CLUSTER_NAME = os.environ.get("CLUSTER_NAME", "main")
CA_BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")


class StageError(Exception):
    """A stage did not pass; the message is for the person who ran it."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code
        """The exit code of the command that failed."""


def uses_given_cluster() -> bool:
    """Whether KUBECONFIG names another cluster than the project's own. Raises StageError without IMAGE_REGISTRY."""
    given = os.environ.get("KUBECONFIG", "")
    folder = "cluster" if CLUSTER_NAME == "main" else f"cluster-{CLUSTER_NAME}"
    if not given or given == str(CACHE / folder / "kubeconfig"):
        return False
    images = ("OPERATOR_IMAGE", "DASHBOARD_IMAGE", "HVJ_IMAGE", "TRAINER_IMAGE", "MPI_IMAGE")
    if not os.environ.get("IMAGE_REGISTRY") and not all(os.environ.get(name) for name in images):
        raise StageError(f"KUBECONFIG is set, so set IMAGE_REGISTRY as well, or {', '.join(images)}")
    return True
