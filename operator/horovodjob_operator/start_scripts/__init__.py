"""The start scripts of launcher and workers; the Secret of each job contains them."""

import hashlib
import json
from importlib.resources import files

SCRIPTS = {
    script.name: script.read_text()
    for script in sorted(files(__name__).iterdir(), key=lambda file: file.name)
    if script.name.endswith(".sh") or script.name == "elastic.py"
}

# All pods of an attempt use scripts of one version, which their commands and arguments match.
VERSION = hashlib.sha256(json.dumps(SCRIPTS, sort_keys=True).encode()).hexdigest()[:8]
