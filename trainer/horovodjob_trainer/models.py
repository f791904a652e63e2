"""The networks: those of the trainer, of Keras and of the user."""

from collections.abc import Callable
from typing import Any

from horovodjob_trainer.errors import ModelError, UsageError
from horovodjob_trainer.import_string import call_function, import_function, is_import_string

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


def build_model(name: str, *, shape: tuple[int, ...], classes: int | None, dropout: bool = True) -> Any:
    """The Keras model with this name for examples of this shape. Networks of the trainer end in a softmax.

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
    return MODELS[name](shape, classes, dropout)


def _build_user_model(import_string: str, **available: Any) -> Any:
    import keras

    model = call_function(import_string, **available)
    if not isinstance(model, keras.Model):
        raise ModelError(
            f"{import_string} returned {type(model).__module__}.{type(model).__qualname__}, not a keras.Model"
        )
    return model


def tutorial_cnn(shape: tuple[int, ...], classes: int, dropout: bool = True) -> Any:
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
        [keras.Input(shape), *convolutions(32), *convolutions(64), layers.Flatten(), *dense], name="tutorial"
    )


def resnet18(shape: tuple[int, ...], classes: int, dropout: bool = True) -> Any:
    """ResNet-18 of He et al. 2015 (arXiv:1512.03385), without dropout; below 64 pixels with its stem for CIFAR."""
    import keras
    from keras import layers

    inputs = keras.Input(shape)
    if min(shape[:2]) < 64:
        x = _convolution(inputs, 64, 3, 1)
    else:
        x = _convolution(inputs, 64, 7, 2)
        x = layers.MaxPooling2D(3, 2, padding="same")(x)
    for filters in (64, 128, 256, 512):
        x = _residual_block(x, filters, stride=1 if filters == 64 else 2)
        x = _residual_block(x, filters, stride=1)
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, _softmax_layer(classes)(x), name="resnet18")


def resnet50(shape: tuple[int, ...], classes: int, dropout: bool = True) -> Any:
    """ResNet-50 of Keras with random weights, without dropout, for images of at least 32 pixels."""
    import keras

    if min(shape[:2]) < 32:
        raise ModelError(f"--model resnet50 needs images of at least 32 x 32 pixels, and these have {shape[:2]}")
    base = keras.applications.ResNet50(include_top=False, weights=None, input_shape=shape, pooling="avg")
    return keras.Model(base.input, _softmax_layer(classes)(base.output), name="resnet50")


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


MODELS: dict[str, Callable[[tuple[int, ...], int, bool], Any]] = {
    "tutorial": tutorial_cnn,
    "resnet18": resnet18,
    "resnet50": resnet50,
}
