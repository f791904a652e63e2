"""Arrays of the user, in a .npz file or from a function: checks, split and memory mapping."""

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from horovodjob_trainer import data
from horovodjob_trainer.data.caching import memory
from trainer.data.batches import assert_equal

X, Y = np.random.default_rng(0).integers(0, 256, (60, 12, 12), dtype=np.uint8), np.arange(60) % 4


def request(path: Path, **changes: Any) -> data.Request:
    settings: dict[str, Any] = {"dataset": "npz", "path": path} | changes
    return data.Request(**settings)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_grey_images_and_classes_are_detected(tmp_path: Path, whole: Any, save: Any) -> None:
    save(tmp_path / "a.npz", x_train=X, y_train=Y[:, None].astype(np.uint8), x_test=X[:9], y_test=Y[:9, None])
    found = data.load_dataset(request(tmp_path / "a.npz"))
    assert found.train.images
    assert found.train.classes == 4
    images, labels = whole(found.train, size=3)
    np.testing.assert_allclose(sorted(images.sum(axis=(1, 2, 3))), sorted(X.sum(axis=(1, 2)) / 255), rtol=1e-4)
    assert np.bincount(labels).tolist() == [15, 15, 15, 15]
    assert whole(found.test)[1].tolist() == Y[:9].tolist()


def test_a_regression_has_no_classes_and_keeps_its_values(tmp_path: Path, train: Any) -> None:
    x, y = np.asfortranarray(np.random.default_rng(1).normal(size=(30, 3))), np.linspace(-1, 1, 30)
    np.savez(tmp_path / "a.npz", x=x, y=y)
    found = data.load_dataset(request(tmp_path / "a.npz", validation_share=0.1))
    assert (found.train.samples, found.test.samples) == (27, 3)
    assert found.train.classes is None
    for rows, values in train(found.train):
        for row, value in zip(rows, values, strict=True):
            np.testing.assert_allclose(row, x[np.argmin(np.abs(y - value))], rtol=1e-6)


def test_an_uncompressed_file_is_memory_mapped_with_the_same_batches(tmp_path: Path, train: Any, whole: Any) -> None:
    np.savez(tmp_path / "a.npz", x=X, y=Y)
    in_memory, mapped = (data.load_dataset(request(tmp_path / "a.npz", cache=cache)) for cache in ("memory", "none"))
    assert in_memory.fingerprint == mapped.fingerprint
    assert_equal(train(in_memory.train, threads=3), train(mapped.train, threads=3))
    np.testing.assert_array_equal(whole(in_memory.test)[0], whole(mapped.test)[0])


@pytest.mark.parametrize(
    ("compression", "cache", "what"),
    [
        (zipfile.ZIP_DEFLATED, "auto", "needs 999.0 GB"),
        (zipfile.ZIP_STORED, "memory", "needs 999.0 GB"),
        (
            zipfile.ZIP_STORED,
            "auto",
            "cannot be read",
        ),  # memory-mapped, with a header that claims more data than the file contains
    ],
)
def test_arrays_that_exceed_the_memory_are_rejected_before_they_are_read(
    tmp_path: Path, problem: Any, compression: int, cache: str, what: str
) -> None:
    header, labels = io.BytesIO(), io.BytesIO()
    npy: Any = np.lib.format
    npy.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": (333 * 10**9, 3)})
    np.save(labels, Y)
    with zipfile.ZipFile(tmp_path / "a.npz", "w", compression) as file:
        file.writestr("x.npy", header.getvalue())
        file.writestr("y.npy", labels.getvalue())
    assert what in problem(dataset="npz", path=tmp_path / "a.npz", cache=cache, names=tmp_path / "a.npz")


@pytest.mark.parametrize(
    ("arrays", "what"),
    [
        ({"x": X}, "contains x; it must contain x_train, y_train, x_test, y_test or x, y"),
        ({"x": X, "y": Y[:7]}, "both need the same length"),
        ({"x": X, "y": np.where(Y == 3, np.nan, Y)}, "y contains nan in row 3"),
        ({"x": X, "y": Y - 1}, "y contains the label -1; number the classes from 0"),
        ({"x": X, "y": np.array([None] * 60)}, "y contains Python objects"),
        ({"x": X.astype(str), "y": Y}, "x has the type <U3"),
        ({"x": X[:0], "y": Y[:0]}, "at least one example"),
        ({"x": X[:1], "y": Y[:1]}, "cannot be split"),
        ({"x_train": X, "y_train": Y, "x_test": X[:, 1:], "y_test": Y}, "both need the same type and shape"),
        ({"x_train": X, "y_train": Y, "x_test": X, "y_test": Y / 2}, "need the same type and shape"),
    ],
)
def test_inconsistent_arrays_are_rejected(tmp_path: Path, problem: Any, arrays: Any, what: str) -> None:
    np.savez(tmp_path / "a.npz", **arrays)
    assert what in problem(dataset="npz", path=tmp_path / "a.npz", names=tmp_path / "a.npz")


