"""The files in the working directory of the tutorial."""

from pathlib import Path

from support.tutorial import page
from support.tutorial.cifar import cifar_members, write_archive

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "migration.md"
SCRIPT = ROOT / "tests" / "trainer" / "compat" / "tutorial" / "cifar_cnn_distributed.py"
MODEL = "keras_cifar10_trained_model.h5"
# Batches of 32 for each of four ranks.
ROWS = 32


def write_files(directory: Path) -> None:
    """Writes the script of 2018, byte for byte, the job.json of the page, and a small archive of images."""
    (directory / SCRIPT.name).write_bytes(SCRIPT.read_bytes())
    (job,) = page.blocks(PAGE, "json")
    (directory / "job.json").write_text(job)
    write_archive(directory / "cifar-10-python.tar.gz", cifar_members(ROWS))
