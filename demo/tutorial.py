"""Microsoft's Batch AI tutorial of 2018, typed command by command from docs/migration.md on the local cluster.

The cluster gets four GPU nodes for it, and a storage account: nodes that advertise GPUs they do not have, a real SMB
server, and servers that speak the protocols of Azure Files and Azure Resource Manager. Run by `make demo-tutorial`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from demo.demo import DemoError, images, install_operator, say, target

from localcluster.settings import Cluster
from support.tutorial import page
from support.tutorial.azure import azure
from support.tutorial.files import MODEL, PAGE, write_files


def main() -> int:
    """Exit code: 0 when the page ran to its end."""
    on = target()
    if not on.local:
        raise DemoError("the tutorial runs on the local cluster only: unset KUBECONFIG; docs/aks.md has the way to AKS")
    references = images(on)
    install_operator(on, references["operator"], references["trainer"])
    on.kubectl("delete", "namespace", "batchaidev", "--ignore-not-found")
    with tempfile.TemporaryDirectory() as scratch:
        directory, keys = Path(scratch) / "work", Path(scratch) / "azure"
        directory.mkdir()
        keys.mkdir()
        write_files(directory)
        say("== four nodes with a GPU each, and the storage account mystorageaccount")
        with azure(Cluster(os.environ.get("CLUSTER_NAME", "main")), keys) as environment:
            environment["TRAINER_IMAGE"] = references["trainer"]
            for command in page.commands(PAGE):
                say()
                say(f"$ {command}")
                subprocess.run(["bash", "-euo", "pipefail", "-c", command], cwd=directory, env=environment, check=True)
        say()
        say(f"done: {MODEL} was downloaded from the share, {(directory / MODEL).stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (DemoError, subprocess.CalledProcessError) as error:
        sys.stderr.write(f"demo-tutorial: {error}\n")
        sys.exit(1)
