"""The networks: those of the trainer, of Keras and of the user."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from horovodjob_trainer.errors import ModelError, UsageError
from horovodjob_trainer.import_string import call_function, import_function, is_import_string

# Mean and standard deviation of the channels of the images of ImageNet, with values from 0 to 1.
IMAGENET = "0.485,0.456,0.406:0.229,0.224,0.225"
MINIMUM_SIDE = 10  # of an image in pixels, for two rounds of convolution and pooling


def model_error(name: str) -> str | None:
    """One sentence if the model does not exist or its module cannot be imported, else None."""
    if not is_import_string(name):
        known = ", ".join(MODELS)
        return None if name in MODELS else f"there is no model '{name}'; choose {known}, or package.module:function"
    try:
        import_function(name)
    except UsageError as error:
        return str(error)
    return None


def channel_statistics(text: str) -> tuple[list[float], list[float]]:
    """Means and standard deviations of channels: `imagenet`, or `MEAN,...:DEVIATION,...`, or one of each for all.

    Raises ValueError for another text.
    """
    parts = [part.split(",") for part in (IMAGENET if text == "imagenet" else text).split(":")]
    try:
        means, deviations = ([float(number) for number in part] for part in parts)
    except ValueError:
        means, deviations = [], []
    is_finite = all(map(math.isfinite, [*means, *deviations]))
    if not means or len(means) != len(deviations) or not is_finite or min(deviations) <= 0:
        raise ValueError(f"'{text}' is neither imagenet nor as many means as deviations above 0, such as 0.5:0.25")
    return means, deviations


def build_model(
    name: str, *, shape: tuple[int, ...], classes: int | None, dropout: bool = True, normalize: str | None = None
) -> Any:
    """The Keras model with this name for examples of this shape. Networks of the trainer end in a softmax.

    They begin with a layer that normalizes channels with `normalize`, the text of `channel_statistics`.

    For an import string, the function is called with those of shape, classes and dropout that it declares. It returns
    a keras.Model, compiled or not. Raises ModelError if the model does not fit the data.
    """
    if (error := model_error(name)) is not None:
        raise ModelError(error)
    if is_import_string(name):
        return _build_user_model(name, shape=shape, classes=classes, dropout=dropout)
    is_image = isinstance(shape, tuple) and len(shape) == 3 and all(isinstance(side, int) for side in shape)
    if not is_image or min(shape[:2]) < MINIMUM_SIDE:
        raise ModelError(
            f"--model {name} needs images of at least {MINIMUM_SIDE} x {MINIMUM_SIDE} pixels, and the data has "
            f"the shape {shape}; use --model package.module:function"
        )
    if not classes:
        raise ModelError(
            f"--model {name} needs classes, and the labels are not classes; use --model package.module:function"
        )
    return MODELS[name](shape, classes, dropout, [] if normalize is None else [_normalization(normalize, shape[2])])


def _build_user_model(import_string: str, **available: Any) -> Any:
    import keras

    model = call_function(import_string, **available)
    if not isinstance(model, keras.Model):
        raise ModelError(
            f"{import_string} returned {type(model).__module__}.{type(model).__qualname__}, not a keras.Model"
        )
    return model


def _normalization(text: str, channels: int) -> Any:
    """The layer that normalizes the channels of images with values from 0 to 1."""
    from keras import layers

    means, deviations = channel_statistics(text)
    if len(means) not in (1, channels):
        raise ModelError(
            f"--normalize {text} has values for {len(means)} channels, and the images have {channels}; use one mean "
            "and one deviation for all channels, or one for each"
        )
    factor = channels // len(means)
    variances = [deviation**2 for deviation in deviations]
    return layers.Normalization(mean=means * factor, variance=variances * factor, dtype="float32")


def tutorial_cnn(shape: tuple[int, ...], classes: int, dropout: bool = True, first: Sequence[Any] = ()) -> Any:
    """The small network of the CIFAR-10 example of Keras: 1.25 million weights, about 75 % accuracy in 25 epochs."""
    import keras
    from keras import layers

    def dropout_layers(rate: float) -> list[Any]:
        return [layers.Dropout(rate)] if dropout else []

    def convolutions(filters: int) -> list[Any]:
        first = layers.Conv2D(filters, 3, padding="same", activation="relu")
        return [first, layers.Conv2D(filters, 3, activation="relu"), layers.MaxPooling2D(), *dropout_layers(0.25)]

    dense = [layers.Dense(512, activation="relu"), *dropout_layers(0.5), _softmax_layer(classes)]
    return keras.Sequential(
        [keras.Input(shape), *first, *convolutions(32), *convolutions(64), layers.Flatten(), *dense], name="tutorial"
    )


def resnet18(shape: tuple[int, ...], classes: int, dropout: bool = True, first: Sequence[Any] = ()) -> Any:
    """ResNet-18 of He et al. 2015 (arXiv:1512.03385), without dropout; below 64 pixels with its stem for CIFAR."""
    import keras
    from keras import layers

    inputs = keras.Input(shape)
    x = _apply(first, inputs)
    if min(shape[:2]) < 64:
        x = _convolution(x, 64, 3, 1)
    else:
        x = _convolution(x, 64, 7, 2)
        x = layers.MaxPooling2D(3, 2, padding="same")(x)
    for filters in (64, 128, 256, 512):
        x = _residual_block(x, filters, stride=1 if filters == 64 else 2)
        x = _residual_block(x, filters, stride=1)
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, _softmax_layer(classes)(x), name="resnet18")


def resnet50(shape: tuple[int, ...], classes: int, dropout: bool = True, first: Sequence[Any] = ()) -> Any:
    """ResNet-50 of Keras with random weights, without dropout, for images of at least 32 pixels."""
    import keras

    if min(shape[:2]) < 32:
        raise ModelError(f"--model resnet50 needs images of at least 32 x 32 pixels, and these have {shape[:2]}")
    inputs = keras.Input(shape)
    base = keras.applications.ResNet50(
        include_top=False, weights=None, input_tensor=_apply(first, inputs), pooling="avg"
    )
    return keras.Model(inputs, _softmax_layer(classes)(base.output), name="resnet50")


def _apply(layers: Sequence[Any], x: Any) -> Any:
    for layer in layers:
        x = layer(x)
    return x


def _softmax_layer(classes: int) -> Any:
    from keras import layers

    # float32 even with mixed precision, because the loss takes logarithms of the outputs.
    return layers.Dense(classes, activation="softmax", dtype="float32")


def _residual_block(x: Any, filters: int, *, stride: int) -> Any:
    from keras import layers

    shortcut = x if stride == 1 and x.shape[-1] == filters else _convolution(x, filters, 1, stride, relu=False)
    y = _convolution(x, filters, 3, stride)
    y = _convolution(y, filters, 3, 1, relu=False)
    return layers.ReLU()(layers.Add()([shortcut, y]))


def _convolution(x: Any, filters: int, kernel: int, stride: int, *, relu: bool = True) -> Any:
    from keras import layers

    x = layers.Conv2D(
        filters, kernel, stride, padding="same", use_bias=False, kernel_initializer="he_normal"
    )(x)  # fmt: skip
    x = layers.BatchNormalization()(x)
    return layers.ReLU()(x) if relu else x


MODELS: dict[str, Callable[[tuple[int, ...], int, bool, Sequence[Any]], Any]] = {
    "tutorial": tutorial_cnn,
    "resnet18": resnet18,
    "resnet50": resnet50,
}
