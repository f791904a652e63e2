"""Scripts of 2018, written for Keras 2.1, TensorFlow 1 and `horovod.keras`, run unchanged with the installed versions.

`python -m horovodjob_trainer.compat SCRIPT [ARGUMENT ...]`; in the image also `horovodjob-compat`. The script
itself does not change: Keras 2 (tf_keras) replaces Keras 3, the names of TensorFlow 1 that configure devices exist, and
for two mistakes in the tutorial of Microsoft there are patches.
"""
