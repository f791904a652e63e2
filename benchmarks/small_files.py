"""How long `hvj` sends 2,000 small files to a share, beside parallel puts of the same SDK, and a second run.

    PYTHONPATH=tests:. python benchmarks/small_files.py [--rounds 3] [--files 2000]

Both send to a server of this machine that speaks the protocol of Azure Files, in a process of its own, and take turns.
The puts create each file and write its content with as many threads as `hvj` has, under the final name: a put that is
interrupted leaves an incomplete file. `hvj` does the same in a directory that it renames when all of a batch are
complete. The second run has one changed file, and with --bytes a large one that has not changed; its time has no start
of Python in it. Exit status: 0 if the median of the ratios is at most 1.5, 1 if not.
"""

import argparse
import contextlib
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from azure.storage.fileshare import ShareClient

from horovodjob.azurefiles.concurrency import FILES
from horovodjob.azurefiles.credentials import Options, choose_account
from horovodjob.azurefiles.share import RETRIES, Retries, Share
from horovodjob.client.messages import Transfer
from horovodjob.client.runs.directory import code_files
from horovodjob.client.runs.file_tree import file_tree
from horovodjob.client.runs.share_code import send_tree

SERVER = """
import sys, time
from pathlib import Path
from support.azure_fakes.files.accounts import Account
from support.azure_fakes.files.server import FilesService
with FilesService([Account(sys.argv[1], Path(sys.argv[2]))]) as service:
    print(service.connection_string(sys.argv[1]), flush=True)
    sys.stdin.read()
"""
ACCOUNT, SHARE = "benchmark", "myshare"
TARGET = 1.5


def write_files(directory: Path, count: int) -> None:
    """Files of 1 to 8 KiB in directories of 50."""
    numbers = random.Random(1)
    for number in range(count):
        path = directory / f"part{number // 50}" / f"file{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(numbers.randbytes(numbers.randint(1 << 10, 8 << 10)))


@contextlib.contextmanager
def share_server(directory: Path) -> Iterator[str]:
    """A server of Azure Files in a process of its own, with an empty share; its connection string."""
    (directory / SHARE).mkdir(parents=True)
    command = [sys.executable, "-c", SERVER, ACCOUNT, str(directory)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        assert server.stdin
        yield server.stdout.readline().strip()
        server.stdin.close()


def timed_puts(share: Share, sources: Mapping[str, Path]) -> float:
    """Seconds to send each file by the SDK's own method."""
    start = time.monotonic()
    client = ShareClient(
        share.account.endpoint, share.name, **share.account.credential(), retry_policy=Retries(**RETRIES)
    )
    client.create_directory("puts")

    def put(item: tuple[str, Path]) -> None:
        name, source = item
        client.get_file_client(f"puts/{name}").upload_file(source.read_bytes())

    with ThreadPoolExecutor(FILES) as pool:
        list(pool.map(put, sources.items()))
    return time.monotonic() - start


def timed_send(share: Share, project: Path) -> float:
    """Seconds to read the directory and to send what the share does not have, with the list."""
    start = time.monotonic()
    send_tree(share, file_tree(code_files(project)), Transfer())
    return time.monotonic() - start


def _alternated(first: Callable[[], float], second: Callable[[], float], *, is_reverse: bool) -> tuple[float, float]:
    """The results of both, in the other order of calls if `is_reverse`."""
    if not is_reverse:
        return first(), second()
    result = second()
    return first(), result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--bytes", type=int, default=0, help="size of one more file, such as a data set")
    given = parser.parse_args()
    ratios = []
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        write_files(root / "project", given.files)
        with share_server(root / "account") as connection_string:
            account = choose_account(None, Options(connection_string=connection_string), os.environ)
            sources = file_tree(code_files(root / "project")).sources
            for number in range(given.rounds):
                share = Share(account, f"{SHARE}{number}")
                share.create()
                send = partial(timed_send, share, root / "project")
                puts, sent = _alternated(partial(timed_puts, share, sources), send, is_reverse=number % 2 == 1)
                ratios.append(sent / puts)
                print(f"round {number + 1}: puts {puts:.1f} s, hvj {sent:.1f} s, ratio {ratios[-1]:.2f}", flush=True)
            if given.bytes:
                (root / "project" / "data.bin").write_bytes(random.Random(2).randbytes(given.bytes))
                send()
            (root / "project" / "part0" / "file0.txt").write_text("changed")
            print(f"second run, one changed file: {send():.2f} s")
    print(f"median ratio {sorted(ratios)[len(ratios) // 2]:.2f}, target at most {TARGET}")
    sys.exit(sorted(ratios)[len(ratios) // 2] > TARGET)


if __name__ == "__main__":
    main()
