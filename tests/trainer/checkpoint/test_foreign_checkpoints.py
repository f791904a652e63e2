"""Checkpoints and weights that somebody else has written."""

import json
from pathlib import Path

import pytest

from horovodjob_trainer.checkpoint.run_file import RUN_FILE
from horovodjob_trainer.errors import ModelError
from horovodjob_trainer.run.initial_weights import load_initial_weights
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


@pytest.mark.parametrize("kind", foreign_models.ELSEWHERE)
@pytest.mark.parametrize("name", ["a.h5", "a.weights.h5", "a.keras"])
def test_initial_weights_are_in_the_file_itself(tmp_path: Path, kind: str, name: str) -> None:
    model, path, change = network(), tmp_path / name, foreign_models.ELSEWHERE[kind]
    if name.endswith(".weights.h5"):
        model.save_weights(path)
    else:
        model.save(path)
    assert load_initial_weights(network(), path)
    if name.endswith(".keras"):
        foreign_models.rewrite(path, path.with_name("changed.keras"), "model.weights.h5", change)
        path = path.with_name("changed.keras")
    else:
        change(path)
    with pytest.raises(ModelError, match=f"--init-from: {path} (does not contain weights|has no weights of)"):
        load_initial_weights(network(), path)
