"""The files of a progress report: progress.jsonl and the TensorBoard event files. A write error never ends the run."""

import json
import math
import re
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import tensorflow as tf


class JsonLinesFile:
    """A file with one JSON object per line; none if the path is None. A new attempt appends to that of the previous."""

    def __init__(self, path: Path | None, log: Callable[[str], None]) -> None:
        self.path, self.log, self.file = path, log, None
        if path is None:
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self.file = path.open("a", encoding="utf-8", buffering=1)
        except OSError as error:
            self._disable(error)

    def write(self, record: Mapping[str, Any]) -> None:
        """Append the record; NaN and infinity become null."""
        if self.file is None:
            return
        try:
            self.file.write(json.dumps(_json_value(record)) + "\n")
        except OSError as error:
            self._disable(error)

    def close(self) -> None:
        if self.file is not None:
            try:
                self.file.close()
            except OSError as error:
                self._disable(error)

    def _disable(self, error: OSError) -> None:
        self.file = None
        self.log(f"Training continues without {self.path}: {error.strerror or error}")


class TensorBoardFiles:
    """The event files of TensorBoard; none if the directory is None."""

    def __init__(self, directory: Path | None, log: Callable[[str], None]) -> None:
        self.directory, self.log = directory, log
        self.writer: Any = None
        if directory is None:
            return
        if find_spec("tensorboard") is None:  # TensorFlow does not ask for it since 2.21
            self._disable("the package tensorboard is not installed")
        else:
            self._call(lambda: setattr(self, "writer", tf.summary.create_file_writer(str(directory))))

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Write one scalar for each value."""
        if self.writer is not None:
            self._call(lambda: self._write_scalars(step, values))

    def close(self) -> None:
        if self.writer is not None:
            self._call(lambda: self.writer.close())

    def _write_scalars(self, step: int, values: Mapping[str, float]) -> None:
        with tf.device("CPU"), self.writer.as_default():
            for name, value in values.items():
                tf.summary.scalar(name, value, step=step)
        self.writer.flush()

    def _call(self, action: Callable[[], object]) -> None:
        try:
            action()
        except (tf.errors.OpError, OSError) as error:
            text = re.sub(r"\{\{function_node .*?\}\}", "", str(error))  # the name of the operation
            self._disable(" ".join(text.split())[:200])

    def _disable(self, reason: str) -> None:
        self.writer = None
        self.log(f"Training continues without TensorBoard files in {self.directory}: {reason}")


def _json_value(value: Any) -> Any:
    """The value with null in the place of numbers that JSON does not have."""
    if isinstance(value, Mapping):
        return {name: _json_value(inner) for name, inner in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
