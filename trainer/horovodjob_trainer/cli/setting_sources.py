"""Texts of settings from defaults, a file, the environment and flags, each with its source."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from horovodjob_trainer.cli import parsing
from horovodjob_trainer.cli.settings import PREFIX, SETTINGS, Setting
from horovodjob_trainer.errors import UsageError

LISTS = ("lr-steps", "freeze")


@dataclass(frozen=True, slots=True)
class SettingText:
    """The text of a setting and its source, which error messages name."""

    text: str
    source: str


def default_texts() -> dict[str, SettingText]:
    """Texts of the settings that have a fixed default."""
    return {
        name: SettingText(setting.default, "default")
        for name, setting in SETTINGS.items()
        if setting.default is not None
    }


def flag_texts(flags: Mapping[str, str | bool | None]) -> dict[str, SettingText]:
    """Texts of the flags on the command line."""
    names = {field.replace("_", "-"): value for field, value in flags.items() if value is not None}
    return {name: SettingText(parsing.command_line_text(value), f"--{name}") for name, value in names.items()}


def environment_texts(environment: Mapping[str, str]) -> dict[str, SettingText]:
    """Texts of the environment variables that begin with TRAINER_. Raises UsageError for an unknown one."""
    names = {setting.variable: name for name, setting in SETTINGS.items()}
    texts = {}
    for variable, text in environment.items():
        if variable.startswith(PREFIX) and variable != f"{PREFIX}CONFIG":
            if variable not in names:
                raise UsageError(f"the environment variable {variable} is not a setting{_suggestion(variable, names)}")
            texts[names[variable]] = SettingText(text, f"environment variable {variable}")
    return texts


def file_texts(file: str) -> dict[str, SettingText]:
    """Texts of the settings in a YAML file. Raises UsageError."""
    try:
        content = yaml.safe_load(Path(file).read_bytes())
    except OSError as error:
        raise UsageError(f"--config: cannot read {file}: {error.strerror or error}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"--config: {file} is not valid YAML: {' '.join(str(error).split())}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise UsageError(f"--config: {file} contains no settings: write one 'name: value' per line")
    texts = {}
    for key, value in content.items():
        name = str(key).replace("_", "-")
        if name not in SETTINGS:
            raise UsageError(f"{file}: '{key}' is not a setting{_suggestion(name, SETTINGS)}")
        if isinstance(value, dict) or (isinstance(value, list) and name not in LISTS):
            raise UsageError(f"{file}: {name} must be a single value")
        if value is not None:
            texts[name] = SettingText(parsing.command_line_text(value), f"{file}: {name}")
    return texts


def parse_setting(setting: Setting, value: SettingText) -> Any:
    """The value of a setting. Raises UsageError with the source of the text."""
    try:
        return setting.parse(value.text)
    except ValueError as error:
        raise UsageError(f"{value.source}: {error}") from error


def _suggestion(name: str, names: Mapping[str, Any]) -> str:
    similar = difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {similar[0]}?" if similar else "; --help lists all settings"
