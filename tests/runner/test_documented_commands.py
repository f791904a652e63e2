"""Which commands of the pages run in the tests, and the tests that pages name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from support.api_client import ROOT

TESTS = ROOT / "tests"
# The test that runs the blocks of a page, or of `page#section`.
RUN = {
    "README.md#First steps": "trainer/test_first_steps.py",  # on a cluster, with the quick start's
    "air-gapped.md": "e2e/installation/test_release.py",  # not with a registry of your own, and not with Helm
    "dashboard.md#": "cli/dashboard/test_dashboard.py",  # not pip, which test_first_steps.py runs
    "dashboard.md#GPU hours": "cli/dashboard/test_usage.py",
    "dashboard.md#In the cluster": "charts/test_documented_commands.py",  # not docker, and not port-forward
    "data.md#In short": "e2e/training/test_training_examples.py",
    "data.md#`hvj cp`": "cli/jobs/test_copy.py",
    # Not `argocd repo add` and `flux bootstrap`; engine.py's subclasses apply what these and the next commands do.
    "gitops.md#A repository, step by step": "gitops/git_repository.py",
    "gitops.md#Change a job": "gitops/documented_output.py",
    "gitops.md#Check a pull request": "charts/test_documented_commands.py",
    "gitops.md#Scenarios": "gitops/documented_output.py",
    "helm-jobs.md": "charts/test_documented_commands.py",
    "hvj.md": "cli/test_documented_commands.py",  # not pip, not in a container, and TensorBoard in test_tensorboard.py
    "install.md#1. Install the operator": "e2e/installation/test_install_page.py",
    "install.md#2. Check it": "e2e/installation/test_install_page.py",
    "install.md#Charts in a registry": "charts/test_documented_commands.py",
    "install.md#Helm without releases": "charts/test_documented_commands.py",
    "install.md#Values that matter": "charts/test_documented_commands.py",
    "install.md#Without Helm": "charts/test_documented_commands.py",
    "jobs-reference.md#Azure Files": "e2e/training/test_azure_files.py",
    "metrics.md#Authorization": "charts/test_documented_commands.py",
    "migration-mpijob.md": "charts/test_documented_commands.py",
    "migration.md": "e2e/training/test_migration.py",
    "operations.md#Rights": "charts/test_documented_commands.py",
    "operations.md#Settings": "charts/test_documented_commands.py",
    "performance.md": "trainer/test_synthetic_benchmark.py",  # a small network in place of ResNet-50
    "quickstart.md#3. Run a script": "e2e/installation/test_install_page.py",
    "quickstart.md#4. Train a model": "e2e/installation/test_install_page.py",
    "quickstart.md#5. Look at the job": "e2e/installation/test_install_page.py",  # not --watch, which has no end
    "quickstart.md#6. The model": "e2e/installation/test_install_page.py",
    "quickstart.md#Suspend, resume, end": "e2e/lifecycle/test_suspend.py",
    "quickstart.md#Without a cluster": "e2e/installation/test_demo.py",
    "releases.md#Install a release": "e2e/installation/test_release.py",
    "releases.md#The version": "release/test_version.py",
    "runbooks": "e2e/lifecycle/test_runbooks.py",  # not of a node pool, of Prometheus, and not hvj job stacks
    "schedules.md": "charts/test_documented_commands.py",  # not docker, and what shows a pod
    "serving.md": "trainer/run/test_inference.py",
    "stalls.md": "e2e/training/test_stalls.py",
    "trainer-reference.md#Settings": "trainer/cli/test_configuration.py",
    # Its variables, with the command of performance.md.
    "trainer-reference.md#Exchange of the gradients": "trainer/test_synthetic_benchmark.py",
    "trainer-reference.md#Elastic": "trainer/conftest.py",  # test_elastic_training.py starts it
    "trainer.md": "trainer/run/test_training.py",  # on two ranks
    "troubleshooting.md": "e2e/lifecycle/test_runbooks.py",
    "tutorial-fine-tuning.md": "trainer/cli/test_tutorial_pages.py",
    "tutorial-images.md": "trainer/cli/test_tutorial_pages.py",
    "tutorial-script.md": "trainer/compat/test_tutorial_script.py",  # on two ranks with made data
    "tutorial-tabular.md": "trainer/cli/test_tutorial_pages.py",
    "tutorial-text.md": "trainer/cli/test_tutorial_pages.py",
    "upgrade.md#Removal": "e2e/installation/test_install_page.py",
    "upgrade.md#Rollback": "e2e/installation/test_install_page.py",  # not the return to an earlier chart
    "upgrade.md#Upgrade": "e2e/installation/test_install_page.py",
    "upgrade.md#Without Helm": "charts/test_documented_commands.py",
}
DOCKER = "it needs Docker and a registry"
# Why the tests do not run the blocks of a page, or of `page#section`.
NOT_RUN = {
    "CONTRIBUTING.md": "the tests themselves",
    "README.md#": "two commands for an overview, of hvj.md and of the first steps",
    "charts": "the commands of install.md and of helm-jobs.md",
    "trainer": "the same as in README.md, with the program in the place of a script",
    "aks-up.md": "Azure; unit/test_aks_scripts.py runs the scripts with a fake of the Azure CLI",
    "aks.md": "Azure",
    "data-and-models.md": "data of the reader; trainer/data has each kind, and cli/test_configuration.py parses all",
    "gitops.md#What the tools report": "a selection of the end-to-end tests, which updates the samples of tests/gitops",
    "gpu-image.md": "Docker, GPUs",
    "horovod-versions.md": "builds of many minutes: `make horovod-versions`",
    "metrics.md#TLS": "it needs cert-manager",
    "operations.md#Backup and restore": "it needs Velero",
    "python.md": "pip alone, which trainer/test_first_steps.py runs",
    "pytorch.md": "a build of a quarter of an hour",
    "quickstart.md#1. Build the images": DOCKER,
    "quickstart.md#2. Install the operator": "the same as in install.md",
    "releases.md#Signatures": "Sigstore",
    "releases.md#Reproducing an image": "a build of minutes",
    "releases.md#Known vulnerabilities": "it needs the advisories of PyPI",
    "scheduling.md": "e2e/training/test_training_examples.py scales the elastic example",
    "sweeps.md": "trials of minutes; cli/jobs/test_sweeps.py types these commands with a sweep of its own",
    "trainer-reference.md#Profile": "120 steps; trainer/run/test_profiling.py has other ones",
}


def pages() -> dict[str, Path]:
    """The pages of docs/ by their path there, and those of the checkout with commands for users."""
    docs, others = ROOT / "docs", ("*.md", "charts/*/*.md", "trainer/*.md")
    found = {str(page.relative_to(docs)): page for page in sorted(docs.rglob("*.md"))}
    return found | {str(page.relative_to(ROOT)): page for pattern in others for page in sorted(ROOT.glob(pattern))}


def blocks() -> Iterator[str]:
    """`page#section` of each block of shell commands."""
    for name, page in pages().items():
        section, in_code = "", False
        for line in page.read_text().splitlines():
            if line.lstrip().startswith("```"):
                if not in_code and line.strip() in ("```sh", "```console"):
                    yield f"{name}#{section}"
                in_code = not in_code
            elif line.startswith("## ") and not in_code:
                section = line.removeprefix("## ")


def entry(block: str, listed: dict[str, str]) -> str:
    """The entry for a block: of its section, its page or its folder; empty without one."""
    page = block.partition("#")[0]
    return next((name for name in (block, page, page.partition("/")[0]) if name in listed), "")


def test_each_block_of_commands_runs_or_has_a_reason_why_not() -> None:
    found = list(blocks())
    both = [block for block in found if bool(entry(block, RUN)) == bool(entry(block, NOT_RUN))]
    assert both == [], "list the section in RUN or in NOT_RUN"
    used = {entry(block, listed) for block in found for listed in (RUN, NOT_RUN)}
    assert sorted({*RUN, *NOT_RUN} - used) == [], "no page has such a block"


def test_the_tests_that_run_pages_read_them() -> None:
    for name, test in RUN.items():
        page = name.partition(".md")[0]
        text = (TESTS / test).read_text()
        assert re.search(rf'"{page}(\.md)?"', text) or page == "migration", f"{test} does not read {page}.md"
