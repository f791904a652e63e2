"""The settings that define what a run trains."""

from horovodjob_trainer.checkpoint.run_selection import RunSettings
from horovodjob_trainer.cli.configuration import Configuration

# With other values, the variables or the order of the examples in a checkpoint would not be those of the run.
FIXED = ("dataset", "model", "init_from", "freeze", "precision", "accumulate", "optimizer", "seed")
# The position in the data is a number of examples, and a changed rate or loss applies from the next step.
CHANGEABLE = (
    "batch_size", "momentum", "weight_decay", "learning_rate", "learning_rate_scaling", "schedule", "warmup_epochs",
    "warmup_from", "decay", "lr_steps", "lr_factor", "clip_norm", "label_smoothing", "augment", "flip", "crop",
)  # fmt: skip


def run_settings(configuration: Configuration, fingerprint: str) -> RunSettings:
    """The settings of a run with the data of this fingerprint."""
    values = {name: getattr(configuration, name) for name in (*FIXED, *CHANGEABLE)}
    values["init_from"] = configuration.init_from and str(configuration.init_from)
    values["data"] = fingerprint
    return RunSettings(values, frozenset({*CHANGEABLE, "data"}))
