"""What a data scientist does: train on a shared volume, read its log files, take the model home."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from e2e.access import wait_for
from e2e.space import Space, volume

MODEL = "saved_models/keras_cifar10_trained_model"
# Keras alone, without Horovod: what a data scientist has at home.
LOAD = f"""
import keras, numpy, sklearn.datasets
digits = sklearn.datasets.load_digits()
for suffix in (".h5", ".keras"):
    model = keras.saving.load_model("/data/{MODEL}" + suffix)
    shape = model.input_shape[1:]
    print("LOADED", suffix, shape, model.count_params())
"""


def test_digits_are_learned_and_the_model_loads_in_plain_keras(
    space: Space, shared_directory: Callable[[str], Path]
) -> None:
    volumes, mounts = volume(space, shared_directory(space.name))
    shared = {"volumes": volumes, "volumeMounts": mounts}
    train = ["python", "-m", "horovodjob_trainer", "--dataset", "digits", "--dir", "/data"]
    space.apply(space.job("digits", train, worker={"replicas": 2}, logs={"pathPrefix": "/data/logs"}, **shared))
    space.wait_phase("digits", "Running", seconds=120)
    space.wait_phase("digits", "Succeeded", seconds=300)
    accuracy = re.findall(r"Test accuracy: ([\d.]+)", "\n".join(space.output("digits")))
    assert len(accuracy) == 1, "one rank alone reports"
    assert float(accuracy[0]) >= 0.95
    space.apply(space.job("home", ["python", "-c", LOAD], runPolicy={"backoffLimit": 0}, **shared))
    space.wait_phase("home", "Succeeded", seconds=120)
    loaded = [line.split(" ", 2)[1:] for line in space.output("home") if line.startswith("LOADED")]
    assert [suffix for suffix, _ in loaded] == [".h5", ".keras"]
    assert loaded[0][1] == loaded[1][1]


def test_log_files_grow_while_the_job_runs_and_name_each_attempt(
    space: Space, shared_directory: Callable[[str], Path]
) -> None:
    directory = shared_directory(space.name)
    volumes, mounts = volume(space, directory)
    # The shell script is on the volume as well: that is what spec.script is for.
    (directory / "job.sh").write_text(
        'echo "out $HOROVODJOB_ATTEMPT $1"; echo "err $HOROVODJOB_ATTEMPT" >&2\n'
        'until [ -e "/data/go-$HOROVODJOB_ATTEMPT" ]; do sleep 0.1; done\n'
        '[ "$HOROVODJOB_ATTEMPT" = 2 ]\n'
    )
    script = {"path": "/data/job.sh", "interpreter": "sh", "args": ["two words"]}
    logs = {"pathPrefix": "/data/logs"}
    space.apply(space.job("logged", script=script, logs=logs, volumes=volumes, volumeMounts=mounts))
    status = space.wait_phase("logged", "Running")
    folder = directory / "logs" / status["outputPathSegment"] / "stdouterr"

    def has(name: str, text: str) -> bool:
        return (folder / name).exists() and text in (folder / name).read_text()

    wait_for("output while the job runs", lambda: has("stdout.txt", "out 1 two words\n"), 10)
    wait_for("errors while the job runs", lambda: has("stderr.txt", "err 1\n"), 10)
    assert has("execution-logged-launcher.log", "mpirun starts 1 ranks on 1 workers")
    assert has("execution-logged-worker-0.log", "worker starts: sshd")
    assert space.status("logged")["phase"] == "Running"
    (directory / "go-1").touch()
    (directory / "go-2").touch()
    space.wait_phase("logged", "Succeeded", seconds=90)
    attempt = r"--- attempt %d, \d{4}-\d\d-\d\dT[\d:]+Z ---\n%s %d%s\n"
    output, errors = ((folder / name).read_text() for name in ("stdout.txt", "stderr.txt"))
    first, second = (attempt % (number, "out", number, " two words") for number in (1, 2))
    assert re.fullmatch(first + second, output), output
    first, second = (attempt % (number, "err", number, "") for number in (1, 2))
    assert re.search(f"{first}.*{second}", errors, re.DOTALL), errors
    assert has("execution-logged-launcher.log", "mpirun ended with exit code 0 (attempt 2)")
    assert "out 2 two words" in space.output("logged")
