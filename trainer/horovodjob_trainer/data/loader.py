"""Loads the data set of a request."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from horovodjob_trainer.data import memory
from horovodjob_trainer.data.cifar import LAYOUTS, cifar
from horovodjob_trainer.data.digits import digits
from horovodjob_trainer.data.example_reader import load_into_memory
from horovodjob_trainer.data.image_folder import image_folder
from horovodjob_trainer.data.npz import npz
from horovodjob_trainer.data.ranks import Ranks
from horovodjob_trainer.data.request import Request, request_error
from horovodjob_trainer.data.source import Dataset, Source
from horovodjob_trainer.data.tfrecord import tfrecord
from horovodjob_trainer.data.user_arrays import load_from_function
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
    if request.path is not None and request.dataset in ("images", "tfrecord", "npz"):
        return _load_files(request, request.path, Launch.from_environment(os.environ), ranks)
    return load_from_function(request)


def _load_files(request: Request, path: Path, launch: Launch, ranks: Ranks) -> Dataset:
    budget = memory.budget_bytes(launch.local_size)
    if request.dataset == "npz":
        return npz(request, path, budget=budget)
    size, share, seed = request.image_size, request.validation_share, request.seed
    if request.dataset == "images":
        dataset = image_folder(path, size=size, share=share, seed=seed, output=request.output_directory, ranks=ranks)
    else:
        dataset = tfrecord(request, path, ranks=ranks)
    return _apply_cache(dataset, request, budget=budget, ranks=launch.size)


def _apply_cache(dataset: Dataset, request: Request, *, budget: int, ranks: int) -> Dataset:
    """The data set with the training images in memory and the test images of this rank cached, if both fit."""
    needed = _size_bytes(dataset.train) + _size_bytes(dataset.test) // ranks
    sizes = f"{memory.format_bytes(needed)} of images, memory budget {memory.format_bytes(budget)}"
    if request.cache == "none":
        return replace(dataset, remark="images are decoded in each epoch because of --cache none")
    if needed > budget:
        if request.cache == "memory":
            raise DataError(
                f"{request.path} does not fit into memory ({sizes}); give the pod more memory, or use --cache auto"
            )
        return replace(dataset, remark=f"images are decoded in each epoch: {sizes}")
    test: Any = dataset.test
    train = load_into_memory(dataset.train, threads=request.threads)
    return replace(dataset, train=train, test=replace(test, keep=True), remark=f"images are in memory: {sizes}")


def _size_bytes(source: Source) -> int:
    return source.samples * int(np.prod(source.shape))
