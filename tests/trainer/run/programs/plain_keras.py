"""Loads saved models where neither Horovod nor this project can be imported: `plain_keras.py DIGITS MODEL...`."""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
for hidden in ("horovod", "horovodjob_trainer", "horovodjob"):
    sys.modules[hidden] = None  # type: ignore[assignment]

import keras  # noqa: E402
import numpy as np  # noqa: E402

digits = np.load(sys.argv[1])
images, labels = digits["images"][::4], digits["labels"][::4]
images = np.repeat(np.rint(images * (255 / 16)).repeat(4, 1).repeat(4, 2)[..., None] / 255, 3, axis=3)
for path in sys.argv[2:]:
    model = keras.saving.load_model(path)
    accuracy = float(np.mean(np.argmax(model(images), axis=1) == labels))
    optimizer = model.optimizer
    print(type(optimizer).__module__, type(optimizer).__name__, int(optimizer.iterations), f"{accuracy:.4f}")
    if path.endswith(".keras"):  # Keras 3.15 cannot continue training from an .h5 file
        model.fit(images[:8], labels[:8], epochs=1, verbose=0)
