"""Storage accounts of Azure Files in the local cluster.

Each account has an SMB server of its own: Debian's smbd, on port 445 of an address of the loopback interface in the
network namespace, so only the nodes reach it. A share is the directory `<state>/azure-files/<account>/<share>/`, which
other servers, such as that of the REST API in tests, can use as well. The record of an account, with its key, is
`<state>/azure-files/<account>/.account`, which only root can read. `down` removes all accounts.
"""

import base64
import json
import os
import re
import secrets
import shutil
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from localcluster.binaries.cache import Binaries
from localcluster.errors import ClusterError, MachineError
from localcluster.network.namespace import run_inside
from localcluster.processes import Component, Processes
from localcluster.progress import wait_until
from localcluster.settings import Cluster

SMBD = "/usr/sbin/smbd"
SMB_PORT = 445
KEY_BYTES = 64  # as the keys of Azure
SHARES = "shares"  # the only share of the server; the shares of the account are directories in it
START_SECONDS = 60
FIREWALL = "azure-files"

SERVER = """\
[global]
  server role = standalone server
  server min protocol = SMB3
  smb ports = {port}
  interfaces = {address}/8
  bind interfaces only = yes
  disable netbios = yes
  load printers = no
  disable spoolss = yes
  printcap name = /dev/null
  username map = {directory}/users
  passdb backend = tdbsam:{directory}/passdb.tdb
  private dir = {directory}
  lock directory = {directory}
  state directory = {directory}
  cache directory = {directory}
  pid directory = {directory}
  ncalrpc dir = {directory}/ncalrpc
  idmap config * : range = 1000000-1999999
[{shares}]
  path = {path}
  read only = no
  oplocks = no
  force user = root
  hide dot files = no
  veto files = /.account/
"""


@dataclass(frozen=True, slots=True)
class Account:
    """A storage account: the content of its file `.account`."""

    name: str
    key: str
    address: str
    clientIDs: tuple[str, ...] = ()
    runs: bool = True
    blocked: bool = False


