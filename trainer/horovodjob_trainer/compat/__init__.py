"""Scripts of 2018, written for Keras 2.1, TensorFlow 1 and `horovod.keras`, run unchanged on what is installed.

`python -m horovodjob_trainer.compat SCRIPT [ARGUMENT ...]`; in the image also `horovodjob-compat`. Everything here
acts from outside the script: Keras 2 (tf_keras) stands in the place of Keras 3, the few names of TensorFlow 1 that
such scripts need are there, and two mistakes of Microsoft's tutorial are repaired.
"""
