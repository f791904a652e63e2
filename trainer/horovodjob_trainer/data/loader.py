"""Loads the data set of a request, or examples without labels."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from horovodjob_trainer.data.arrays import Arrays
from horovodjob_trainer.data.caching import memory
from horovodjob_trainer.data.caching.node_cache import cache_bytes, load_into_memory, share_memory
from horovodjob_trainer.data.formats.cifar import LAYOUTS, cifar
from horovodjob_trainer.data.formats.digits import digits
from horovodjob_trainer.data.formats.image_folder import ImageFiles, image_folder
from horovodjob_trainer.data.formats.npz import npz, unlabelled_arrays
from horovodjob_trainer.data.formats.tfrecord import tfrecord
from horovodjob_trainer.data.formats.user_arrays import load_from_function
from horovodjob_trainer.data.indexes.image_index import list_tree, other_files_text
from horovodjob_trainer.data.ranks import Ranks
from horovodjob_trainer.data.reading.image_pixels import SUFFIXES
from horovodjob_trainer.data.request import ON_DISK, Request
from horovodjob_trainer.data.request_check import request_error
from horovodjob_trainer.data.source import DamagedExamples, Dataset, Source
from horovodjob_trainer.errors import DataError
from horovodjob_trainer.launch import Launch

ALONE = Ranks()


def load_dataset(request: Request, ranks: Ranks = ALONE) -> Dataset:
    """The data set of the request. It is downloaded if the node does not have it, and cached as `cache` requires.

    With `ranks`, all of them call the function, and share the work of listing the files.
    Raises DataError with one sentence that contains the file and the remedy.
    """
    if (error := request_error(request)) is not None:
        raise DataError(error)
    if request.dataset in LAYOUTS:
        return cifar(
            LAYOUTS[request.dataset],
            archive=request.archive,
            url=request.archive_url,
            sha256=request.archive_sha256,
            directory=request.data_directory,
        )
    if request.dataset == "digits":
        return digits()
    if request.path is not None and request.dataset in ON_DISK:
        return _load_files(request, request.path, Launch.from_environment(os.environ), ranks)
    return load_from_function(request)


def unlabelled_examples(
    path: Path, size: int, central_share: float = 1.0, *, exif: bool = True, log: Callable[[str], None] = ALONE.log
) -> Source:
    """An image, the images in a folder and its subfolders, or the array x in an .npz file. All labels are 0.

    Of an image, the central square with this share of its shorter side is used. With `exif`, it is turned first.

    Raises DataError with one sentence.
    """
    if path.suffix == ".npz":
        return unlabelled_arrays(path)
    if path.is_dir():
        tree = list_tree(path)
        files = [str(path / name) for name in tree.files]
        if text := other_files_text([tree]):
            log(text)
        if not files:
            raise DataError(f"{path} contains no images ({', '.join(SUFFIXES)}); give another folder with --data")
    elif path.exists():
        files = [str(path)]
    else:
        raise DataError(f"{path} does not exist; give images with --data")
    labels = np.zeros(len(files), np.int64)
    return ImageFiles(files, labels, (), size, str(path), central_share=central_share, exif=exif)


def _load_files(request: Request, path: Path, launch: Launch, ranks: Ranks) -> Dataset:
    if request.dataset == "npz":
        return npz(request, path, budget=memory.budget_bytes(launch.local_size))
    size, share, seed = request.image_size, request.validation_share, request.seed
    if request.dataset == "images":
        dataset = image_folder(path, size=size, share=share, seed=seed, output=request.output_directory, ranks=ranks)
    else:
        dataset = tfrecord(request, path, ranks=ranks)
    test: Any = dataset.test
    sources: list[Any] = [dataset.train, replace(test, central_share=request.validation_crop)]
    train, test = (replace(source, exif=request.exif) for source in sources)
    dataset = replace(dataset, train=train, test=test)
    if request.skip_damaged:
        damaged = DamagedExamples()
        train, test = (replace(source, damaged=damaged) for source in (train, test))
        dataset = replace(dataset, train=train, test=test, damaged=damaged)
    return _apply_cache(dataset, request, launch=launch, ranks=ranks)


def _apply_cache(dataset: Dataset, request: Request, *, launch: Launch, ranks: Ranks) -> Dataset:
    """The data set in the memory of this node, if it fits. The first rank of the node decides."""
    if request.cache == "none":
        return replace(dataset, remark="images are decoded in each epoch because of --cache none")
    if request.crop == "random":
        return replace(dataset, remark="images are decoded in each epoch because of --crop random")
    sources = (dataset.train, dataset.test)
    needed = cache_bytes(sources)
    # With elastic Horovod ranks come and go, so each has its own memory.
    copies = launch.local_size if ranks.size == 1 else 1
    budget = memory.budget_bytes(copies)
    owner = f"each of {copies} ranks" if copies > 1 else "all ranks of the node"
    sizes = (
        f"{memory.format_bytes(needed)} of images, memory budget {memory.format_bytes(budget)} for {owner}, "
        f"half of what is free; {memory.limit_text()}"
    )
    shared = share_memory(needed if needed <= budget else 0, ranks)
    parts: list[Arrays] = []

    def load() -> None:
        if shared is not None:
            parts.extend(load_into_memory(sources, shared, threads=request.threads))
        elif request.cache == "memory":
            raise DataError(
                f"{request.path} does not fit into memory ({sizes}); give the pod more memory, or use --cache auto"
            )

    ranks.call_on_each(load)  # also on a node without the memory: all ranks call the same methods
    if shared is None:
        return replace(dataset, remark=f"images are decoded in each epoch: {sizes}")
    for_ranks = f", once for {shared.count} ranks" if shared.count > 1 else ""
    remark = f"images are in memory{for_ranks}: {sizes}"
    return replace(dataset, train=parts[0], test=parts[1], remark=remark)
