"""The start scripts of launcher and workers; a Secret of each namespace contains them."""

import hashlib
from importlib.resources import files

_START = "start.sh"
_FILES = {
    script.name: script.read_text()
    for script in sorted(files(__name__).iterdir(), key=lambda file: file.name)
    if script.name.endswith(".sh") or script.name == "elastic.py"
}
SCRIPTS = {name: text for name, text in _FILES.items() if name != _START}
# It is in the command of a pod, and not in the Secret that it verifies.
START = _FILES[_START]


def digest(scripts: dict[str, str]) -> str:
    """SHA-256 of the sorted output of sha256sum for these files, as start.sh computes it."""
    lines = sorted(f"{hashlib.sha256(text.encode()).hexdigest()}  {name}\n" for name, text in scripts.items())
    return hashlib.sha256("".join(lines).encode()).hexdigest()


# All pods of an attempt use scripts of one version, which their commands and arguments match.
VERSION = digest(SCRIPTS)
