"""The scripts that launcher and workers start with; each job's Secret carries them into its pods."""

import hashlib
import json
from importlib.resources import files

SCRIPTS = {
    script.name: script.read_text()
    for script in sorted(files(__name__).iterdir(), key=lambda file: file.name)
    if script.name.endswith(".sh") or script.name == "elastic.py"
}

# Pods of one attempt have scripts of one version, which their commands and arguments are made for.
VERSION = hashlib.sha256(json.dumps(SCRIPTS, sort_keys=True).encode()).hexdigest()[:8]
