"""Fixtures of the data tests: images and records in real files."""

import os
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import pytest
import tensorflow as tf

from horovodjob_trainer import data
from horovodjob_trainer.errors import DataError
from horovodjob_trainer.run.augmentation import batch_mixing
from horovodjob_trainer.run.pipeline import batch_preparation, evaluation_batches, training_batches


@pytest.fixture(scope="session")
def problem() -> Callable[..., str]:
    """The error message for a request, one sentence that contains the file."""

    def sentence(*, names: object = "", **request: Any) -> str:
        with pytest.raises(DataError) as raised:
            data.load_dataset(data.Request(**request))
        text = str(raised.value)
        assert "\n" not in text
        assert str(names) in text
        return text

    return sentence


@pytest.fixture(scope="session")
def records(picture: Callable[..., bytes]) -> Callable[..., Path]:
    """Writes a TFRecord file of images with these labels; unless given, the brightness of an image is its number."""

    def write(
        path: Path,
        labels: Sequence[int],
        *,
        first: int = 0,
        keys: tuple[str, str] = ("image", "label"),
        image: bytes | None = None,
    ) -> Path:
        with tf.io.TFRecordWriter(str(path)) as file:
            for number, label in enumerate(labels, first):
                content = tf.train.Feature(bytes_list=tf.train.BytesList(value=[image or picture(number)]))
                numbers = tf.train.Feature(int64_list=tf.train.Int64List(value=[label]))
                features = tf.train.Features(feature=dict(zip(keys, (content, numbers), strict=True)))
                file.write(tf.train.Example(features=features).SerializeToString())
        return path

    return write


@pytest.fixture
def copies(tmp_path: Path, records: Callable[..., Path]) -> Callable[..., Path]:
    """Writes an image into each of two classes for training and for testing, in folders and in records."""

    def write(image: bytes, suffix: str) -> Path:
        for part in ("train", "test"):
            for name in ("cat", "dog"):
                (tmp_path / part / name).mkdir(parents=True)
                (tmp_path / part / name / f"0.{suffix}").write_bytes(image)
            records(tmp_path / f"{part}.tfrecord", [1], image=image)
        return tmp_path

    return write


Batches = list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]


@pytest.fixture(scope="session")
def train() -> Callable[..., Batches]:
    """The first batches of a source, as the model gets them."""

    def first(
        source: data.Source,
        batches: int = 3,
        augment: Any = None,
        *,
        in_step: bool = False,
        threads: int = 2,
        crop: bool = False,
        rand_augment: float | None = None,
        mixup: float | None = None,
        cutmix: float | None = None,
        **settings: Any,
    ) -> Batches:
        steps = data.Steps(**({"batch": 4, "seed": 1} | settings))
        mix = batch_mixing(mixup=mixup, cutmix=cutmix, seed=steps.seed)
        encode = (lambda x, y: (x, tf.one_hot(y, source.classes))) if mix else None
        prepare = batch_preparation(source, batch=steps.batch, seed=steps.seed, augment=augment, encode=encode, mix=mix)
        in_pipeline = None if in_step else prepare
        every = training_batches(
            source, steps, threads=threads, crop=crop, rand_augment=rand_augment, prepare=in_pipeline
        )
        elements = islice(every, batches)
        prepared = (prepare(*element) for element in elements) if in_step else elements
        return [(x.numpy(), y.numpy()) for x, y in prepared]

    return first


@pytest.fixture(scope="session")
def whole() -> Callable[..., tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    """All examples of a source and their labels, rank by rank."""

    def read(source: data.Source, *, size: int = 1) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        prepare = batch_preparation(source)
        parts = [
            tuple(part.numpy() for part in prepare(*element))
            for rank in range(size)
            for element in evaluation_batches(source, batch=5, rank=rank, size=size)
        ]
        return np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts])

    return read