def test_a_damaged_or_missing_file_is_rejected(tmp_path: Path, problem: Any) -> None:
    np.savez(tmp_path / "a.npz", x=X, y=Y)
    content = (tmp_path / "a.npz").read_bytes()
    flipped = bytearray(content)
    flipped[3000] ^= 1
    for bad in (content[:-50], content[:100], b"", b"text", bytes(flipped)):
        (tmp_path / "b.npz").write_bytes(bad)
        assert "cannot be read" in problem(dataset="npz", path=tmp_path / "b.npz", names=tmp_path / "b.npz")
    assert "does not exist" in problem(dataset="npz", path=tmp_path / "c.npz")
    assert "directory" in problem(dataset="npz", path=tmp_path)


MODULE = """
import numpy as np
from horovodjob_trainer import data

def arrays(seed, path):
    x = np.full((8, 5), float(seed))
    return (x, np.arange(8) % 2), (x[:3], np.arange(3) % 2)

def same(**given):
    return data.digits()

def number():
    return 3

def demands(batch):
    return None

text = "no function"
"""


def test_a_function_of_the_user_returns_arrays_or_a_data_set(
    tmp_path: Path, problem: Any, train: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_data.py").write_text(MODULE)
    (tmp_path / "broken_data.py").write_text("import numpy\nimport no_such_thing\n")
    (tmp_path / "unfinished_data.py").write_text("x = (\n")
    monkeypatch.chdir(tmp_path)
    found = data.load_dataset(data.Request(dataset="own_data:arrays", seed=7))
    assert train(found.train)[0][0].tolist() == [[7.0] * 5] * 4
    assert found.train.classes == 2
    assert data.load_dataset(data.Request(dataset="own_data:same")).name == "digits"
    for name, what in {
        "own_data:number": "own_data:number returned builtins.int; return a tf.data.Dataset",
        "own_data:none": "has no 'none'",
        "own_data:text": "has 'text', which is not callable",
        "no_data:x": f"there is no module no_data in {tmp_path}",
        "broken_data:x": "ModuleNotFoundError at",
        "unfinished_data:x": "unfinished_data.py:1",
        "own-data:x": "does not have the form",
    }.items():
        assert what in problem(dataset=name)
    with pytest.raises(Exception, match="own_data:demands requires 'batch'; available are path"):
        data.load_dataset(data.Request(dataset="own_data:demands"))


@pytest.mark.parametrize(
    ("request_", "what"),
    [
        ({"dataset": "mnist"}, "there is no data set 'mnist'; choose one of cifar10"),
        ({"dataset": "images"}, "needs --data"),
        ({"dataset": "digits", "path": Path("x")}, "--data belongs to"),
        ({"dataset": "digits", "crop": "random"}, "--crop random belongs to"),
        ({"dataset": "images", "path": Path("x"), "crop": "random", "cache": "memory"}, "use --cache auto with --crop"),
        ({"dataset": "npz", "path": Path("x"), "archive": Path("y")}, "--archive belongs to --dataset cifar10 or"),
        ({"dataset": "cifar10", "archive": Path("x"), "archive_url": "http://y/z"}, "name two sources"),
        ({"dataset": "cifar100", "archive_sha256": "any"}, "a download is always checked"),
    ],
)
def test_an_invalid_request_is_rejected_before_data_is_read(request_: Any, what: str) -> None:
    assert what in str(data.request_error(data.Request(**request_)))


def test_the_ranks_share_half_of_the_free_memory_of_the_container(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 9000000 kB\nMemAvailable:    8000000 kB\n")
    assert memory.budget_bytes(1, cgroup=tmp_path, meminfo=meminfo) == 4_096_000_000
    for name, text in {"max": "3000", "current": "1500", "stat": "anon 1\ninactive_file 500\n"}.items():
        (tmp_path / f"memory.{name}").write_text(text)
    assert memory.budget_bytes(2, cgroup=tmp_path, meminfo=meminfo) == 500
    assert memory.limit_text(cgroup=tmp_path, meminfo=meminfo) == "the limit of the container is 0.0 MB"
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.limit_text(cgroup=tmp_path, meminfo=meminfo).startswith("the machine has 9.2 GB")
    assert memory.budget_bytes(1, cgroup=tmp_path, meminfo=meminfo) == 4_096_000_000
