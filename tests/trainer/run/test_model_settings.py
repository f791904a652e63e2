"""Settings of optimizer, loss, initial weights and frozen layers, for models of the trainer and compiled models."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from horovodjob_trainer.cli.configuration import load_configuration
from horovodjob_trainer.errors import ModelError, UsageError

SPARSE = "sparse_categorical_crossentropy"


@pytest.fixture(scope="module")
def keras() -> Any:
    import keras

    from horovodjob_trainer import hvd

    hvd.init()
    return keras


@pytest.fixture
def network(keras: Any) -> Callable[..., Any]:
    """Builds a network of three dense layers for this number of classes."""

    def build(classes: int = 3, width: int = 4) -> Any:
        layers = [keras.layers.Dense(width, name="first"), keras.layers.Dense(5, name="second")]
        return keras.Sequential([keras.Input((6,)), *layers, keras.layers.Dense(classes, name="head")])

    return build


def compile_model(model: Any, *flags: object, classes: int | None = 3) -> Any:
    from horovodjob_trainer.run.optimization import compilation

    compilation.compile_model(model, load_configuration([*map(str, flags)], environment={}), classes)
    return model


def test_labels_of_one_class_are_rejected_unless_the_user_has_a_task(network: Any) -> None:
    with pytest.raises(ModelError, match=r"^all labels are 0, and a classification needs at least two classes: check"):
        compile_model(network(1), classes=1)
    model = network(1)
    model.compile("adam", "mse")
    assert compile_model(model, classes=1).loss == "mse"


@pytest.mark.parametrize("flag", ["--optimizer=rmsprop", "--learning-rate=0.1", "--accumulate=2", "--ema=0.9"])
def test_a_setting_that_contradicts_a_compiled_model_is_rejected_by_name(network: Any, flag: str) -> None:
    model = network()
    model.compile("adam", "categorical_crossentropy")
    with pytest.raises(ModelError, match=rf"compiled model.*{flag.partition('=')[0]} would have no effect"):
        compile_model(model, flag)


def test_a_printed_configuration_does_not_contradict_a_compiled_model(
    network: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        load_configuration(["--print-config"], environment={})
    (tmp_path / "run.yaml").write_text(capsys.readouterr().out)
    model = network()
    model.compile("adam", SPARSE)
    assert type(compile_model(model, "--config", tmp_path / "run.yaml").optimizer).__name__ == "Adam"


@pytest.mark.parametrize("flag", ["--label-smoothing", "--mixup", "--cutmix"])
def test_smooth_labels_are_rejected_for_a_sparse_loss_and_for_a_regression(network: Any, flag: str) -> None:
    model = network()
    model.compile("adam", SPARSE)
    with pytest.raises(ModelError, match=f"{flag} .*the loss {SPARSE}"):
        compile_model(model, flag, 0.2)
    with pytest.raises(ModelError, match=f"{flag} needs classes"):
        compile_model(network(), flag, 0.2, classes=None)
    assert compile_model(network(), flag, 0.2).loss.name == "categorical_crossentropy"


def test_a_learning_rate_that_cannot_be_set_is_rejected_and_a_schedule_excludes_another(
    keras: Any, network: Any
) -> None:
    model = network()
    model.compile(keras.optimizers.SGD(keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.5)), SPARSE)
    with pytest.raises(ModelError, match="ExponentialDecay, which --schedule contradicts"):
        compile_model(model, "--schedule", "cosine")
    with pytest.raises(ModelError, match="ExponentialDecay, which --warmup-from contradicts"):
        compile_model(model, "--warmup-epochs", 1, "--warmup-from", 0.01)
    model.compile(keras.optimizers.SGD(lambda: 0.1), SPARSE)
    with pytest.raises(ModelError, match="a function as learning rate"):
        compile_model(model)


@pytest.mark.parametrize(("optimizer", "rule"), [("momentum", "linear"), ("adam", "sqrt"), ("lars", "linear")])
def test_only_sgd_is_scaled_linearly_by_default(network: Any, optimizer: str, rule: str) -> None:
    from horovodjob_trainer.run.optimization.learning_rate import scaling_rule

    distributed = compile_model(network(), "--optimizer", optimizer).optimizer
    assert scaling_rule(distributed, "auto") == rule
    assert scaling_rule(distributed, "none") == "none"


def test_momentum_and_weight_decay_reach_the_optimizer_and_biases_do_not_decay(network: Any) -> None:
    flags = ("--optimizer", "momentum", "--momentum", 0.8, "--weight-decay", 0.5, "--learning-rate", 0.1)
    model = compile_model(network(), *flags)
    assert (model.optimizer.momentum, model.optimizer.nesterov) == (0.8, True)
    for weight in model.weights:
        weight.assign(np.ones(weight.shape))
    model.optimizer.apply([np.zeros(weight.shape, np.float32) for weight in model.weights])
    for weight in model.weights:
        np.testing.assert_allclose(weight, 1 - 0.1 * 0.5 if weight.name == "kernel" else 1)


def test_averages_of_the_weights_keep_their_share_in_each_step(network: Any) -> None:
    model = compile_model(network(), "--optimizer", "sgd", "--learning-rate", 1, "--ema", 0.75)
    for weight in model.weights:
        weight.assign(np.zeros(weight.shape))
    for _ in range(2):  # the weights are -1 and -2, and the first of them is the first average
        model.optimizer.apply([np.ones(weight.shape, np.float32) for weight in model.weights])
    for average in model.optimizer._model_variables_moving_average:
        np.testing.assert_allclose(average, 0.75 * -1 + 0.25 * -2)


@pytest.mark.parametrize("name", ["a.h5", "a.weights.h5"])
def test_initial_weights_replace_all_but_a_head_of_another_shape(network: Any, tmp_path: Path, name: str) -> None:
    from horovodjob_trainer.run.initial_weights import load_initial_weights

    source, same, other = network(), network(), network(classes=7)
    (source.save_weights if ".weights" in name else source.save)(tmp_path / name)
    assert load_initial_weights(same, tmp_path / name) == f"Initial weights from {tmp_path / name}"
    head = [np.array(weight) for weight in other.get_layer("head").weights]
    assert "except head, which has another shape" in load_initial_weights(other, tmp_path / name)
    for weight, loaded in zip(source.weights, same.weights, strict=True):
        np.testing.assert_array_equal(weight, loaded)
    for weight, loaded in zip([*source.weights[:-2], *head], other.weights, strict=True):
        np.testing.assert_array_equal(weight, loaded)


def test_initial_weights_of_another_network_are_rejected(network: Any, tmp_path: Path) -> None:
    from horovodjob_trainer.run.initial_weights import load_initial_weights

    network(width=9).save(tmp_path / "wide.keras")
    (tmp_path / "text.h5").write_text("no weights")
    for name, sentence in {
        "wide.keras": "no weights of the right shape for first, second; only the last layer, head, can differ",
        "text.h5": "does not contain weights for this model",
        "absent.h5": "does not exist",
    }.items():
        with pytest.raises(ModelError, match=sentence):
            load_initial_weights(network(), tmp_path / name)


@pytest.mark.parametrize(("patterns", "trained"), [(("first",), ["second", "head"]), (("*st", "sec*"), ["head"])])
def test_frozen_layers_are_not_trained(network: Any, patterns: Any, trained: list[str]) -> None:
    from horovodjob_trainer.run.initial_weights import freeze_layers

    model = network()
    sentence = freeze_layers(model, patterns)
    assert [layer.name for layer in model.layers if layer.trainable_variables] == trained
    assert sentence == f"Frozen layers: {', '.join(['first', 'second'][: 3 - len(trained)])}"


def test_layers_to_freeze_that_do_not_exist_or_are_all_layers_are_rejected(network: Any) -> None:
    from horovodjob_trainer.run.initial_weights import freeze_layers

    with pytest.raises(ModelError, match=r"no layer matches third; the layers are first, second, head"):
        freeze_layers(network(), ("third",))
    with pytest.raises(ModelError, match=r"--freeze \* leaves no layer to train"):
        freeze_layers(network(), ("*",))


TASKS = """
import keras
import tensorflow as tf

