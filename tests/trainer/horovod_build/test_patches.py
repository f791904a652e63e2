"""Each patch of Horovod is necessary for its versions and sufficient: its check fails only without it."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import distribution
from pathlib import Path

import pytest
from images.horovod import build

from stages.settings import CACHE, ROOT

MODULE = "import sys; sys.modules['distutils'] = None; import horovod.runner.js_run"
KEY = "import sys, pathlib, images.horovod.build as it; print(it.key(sys.executable, cuda=pathlib.Path()))"
# What the head of mpi_ops.cc needs of CUDA, which this environment does not have.
CUDA_HEADER = "using cudaStream_t = struct Stream_*;\n"


def tensorflow_version() -> tuple[int, int]:
    major, minor, _ = distribution("tensorflow-cpu").version.split(".")
    return int(major), int(minor)


def compiles(sources: Path, file: str, *options: str) -> bool:
    """Whether the compiler accepts a file, with the headers of this environment's TensorFlow."""
    major, minor = tensorflow_version()
    includes = distribution("tensorflow-cpu").locate_file("tensorflow/include")
    version = f"-DTENSORFLOW_VERSION={major}{minor:03}000000"
    command = ["c++", "-std=c++17", "-fsyntax-only", "-w", version, "-isystem", str(includes), *options, file]
    return subprocess.run(command, cwd=sources / "horovod/tensorflow", check=False).returncode == 0


def xla_file_compiles(sources: Path) -> bool:
    return compiles(sources, "xla_mpi_ops.cc")


def stream_has_a_handle(sources: Path) -> bool:
    """Whether the beginning of mpi_ops.cc that is for GPUs compiles."""
    found = re.search(
        "^#if HAVE_GPU\n.*?(?=// Undef LOG)", (sources / "horovod/tensorflow/mpi_ops.cc").read_text(), re.M | re.S
    )
    assert found
    (sources / "horovod/tensorflow/head.cc").write_text(found[0])
    (sources / "cuda_runtime.h").write_text(CUDA_HEADER)
    return compiles(sources, "head.cc", "-DHAVE_GPU=1", "-DHAVE_CUDA=1", "-I", str(sources))


def horovodrun_needs_no_distutils(sources: Path) -> bool:
    environment = {**os.environ, "PYTHONPATH": str(sources), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run([sys.executable, "-c", MODULE], env=environment, check=False).returncode == 0


def headers_are_complete(sources: Path) -> bool:
    """Whether headers include what they name, and whether FlatBuffers' span can be assigned."""
    texts = [(sources / "horovod/common" / name).read_text() for name in ("common.h", "group_table.h")]
    included = "#include <stdexcept>" in texts[0] and "#include <string>" in texts[1]
    program = '#include "flatbuffers/stl_emulation.h"\ntemplate class flatbuffers::span<int>;\n'
    (sources / "horovod/tensorflow/span.cc").write_text(program)
    include = sources / "third_party/flatbuffers/include"
    command = ["c++", "-std=c++14", "-fsyntax-only", "-I", str(include), "span.cc"]
    done = subprocess.run(command, cwd=sources / "horovod/tensorflow", check=False)
    return included and done.returncode == 0


CHECKS: dict[str, Callable[[Path], bool]] = {
    "distutils": horovodrun_needs_no_distutils,
    "gcc": headers_are_complete,
    "gpu-stream": stream_has_a_handle,
    "xla-ops": xla_file_compiles,
}
# `make horovod-versions` runs these tests with newer versions than the images have.
NEWER_TENSORFLOW = ("gpu-stream", "xla-ops")
CONCERNED = [name for name in CHECKS if name not in NEWER_TENSORFLOW or tensorflow_version() >= (2, 19)]


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build.unpack(build.download(CACHE / "horovod"), tmp_path_factory.mktemp("published"))


def patched(published: Path, folder: Path, without: str = "") -> Path:
    for part in ("horovod", "third_party/flatbuffers/include"):
        shutil.copytree(published / part, folder / part)
    build.apply_patches(folder, without=without)
    return folder


def test_each_patch_has_a_check_and_says_which_versions_it_concerns() -> None:
    assert sorted(CHECKS) == [path.stem for path in build.patches()]
    heads = [path.read_text().partition("\n")[0] for path in build.patches()]
    assert all(head.startswith(("GCC ", "Python ", "TensorFlow ")) and head.endswith(".") for head in heads)


@pytest.mark.parametrize("name", CONCERNED)
def test_a_patch_is_necessary_for_the_versions_that_it_concerns(published: Path, tmp_path: Path, name: str) -> None:
    assert CHECKS[name](patched(published, tmp_path / "with"))
    assert not CHECKS[name](patched(published, tmp_path / "without", without=name))


def test_the_wheel_is_another_one_for_another_patch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "one.patch").write_text("one")
    monkeypatch.setattr(build, "PATCHES", tmp_path)
    before = build.key(sys.executable)
    assert build.key(sys.executable) == before != build.key(sys.executable, cuda=tmp_path)
    (tmp_path / "one.patch").write_text("two")
    assert build.key(sys.executable) != before


def test_the_wheel_for_gpus_is_the_same_one_in_each_checkout(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "images", tmp_path / "images")
    shutil.copy(ROOT / "uv.lock", tmp_path)
    command = [sys.executable, "-B", "-c", KEY]
    keys = [subprocess.check_output(command, cwd=checkout, text=True) for checkout in (ROOT, tmp_path)]
    assert keys[0] == keys[1]
