"""The command line of a training run."""

import argparse
from typing import Any

from horovodjob_trainer.cli import parsing
from horovodjob_trainer.cli.settings import GROUPS, ArgumentParser, Setting


def build_parser() -> argparse.ArgumentParser:
    """The parser of the flags; their values stay texts."""
    parser = ArgumentParser(
        prog="horovodjob_trainer",
        usage="python -m horovodjob_trainer [--SETTING VALUE ...] | predict ... | evaluate ...",
        description="Train a Keras model with one process per rank. Start it with mpirun, horovodrun or as a "
        "HorovodJob. Without a launcher it trains with one rank.",
        epilog="The value of a setting is that of its flag, else that of its environment variable "
        "(TRAINER_BATCH_SIZE for --batch-size), else that in the file of --config, else its default. "
        "An epoch is one pass of all ranks together over the training data: samples / (batch size * ranks) steps. "
        "Rank 0 writes checkpoint-EPOCH.h5 after each epoch. At the end it writes the trained "
        "model below saved_models as .h5 and .keras. "
        "Exit codes: 0 trained, 1 failed, 2 invalid setting, 3 the loss is not a number, 4 the weights of the ranks "
        "differ, 143 ended by SIGTERM.",
        allow_abbrev=False,
    )
    parser.add_argument("--config", metavar="FILE", help="YAML file of settings, one 'name: value' per line")
    parser.add_argument("--print-config", action="store_true", help="print every setting with its source, then exit")
    for title, settings in GROUPS.items():
        group = parser.add_argument_group(title)
        for setting in settings:
            _add_setting(group, setting)
    return parser


def _add_setting(group: Any, setting: Setting) -> None:
    flags = [f"--{setting.name}"] if setting.name != "dir" else ["-d", "--dir"]
    if setting.parse is parsing.boolean:
        group.add_argument(*flags, action=argparse.BooleanOptionalAction, default=None, help=setting.help_with_default)
    else:
        group.add_argument(*flags, metavar=setting.metavar, help=setting.help_with_default)
