"""The tests that need the local cluster, with the reason: on a cluster that KUBECONFIG names they are not run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
SHARED = "it reads and writes files in a directory of the node"
GPUS = "the node pretends to have GPUs"
# By file, and by test where the others of the file run on every cluster. Parameters are left out.
LOCAL_ONLY = {
    "test_invariants.py::test_no_request_of_the_operator_was_forbidden": (
        "the API server's audit log is a file of this machine"
    ),
    "test_bad_input.py::test_an_image_that_runs_as_root_is_reported_with_the_field_that_allows_it": (
        "it loads an image into the node"
    ),
    "test_azure_files.py": "storage accounts are SMB servers of this machine",
    "test_elastic_training.py": SHARED,
    "test_untrusted_input.py::test_special_characters_in_paths_have_no_effect": SHARED,
    "test_untrusted_input.py::test_a_share_that_disappears_loses_log_files_and_the_job_succeeds": (
        "it unmounts a file system of the node"
    ),
    "test_install_page.py": "it removes all jobs of the cluster, and names images on the node",
    "test_launcher_as_worker.py::test_ranks_on_the_launcher_can_save": SHARED,
    "test_migration.py": "it adds nodes with GPUs, and its storage account is an SMB server of this machine",
    "test_mpi.py::test_ranks_that_handle_sigterm_can_save_each_in_its_own_time": SHARED,
    "test_network_loss.py": "it cuts the network of pods on the node",
    "test_node_loss.py": "it stops the kubelet",
    "test_preparation.py::test_the_output_of_the_preparation_is_in_separate_files": SHARED,
    "test_program.py::test_variables_contain_the_paths_of_inputs_and_outputs_and_output_directories_exist": SHARED,
    "test_scheduling.py": GPUS,
    "test_sigterm.py": SHARED,
    "test_training.py": SHARED,
    "test_tutorial_script.py": SHARED,
}


def reason(item: pytest.Item) -> str:
    """Why a test runs on the local cluster only; nothing for a test that runs on every cluster."""
    name = getattr(item, "originalname", item.name)
    return LOCAL_ONLY.get(item.path.name, "") or LOCAL_ONLY.get(f"{item.path.name}::{name}", "")


def stale(items: Iterable[pytest.Item]) -> list[str]:
    """Entries of the list that name nothing, as far as the files of these tests tell."""
    modules = {item.path.name: getattr(item, "module", None) for item in items}
    return [entry for entry in LOCAL_ONLY if _names_nothing(entry, modules)]


def _names_nothing(entry: str, modules: Mapping[str, object]) -> bool:
    file, _, test = entry.partition("::")
    if not (FOLDER / file).exists():
        return True
    return bool(test) and file in modules and not hasattr(modules[file], test)
