"""The networks that can be trained: the trainer's own, Keras', and the user's."""

from collections.abc import Callable
from typing import Any

from horovodjob_trainer import import_string
from horovodjob_trainer.errors import ModelError, UsageError

SMALLEST_SIDE = 10  # of a picture, for two rounds of convolution and pooling


def problem(name: str) -> str | None:
    """One sentence about a model that does not exist or whose module cannot be imported."""
    if not import_string.is_reference(name):
        known = ", ".join(MODELS)
        return None if name in MODELS else f"there is no model '{name}'; choose {known}, or package.module:function"
    try:
        import_string.function(name)
    except UsageError as error:
        return str(error)
    return None


def build(name: str, *, shape: tuple[int, ...], classes: int | None, dropout: bool = True) -> Any:
    """The Keras model of that name for examples of this shape; networks of the trainer end in a softmax.

    `package.module:function` is called with those of shape, classes and dropout that it declares, and gives a
    keras.Model, compiled or not. Raises ModelError where the model does not suit the data.
    """
    if (sentence := problem(name)) is not None:
        raise ModelError(sentence)
    if import_string.is_reference(name):
        return _own(name, shape=shape, classes=classes, dropout=dropout)
    if len(shape) != 3 or min(shape[:2]) < SMALLEST_SIDE:
        raise ModelError(
            f"--model {name} needs pictures of at least {SMALLEST_SIDE} x {SMALLEST_SIDE} pixels, and the data has "
            f"the shape {shape}; give --model package.module:function"
        )
    if not classes:
        raise ModelError(f"--model {name} needs classes, and the labels are none; give --model package.module:function")
    return MODELS[name](shape, classes, dropout)


def _own(reference: str, **offered: Any) -> Any:
    import keras

    model = import_string.called(reference, **offered)
    if not isinstance(model, keras.Model):
        raise ModelError(f"{reference} gave {type(model).__module__}.{type(model).__qualname__}, not a keras.Model")
    return model


def tutorial_cnn(shape: tuple[int, ...], classes: int, dropout: bool = True) -> Any:
    """The small network of Keras' classic CIFAR-10 example: 1.25 million weights there, about 75 % in 25 epochs."""
    import keras
    from keras import layers

    def dropped(rate: float) -> list[Any]:
        return [layers.Dropout(rate)] if dropout else []

    def convolutions(filters: int) -> list[Any]:
        first = layers.Conv2D(filters, 3, padding="same", activation="relu")
        return [first, layers.Conv2D(filters, 3, activation="relu"), layers.MaxPooling2D(), *dropped(0.25)]

    dense = [layers.Dense(512, activation="relu"), *dropped(0.5), _softmax_layer(classes)]
    return keras.Sequential(
        [keras.Input(shape), *convolutions(32), *convolutions(64), layers.Flatten(), *dense], name="tutorial"
    )


def resnet18(shape: tuple[int, ...], classes: int, dropout: bool = True) -> Any:
    """ResNet-18 of He et al. 2015 (arXiv:1512.03385); for pictures below 64 pixels with its stem for CIFAR.

    It has no dropout.
    """
    import keras
    from keras import layers

    inputs = keras.Input(shape)
    if min(shape[:2]) < 64:
        x = _normalised(inputs, 64, 3, 1)
    else:
        x = _normalised(inputs, 64, 7, 2)
        x = layers.MaxPooling2D(3, 2, padding="same")(x)
    for filters in (64, 128, 256, 512):
        x = _residual(x, filters, stride=1 if filters == 64 else 2)
        x = _residual(x, filters, stride=1)
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, _softmax_layer(classes)(x), name="resnet18")


def resnet50(shape: tuple[int, ...], classes: int, dropout: bool = True) -> Any:
    """Keras' ResNet-50 with random weights, which takes pictures from 32 pixels on; it has no dropout."""
    import keras

    if min(shape[:2]) < 32:
        raise ModelError(f"--model resnet50 needs pictures of at least 32 x 32 pixels, and these have {shape[:2]}")
    base = keras.applications.ResNet50(include_top=False, weights=None, input_shape=shape, pooling="avg")
    return keras.Model(base.input, _softmax_layer(classes)(base.output), name="resnet50")


def _softmax_layer(classes: int) -> Any:
    from keras import layers

    # float32 also under mixed precision: the loss takes logarithms of these.
    return layers.Dense(classes, activation="softmax", dtype="float32")


def _residual(x: Any, filters: int, *, stride: int) -> Any:
    from keras import layers

    shortcut = x if stride == 1 and x.shape[-1] == filters else _normalised(x, filters, 1, stride, relu=False)
    y = _normalised(x, filters, 3, stride)
    y = _normalised(y, filters, 3, 1, relu=False)
    return layers.ReLU()(layers.Add()([shortcut, y]))


def _normalised(x: Any, filters: int, kernel: int, stride: int, *, relu: bool = True) -> Any:
    from keras import layers

    x = layers.Conv2D(
        filters, kernel, stride, padding="same", use_bias=False, kernel_initializer="he_normal"
    )(x)  # fmt: skip
    x = layers.BatchNormalization()(x)
    return layers.ReLU()(x) if relu else x


MODELS: dict[str, Callable[[tuple[int, ...], int, bool], Any]] = {
    "tutorial": tutorial_cnn,
    "resnet18": resnet18,
    "resnet50": resnet50,
}
