"""Azure Files in the local cluster: storage accounts.

Each account is an SMB server of its own, which only the node can reach: Debian's smbd, on port 445 of an address of the
node's loopback interface. A share is the directory `<state>/azure-files/<account>/<share>/`, and exists as long as that
does: whatever else serves the same files serves these directories. What is known of an account, its key included, is in
`<state>/azure-files/<account>/.account`, which only root can read. `down` removes all of it.
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
from localcluster.errors import ClusterError, MachineUnfit
from localcluster.network.namespace import run_inside
from localcluster.processes import Component, Processes
from localcluster.progress import wait_until
from localcluster.settings import Cluster

SMBD = "/usr/sbin/smbd"
SMB_PORT = 445
KEY_BYTES = 64  # as Azure's keys have
SHARES = "shares"  # of the server; the shares of the account are directories in it
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
    """A storage account: the content of `.account` in its directory."""

    name: str
    key: str
    address: str
    clientIDs: tuple[str, ...] = ()
    runs: bool = True
    blocked: bool = False


class Storage:
    """The storage accounts of one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.processes = Processes(cluster)
        self.binaries = Binaries(cluster.cache)

    def accounts(self) -> list[Account]:
        return [self.account(file.parent.name) for file in sorted(self.cluster.azure_files.glob("*/.account"))]

    def account(self, name: str) -> Account:
        """What is known of an account. Raises ClusterError where there is none."""
        try:
            known = json.loads(self._record(name).read_text())
        except FileNotFoundError:
            raise ClusterError(f"there is no storage account {name!r}; make one with `storage create {name}`") from None
        return Account(**known | {"clientIDs": tuple(known["clientIDs"])})

    def share(self, account: str, share: str) -> Path:
        """The directory of a share, which need not exist."""
        return self.cluster.azure_files / account / share

    def shares(self, account: str) -> list[str]:
        """The names of the account's shares."""
        return sorted(path.name for path in self.share(account, "").glob("[!.]*"))

    def create_account(self, name: str) -> Account:
        """An account whose server runs; one that exists keeps its key."""
        if not re.fullmatch(r"[a-z0-9]{3,24}", name):
            raise ClusterError(f"the name of a storage account is 3 to 24 lower-case letters and digits, not {name!r}")
        if not Path("/dev/fuse").exists():
            raise MachineUnfit("this machine has no /dev/fuse, which pods need to mount shares of Azure Files")
        if not self._record(name).exists():
            self._save(Account(name, new_key(), self._free_address()))
        account = self.account(name)
        self.start(name)
        return account

    def create_share(self, account: str, share: str) -> Path:
        """The directory of a share that exists from now on."""
        self.account(account)
        if not re.fullmatch(r"(?!.*--)[a-z0-9][a-z0-9-]{1,61}[a-z0-9]", share):
            raise ClusterError(
                f"the name of a share is 3 to 63 lower-case letters, digits and single hyphens inside, not {share!r}"
            )
        directory = self.share(account, share)
        directory.mkdir(exist_ok=True)
        return directory

    def remove_share(self, account: str, share: str) -> None:
        """Remove a share with its files, whoever has it mounted."""
        shutil.rmtree(self.share(self.account(account).name, share))

    def remove_account(self, name: str) -> None:
        """Remove an account with its shares."""
        self.unblock(name)
        self.stop(name)
        shutil.rmtree(self.cluster.azure_files / name)

    def rotate_key(self, name: str) -> str:
        """A new key; the old one opens no new connection."""
        self._change(name, key=new_key())
        self._set_password(self.account(name))
        return self.account(name).key

    def allow(self, name: str, client_id: str) -> None:
        """Let pods mount the account's shares as the identity `client_id`, or as the node's own: `kubelet`."""
        self._change(name, clientIDs=(*self.account(name).clientIDs, client_id))

    def stop(self, name: str) -> None:
        """End the account's server at once, in the middle of whatever it does."""
        self._change(name, runs=False)
        self.processes.stop(server_name(name), grace_seconds=0)

    def start(self, name: str) -> None:
        """Start the account's server, if it does not run."""
        self._change(name, runs=True)
        self._serve(self.account(name))

    def block(self, name: str) -> None:
        """Drop all packets to the account's server, as firewalls that close port 445 do."""
        self._change(name, blocked=True)
        self._write_firewall()

    def unblock(self, name: str) -> None:
        """Let packets through to the account's server."""
        self._change(name, blocked=False)
        self._write_firewall()

    def ensure(self) -> None:
        """Start what an earlier `up` has started and somebody has killed."""
        for account in self.accounts():
            if account.runs:
                self._serve(account)
            if account.blocked:
                self._write_firewall()

    def _serve(self, account: Account) -> None:
        directory = self.cluster.run / "azure-files" / account.name
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "users").write_text(f"root = {account.name}\n")  # no user of this machine for each account
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
            self.processes.insist_on(name)
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
    return base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()


def server_name(account: str) -> str:
    """Name of the account's server among the cluster's processes and logs."""
    return f"smbd-{account}"


def address_in_hexadecimal(address: str) -> str:
    """An IPv4 address as /proc/net/tcp has it."""
    return bytes(reversed([int(part) for part in address.split(".")])).hex().upper()
