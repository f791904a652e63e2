"""From a request to the data set."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from horovodjob_trainer.data import memory
from horovodjob_trainer.data.cifar import LAYOUTS, cifar
from horovodjob_trainer.data.digits import digits
from horovodjob_trainer.data.example_reader import in_memory
from horovodjob_trainer.data.image_folder import image_folder
from horovodjob_trainer.data.npz import npz
from horovodjob_trainer.data.request import Request, problem
from horovodjob_trainer.data.source import Dataset, Source
from horovodjob_trainer.data.tfrecord import tfrecord
from horovodjob_trainer.data.user_arrays import from_function
from horovodjob_trainer.errors import DataError
from horovodjob_trainer.launch import Launch


def opened(request: Request) -> Dataset:
    """The data set; downloads it where the node has none, and reads it into memory if it fits and is to be kept.

    Raises DataError with one sentence that names the file and the remedy.
    """
    if (sentence := problem(request)) is not None:
        raise DataError(sentence)
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
        return _on_disk(request, request.path, Launch.from_environment(os.environ))
    return from_function(request)


def _on_disk(request: Request, path: Path, launch: Launch) -> Dataset:
    room = memory.room(launch.local_size)
    if request.dataset == "npz":
        return npz(request, path, room=room)
    size, share, seed = request.image_size, request.validation_share, request.seed
    if request.dataset == "images":
        found = image_folder(path, size=size, share=share, seed=seed)
    else:
        found = tfrecord(path, size=size, share=share, seed=seed, threads=request.threads)
    return _kept(found, request, room=room, ranks=launch.size)


def _kept(dataset: Dataset, request: Request, *, room: int, ranks: int) -> Dataset:
    """The data set with its pictures in memory if they fit: all to train on, and this rank's part of the test."""
    needed = _bytes(dataset.train) + _bytes(dataset.test) // ranks
    sizes = f"{memory.in_words(needed)} of pictures and room for {memory.in_words(room)}"
    if request.cache == "none":
        return replace(dataset, remark="pictures are decoded whenever they are needed, as --cache none asks")
    if needed > room:
        if request.cache == "memory":
            raise DataError(f"{request.path} has {sizes}; give the pod more memory, or --cache auto")
        return replace(dataset, remark=f"pictures are decoded whenever they are needed: {sizes}")
    test: Any = dataset.test
    train = in_memory(dataset.train, threads=request.threads)
    return replace(dataset, train=train, test=replace(test, keep=True), remark=f"pictures are in memory: {sizes}")


def _bytes(source: Source) -> int:
    return source.samples * int(np.prod(source.shape))
