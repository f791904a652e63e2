"""A cluster that `hvj doctor` checks."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.cluster.doctor import ClusterSetup, Doctor
from cli.program import Hvj, Result
from support.api_client import Api, job


@pytest.fixture
def cluster_setup(api: Api, workspace: str) -> Iterator[ClusterSetup]:
    """Objects of the test, which are deleted at its end, cluster-scoped ones included."""
    cluster_setup = ClusterSetup(api, workspace)
    yield cluster_setup
    cluster_setup.delete_all()


@pytest.fixture
def doctor(hvj: Hvj, tmp_path: Path) -> Doctor:
    """Runs the doctor for a job with these fields of its spec, or without a job."""

    def run(*arguments: str, **spec: Any) -> Result:
        if spec:
            file = tmp_path / "job.yaml"
            file.write_text(yaml.safe_dump(job(**spec)))
            arguments = (*arguments, "-f", str(file))
        return hvj("doctor", *arguments)

    return run
