"""Azure Files as a process: `python -m azure_fakes.files accounts.json`.

The file lists the accounts: [{"name": ..., "keys": [..., ...], "directory": ...}]. Their endpoints are printed.
"""

import argparse
import asyncio
import json
from pathlib import Path

from support.azure_fakes.files.accounts import Account
from support.azure_fakes.files.server import FilesService


def main() -> None:
    """Serve until the process is interrupted."""
    parser = argparse.ArgumentParser(prog="python -m azure_fakes.files")
    parser.add_argument("accounts", type=Path, help="JSON file with name, keys and directory of each account")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--tls", type=Path, help="directory of the certificate; with it the service speaks HTTPS")
    arguments = parser.parse_args()
    entries = json.loads(arguments.accounts.read_text())
    accounts = [Account(**entry | {"directory": Path(entry["directory"])}) for entry in entries]
    with FilesService(accounts, tls=arguments.tls, port=arguments.port) as service:
        for account in accounts:
            print(service.url(account.name), flush=True)
        asyncio.run(asyncio.Event().wait())


if __name__ == "__main__":
    main()
