"""The scripts that launcher and workers start with; each job's Secret carries them into its pods."""

from importlib.resources import files

SCRIPTS = {
    script.name: script.read_text()
    for script in sorted(files(__name__).iterdir(), key=lambda file: file.name)
    if script.name.endswith(".sh") or script.name == "elastic.py"
}
