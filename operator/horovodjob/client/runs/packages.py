"""The packages of --requirements: where the containers keep them, and the key that their archives are read with."""

import hashlib
import hmac
import os
import secrets
from contextlib import suppress
from pathlib import Path

STORE = "code/packages"  # on the volume of the job
SCRIPT = ".hvj/install_packages.py"  # in the directory of the code
KEY_BYTES = 32


def token(requirements: Path) -> str:
    """The key for archives with these packages, which the jobs of one user and machine share, and no others know.

    Any job that mounts a volume can write there. Without a home directory, the key is that of one run.
    """
    try:
        key = _key_of_user()
    except (OSError, RuntimeError):
        key = secrets.token_bytes(KEY_BYTES)
    return hmac.new(key, requirements.read_bytes(), hashlib.sha256).hexdigest()


def _key_of_user() -> bytes:
    path = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "horovodjob" / "packages-key"
    if not path.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
        with os.fdopen(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
        with suppress(FileExistsError):  # another program was faster
            os.link(new, path)
        new.unlink()
    return path.read_bytes()
