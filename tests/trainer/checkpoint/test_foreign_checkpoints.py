"""Checkpoints that somebody else has written into the output directory."""

import json
from pathlib import Path

import pytest

from horovodjob_trainer.checkpoint.run_file import RUN_FILE
from trainer.checkpoint.checkpoints import log_lines, network, open_directory, restore, state, write
from trainer.support import foreign_models


@pytest.mark.parametrize("kind", foreign_models.ELSEWHERE)
def test_a_checkpoint_reads_no_other_file(tmp_path: Path, kind: str) -> None:
    log_lines.clear()
    output = open_directory(tmp_path, resume=False)
    write(output, network(), 1)
    write(output, network(), 2)
    foreign_models.ELSEWHERE[kind](output.checkpoint_path(2))
    assert restore(output, network()) == state(1)
    assert "refers to something outside the file" in log_lines[0]


@pytest.mark.parametrize("absolute", [False, True], ids=["above", "absolute"])
def test_the_name_of_a_run_leads_to_no_other_folder(tmp_path: Path, absolute: bool) -> None:
    private = tmp_path / "private"
    write(open_directory(private, resume=False), network(), 1)
    before = {path.name: path.read_bytes() for path in private.iterdir() if path.is_file()}
    directory = tmp_path / "output"
    planted = json.loads((private / RUN_FILE).read_text()) | {"run": str(private) if absolute else "../../private"}
    directory.mkdir()
    (directory / RUN_FILE).write_text(json.dumps(planted))
    assert open_directory(directory, resume=True).run.isalnum()
    assert {path.name: path.read_bytes() for path in private.iterdir() if path.is_file()} == before
