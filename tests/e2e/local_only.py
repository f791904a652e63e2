"""The tests that need the local cluster, with the reason: they do not run on the cluster of KUBECONFIG."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
SHARED = "it reads and writes files in a directory of the node"
GPUS = "the node pretends to have GPUs"
# By file, or by test if other tests of the file run on every cluster. Parameters are omitted.
LOCAL_ONLY = {
    "lifecycle/test_invariants.py::test_no_request_of_the_operator_was_forbidden": (
        "the API server's audit log is a file of this machine"
    ),
    "programs/test_bad_input.py::test_an_image_that_runs_as_root_is_reported_with_the_field_that_allows_it": (
        "it loads an image into the node"
    ),
    "training/test_azure_files.py": "storage accounts are SMB servers of this machine",
    "faults/test_elastic.py": SHARED,
    "programs/test_untrusted_input.py::test_special_characters_in_paths_have_no_effect": SHARED,
    "programs/test_untrusted_input.py::test_a_share_that_disappears_loses_log_files_and_the_job_succeeds": (
        "it unmounts a file system of the node"
    ),
    "installation/test_demo.py": "it starts the local cluster",
    "installation/test_install_page.py": "it removes all jobs of the cluster, and names images on the node",
    "installation/test_release.py": "it removes all jobs of the cluster, and imports images into the node",
    "pods/test_launcher_as_worker.py::test_ranks_on_the_launcher_can_save": SHARED,
    "training/test_migration.py": "it adds nodes with GPUs, and its storage account is an SMB server of this machine",
    "programs/test_mpi.py::test_ranks_that_handle_sigterm_can_save_each_in_its_own_time": SHARED,
    "faults/test_network_loss.py": "it cuts the network of pods on the node",
    "faults/test_node_loss.py": "it stops the kubelet",
    "programs/test_preparation.py::test_a_worker_is_prepared_once_and_its_output_is_in_separate_files": SHARED,
    "programs/test_program.py::test_variables_contain_the_paths_of_inputs_and_outputs_and_output_directories_exist": (
        SHARED
    ),
    "programs/test_run_script.py::test_a_claim_takes_the_directory_and_gives_the_output_back": SHARED,
    "pods/test_scheduling.py": GPUS,
    "lifecycle/test_sigterm.py": SHARED,
    "training/test_stalls.py": SHARED,
    "training/test_training.py": SHARED,
    "training/test_training_examples.py": "the claim of the examples is a directory of the node",
}


def reason(item: pytest.Item) -> str:
    """Why a test runs on the local cluster only; empty for a test that runs on every cluster."""
    name = getattr(item, "originalname", item.name)
    return LOCAL_ONLY.get(_file(item), "") or LOCAL_ONLY.get(f"{_file(item)}::{name}", "")


def stale(items: Iterable[pytest.Item]) -> list[str]:
    """Entries of the list that match no test in the collected files."""
    modules = {_file(item): getattr(item, "module", None) for item in items}
    return [entry for entry in LOCAL_ONLY if _names_nothing(entry, modules)]


def _file(item: pytest.Item) -> str:
    return item.path.relative_to(FOLDER).as_posix()


def _names_nothing(entry: str, modules: Mapping[str, object]) -> bool:
    file, _, test = entry.partition("::")
    if not (FOLDER / file).exists():
        return True
    return bool(test) and file in modules and not hasattr(modules[file], test)
