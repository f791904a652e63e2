"""Damaged examples that a training accepts."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from horovodjob_trainer import data
from horovodjob_trainer.data.reading.example_reader import data_error

OWN = """
import keras

def build(shape, classes):
    return keras.Sequential([keras.Input(shape), keras.layers.Flatten(), keras.layers.Dense(classes, "softmax")])
"""
BRIGHTNESS = 1 / 255


@pytest.fixture
def pets(tmp_path: Path, folders: Callable[..., Path]) -> Path:
    """Twelve training images, whose brightness is their number. Number 3 is cut off, and number 8 is text."""
    folders(tmp_path / "pets" / "test", cat=2, dog=2)
    folders(tmp_path / "pets" / "train", cat=6, dog=6)
    cut = tmp_path / "pets/train/cat/003.png"
    cut.write_bytes(cut.read_bytes()[:-30])
    (tmp_path / "pets/train/dog/002.png").write_bytes(b"<html>not found</html>")
    return tmp_path / "pets"


def load(path: Path, dataset: str = "images", cache: str = "none", skip: int = 2) -> data.Dataset:
    return data.load_dataset(data.Request(dataset=dataset, path=path, image_size=24, cache=cache, skip_damaged=skip))


def brightness(batches: Any) -> list[list[int]]:
    """The number of each training image in the batches."""
    return [np.round(images[:, 0, 0, 0] / BRIGHTNESS).astype(int).tolist() for images, _ in batches]


def test_an_intact_image_of_the_batch_replaces_a_damaged_one_which_is_named(pets: Path, train: Any) -> None:
    dataset = load(pets)
    batches = train(dataset.train, 3)
    seen = brightness(batches)
    for batch, (_, labels) in zip(seen, batches, strict=True):
        assert not {3, 8} & set(batch)
        assert [number >= 6 for number in batch] == [bool(label) for label in labels]
    assert sum(len(set(batch)) for batch in seen) == 10
    assert dataset.damaged is not None
    assert {Path(name).name for name in dataset.damaged.names} == {"003.png", "002.png"}
    assert brightness(train(load(pets).train, 2, position=4)) == seen[1:], "whatever the rank has read before"
    in_memory = load(pets, cache="memory").damaged
    assert in_memory is not None
    assert len(in_memory) == 2

    (pets / "train/cat/000.png").unlink()
    assert not any(0 in batch for batch in brightness(train(dataset.train, 3)))
    assert len(dataset.damaged) == 3


def test_a_batch_without_an_intact_image_is_an_error_with_the_file(pets: Path, train: Any) -> None:
    source = load(pets).train
    with pytest.raises(Exception, match="row") as raised:
        train(source, 12, batch=1)
    assert "cannot be read: it is not a complete JPEG" in str(data_error(raised.value, source))


def test_a_damaged_record_is_replaced_and_named(tmp_path: Path, records: Any, train: Any) -> None:
    path = records(tmp_path / "train.tfrecord", [0, 1] * 6)
    records(tmp_path / "test.tfrecord", [0, 1])
    (tmp_path / "labels.txt").write_text("cat\ndog\n")
    dataset = load(tmp_path, "tfrecord")
    content = bytearray(path.read_bytes())
    content[int(dataset.train.offsets[5]) + 30] ^= 1  # type: ignore[attr-defined]
    path.write_bytes(content)
    seen = brightness(train(dataset.train, 3))
    assert not any(5 in batch for batch in seen)
    assert dataset.damaged is not None
    assert dataset.damaged.names == (f"{path} record 5",)


def test_two_ranks_train_with_as_many_damaged_images_as_allowed(
    run: Any, trainer: Any, pets: Path, tmp_path: Path
) -> None:
    (tmp_path / "own.py").write_text(OWN)
    (pets / "test/cat/001.png").rename(pets / "test/cat/0\n1.png").write_bytes(b"")

    def ended(allowed: int) -> Any:
        flags = ("--dataset", "images", "--data", pets, "--image-size", 24, "--cache", "none", "--model", "own:build",
                 "--batch-size", 3, "--epochs", 2, "--threads", 1, "--tensorboard", "none",
                 "--dir", tmp_path / "out", "--skip-damaged", allowed)  # fmt: skip
        return run(2, trainer(*flags), {"PYTHONPATH": str(tmp_path)})

    allowed = ended(3)
    assert allowed.code == 0, allowed.stderr
    named = re.findall(r"^Skipped the damaged example (\S+) \(\d of at most 3\)$", allowed.stdout, re.MULTILINE)
    assert {str(Path(name).relative_to(pets)) for name in named} == {
        "train/cat/003.png",
        "train/dog/002.png",
        r"test/cat/0\n1.png",
    }
    records = [json.loads(line)["metrics"] for line in (tmp_path / "out/progress.jsonl").read_text().splitlines()]
    assert records[-1]["damaged_examples"] == 3
    refused = ended(2)
    assert refused.code == 1
    (sentence,) = refused.errors
    assert "3 examples are damaged, the last one is " in sentence
    assert "--skip-damaged allows 2" in sentence