def good(classes):
    return "categorical_crossentropy", [keras.metrics.CategoricalAccuracy(name=f"of_{classes}")]

def without_metrics():
    return "mean_squared_error"

def one_metric():
    return "mean_squared_error", "accuracy"
"""


@pytest.fixture
def tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_tasks.py").write_text(TASKS)
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("tasks")
def test_a_task_has_the_loss_and_the_metrics_of_a_function(network: Any) -> None:
    model = compile_model(network(), "--task=own_tasks:good", "--optimizer=adam")
    assert model.loss == "categorical_crossentropy"
    assert "of_3" in model.evaluate(np.zeros((2, 6)), np.eye(3)[:2], verbose=0, return_dict=True)


@pytest.mark.usefixtures("tasks")
def test_a_task_that_keras_cannot_use_is_rejected(network: Any) -> None:
    for name, problem in {
        "without_metrics": "own_tasks:without_metrics returned builtins.str; return a tuple of a loss and a list",
        "one_metric": "own_tasks:one_metric returned 'accuracy' as the metrics; return a list",
    }.items():
        with pytest.raises(ModelError, match=problem):
            compile_model(network(), f"--task=own_tasks:{name}")
    for flags, sentence in {
        ("own_tasks:no",): "has no 'no'",
        ("good",): "--task: 'good' does not have the form package.module:function",
        ("own_tasks:good", "--label-smoothing", "0.1"): "--label-smoothing belongs to the loss of the trainer",
    }.items():
        with pytest.raises(UsageError, match=sentence):
            load_configuration(["--task", *flags], environment={})
    compiled = network()
    compiled.compile("adam", "mean_squared_error")
    with pytest.raises(ModelError, match=r"compiled model.*--task would have no effect"):
        compile_model(compiled, "--task=own_tasks:good")


def test_labels_that_do_not_fit_the_loss_are_rejected_before_the_first_step(keras: Any, network: Any) -> None:
    import tensorflow as tf

    from horovodjob_trainer.run.optimization.task import check_default_loss, check_fit

    model = network()
    model.compile("adam", "mean_squared_error")
    examples, position = tf.TensorSpec((None, 6)), tf.TensorSpec((), tf.int64)
    check_fit(model, (position, examples, tf.TensorSpec((None, 3))), lambda _, *batch: batch)
    with pytest.raises(ModelError) as raised:
        check_fit(model, (position, examples, tf.TensorSpec((None, 7))), lambda _, *batch: batch)
    assert "do not fit batches of examples (None, 6) and labels (None, 7)" in str(raised.value)
    assert "\n" not in str(raised.value)
    check_default_loss((examples, tf.TensorSpec((3,))))
    with pytest.raises(ModelError, match="the labels are int64, so the loss is not known: set --task"):
        check_default_loss((examples, tf.TensorSpec((), tf.int64)))


def transformer(keras: Any, *, text: bool, classes: int) -> Any:
    """A small transformer for texts or, with a layer that has weights and a layer of its own, for images."""

    class Patches(keras.layers.Layer):  # type: ignore[misc]
        def __init__(self, **arguments: Any) -> None:
            super().__init__(**arguments)
            self.conv = keras.layers.Conv2D(8, 4, 4)

        def build(self, shape: Any) -> None:
            self.conv.build(shape)
            self.positions = self.add_weight(shape=(1, 4, 8), name="positions", initializer="random_normal")

        def call(self, images: Any) -> Any:
            return keras.ops.reshape(self.conv(images), (-1, 4, 8)) + self.positions

    layers = keras.layers
    inputs = keras.Input((6,), dtype="int32") if text else keras.Input((8, 8, 3))
    x = (layers.Embedding(20, 8, name="tokens") if text else Patches(name="patches"))(inputs)
    x = layers.Add()([x, layers.MultiHeadAttention(2, 4, name="attention")(x, x)])
    x = layers.GlobalAveragePooling1D()(layers.LayerNormalization(name="normal")(x))
    return keras.Model(inputs, layers.Dense(classes, "softmax", name="head")(x))


@pytest.mark.parametrize(("text", "suffix"), [(True, "keras"), (False, "weights.h5")])
def test_a_transformer_is_tuned_from_a_file_with_another_head(
    keras: Any, tmp_path: Path, text: bool, suffix: str
) -> None:
    from horovodjob_trainer.run.initial_weights import freeze_layers, load_initial_weights

    source, model = (transformer(keras, text=text, classes=classes) for classes in (7, 3))
    path = tmp_path / f"source.{suffix}"
    (source.save if suffix == "keras" else source.save_weights)(path)
    sentence = load_initial_weights(model, path)
    assert sentence.endswith("except head, which has another shape and keeps its random weights")
    for weight, expected in zip(model.weights[:-2], source.weights[:-2], strict=True):
        np.testing.assert_array_equal(weight, expected)
    assert all(np.isfinite(np.asarray(weight)).all() for weight in model.weights)
    freeze_layers(model, ["all-but-last"])
    assert [weight.path.split("/")[-2] for weight in model.trainable_variables] == ["head", "head"]


def test_the_first_step_is_traced_once(network: Any) -> None:
    import tensorflow as tf

    from horovodjob_trainer.run.step import build_step_function

    step = build_step_function(compile_model(network(), "--label-smoothing", 0.1), [])
    assert {"accuracy", "loss"} <= set(step((tf.zeros((2, 6)), tf.one_hot([0, 1], 3))))
    assert step.experimental_get_tracing_count() == 1