class Storage:
    """The storage accounts of one cluster. Methods raise ClusterError if an account does not exist."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.processes = Processes(cluster)
        self.binaries = Binaries(cluster.cache)

    def accounts(self) -> list[Account]:
        """All accounts, by name."""
        return [self.account(file.parent.name) for file in sorted(self.cluster.azure_files.glob("*/.account"))]

    def account(self, name: str) -> Account:
        """The record of an account."""
        try:
            record = json.loads(self._record(name).read_text())
        except FileNotFoundError:
            raise ClusterError(f"there is no storage account {name!r}; make one with `storage create {name}`") from None
        return Account(**record | {"clientIDs": tuple(record["clientIDs"])})

    def share(self, account: str, share: str) -> Path:
        """The directory of a share, which may not exist."""
        return self.cluster.azure_files / account / share

    def shares(self, account: str) -> list[str]:
        """The names of the shares of an account."""
        return sorted(path.name for path in self.share(account, "").glob("[!.]*"))

    def create_account(self, name: str) -> Account:
        """Create an account and start its server; an existing account keeps its key. Raises MachineError."""
        if not re.fullmatch(r"[a-z0-9]{3,24}", name):
            raise ClusterError(f"the name of a storage account is 3 to 24 lower-case letters and digits, not {name!r}")
        if not Path("/dev/fuse").exists():
            raise MachineError("this machine has no /dev/fuse, which pods need to mount shares of Azure Files")
        if not self._record(name).exists():
            self._save(Account(name, new_key(), self._free_address()))
        account = self.account(name)
        self.start(name)
        return account

    def create_share(self, account: str, share: str) -> Path:
        """Create a share unless it exists. Returns its directory."""
        self.account(account)
        if not re.fullmatch(r"(?!.*--)[a-z0-9][a-z0-9-]{1,61}[a-z0-9]", share):
            raise ClusterError(
                f"the name of a share is 3 to 63 lower-case letters, digits and single hyphens inside, not {share!r}"
            )
        directory = self.share(account, share)
        directory.mkdir(exist_ok=True)
        return directory

    def remove_share(self, account: str, share: str) -> None:
        """Remove a share with its files, even if pods have mounted it."""
        shutil.rmtree(self.share(self.account(account).name, share))

    def remove_account(self, name: str) -> None:
        """Remove an account with its shares."""
        self.unblock(name)
        self.stop(name)
        shutil.rmtree(self.cluster.azure_files / name)

    def rotate_key(self, name: str) -> str:
        """Replace the key. The old key opens no new connection; existing connections remain."""
        self._change(name, key=new_key())
        self._set_password(self.account(name))
        return self.account(name).key

    def allow(self, name: str, client_id: str) -> None:
        """Let pods mount the shares with the identity `client_id`; `kubelet` is the identity of the node."""
        self._change(name, clientIDs=(*self.account(name).clientIDs, client_id))

    def stop(self, name: str) -> None:
        """Kill the server of an account."""
        self._change(name, runs=False)
        self.processes.stop(server_name(name), grace_seconds=0)

    def start(self, name: str) -> None:
        """Start the server of an account, if it does not run."""
        self._change(name, runs=True)
        self._start_server(self.account(name))

    def block(self, name: str) -> None:
        """Drop packets to the server of an account, as a firewall that blocks port 445."""
        self._change(name, blocked=True)
        self._write_firewall()

    def unblock(self, name: str) -> None:
        """Accept packets to the server of an account again."""
        self._change(name, blocked=False)
        self._write_firewall()

    def ensure(self) -> None:
        """Start the servers that should run and do not."""
        for account in self.accounts():
            if account.runs:
                self._start_server(account)
            if account.blocked:
                self._write_firewall()

    def _start_server(self, account: Account) -> None:
        directory = self.cluster.run / "azure-files" / account.name
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "users").write_text(f"root = {account.name}\n")  # so that accounts need no users of this machine
        configuration = directory / "smb.conf"
        text = SERVER.format(
            port=SMB_PORT,
            address=account.address,
            directory=directory,
            shares=SHARES,
            path=self.cluster.azure_files / account.name,
        )
        if not configuration.exists() or configuration.read_text() != text:
            configuration.write_text(text)
        self._set_password(account)
        command = (SMBD, "--foreground", "--no-process-group", "--debug-stdout", f"--configfile={configuration}")
        name = server_name(account.name)
        self.processes.ensure(Component(name, command, (configuration,)), self.binaries)

        def explain() -> str:
            self.processes.check_running(name)
            return ""

        listens = f"{address_in_hexadecimal(account.address)}:{SMB_PORT:04X} 00000000:0000 0A"
        pid = self.processes.pid(name)
        sockets = Path(f"/proc/{pid}/net/tcp")
        wait_until(name, lambda: listens in sockets.read_text(), seconds=START_SECONDS, explain=explain)

    def _set_password(self, account: Account) -> None:
        configuration = self.cluster.run / "azure-files" / account.name / "smb.conf"
        if not configuration.exists():  # the server has never run
            return
        done = subprocess.run(
            ["smbpasswd", "-c", str(configuration), "-s", "-a", "root"],
            input=f"{account.key}\n{account.key}\n",
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise ClusterError(f"smbpasswd for the storage account {account.name} ended with: {done.stderr.strip()}")

    def _write_firewall(self) -> None:
        blocked = [account.address for account in self.accounts() if account.blocked]
        rules = (f"ip daddr {address} tcp dport {SMB_PORT} drop" for address in blocked)
        lines = ("chain input {", "type filter hook input priority 0", *rules, "}")
        table = f"table inet {FIREWALL}"
        replaced = (f"{table} {{}}", f"delete {table}", f"{table} {{", *lines, "}")
        run_inside(self.cluster, "nft", "\n".join(replaced))

    def _free_address(self) -> str:
        used = {account.address for account in self.accounts()}
        return next(one for number in range(1, 255) if (one := f"127.0.1.{number}") not in used)

    def _change(self, name: str, **changes: Any) -> None:
        self._save(Account(**asdict(self.account(name)) | changes))

    def _save(self, account: Account) -> None:
        record = self._record(account.name)
        record.parent.mkdir(parents=True, exist_ok=True)
        fresh = record.with_name(f".account-{os.getpid()}")
        fresh.touch(mode=0o600)
        fresh.write_text(json.dumps(asdict(account)))
        fresh.rename(record)

    def _record(self, name: str) -> Path:
        return self.cluster.azure_files / name / ".account"


def new_key() -> str:
    """A random key, in base64."""
    return base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()


def server_name(account: str) -> str:
    """The name of an account's server as a component."""
    return f"smbd-{account}"


def address_in_hexadecimal(address: str) -> str:
    """An IPv4 address in the notation of /proc/net/tcp."""
    return bytes(reversed([int(part) for part in address.split(".")])).hex().upper()
