"""Runs commands of `hvj` in a Python without what Windows does not have: `python posix_free.py '[["--help"]]'`."""

import asyncio
import json
import os
import pathlib
import signal
import sys

MODULES = ("fcntl", "grp", "pty", "pwd", "readline", "resource", "syslog", "termios", "tty")
FUNCTIONS = (
    *("chown", "fchmod", "fork", "forkpty", "geteuid", "getgid", "getpgid", "getuid", "killpg", "mkfifo", "nice"),
    *("pread", "pwrite", "register_at_fork", "setsid", "sysconf", "uname"),
)
SIGNALS = ("SIGALRM", "SIGCHLD", "SIGHUP", "SIGKILL", "SIGPIPE", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGWINCH")


def no_signal_handler(*_: object) -> None:
    """As the event loops of Windows answer."""
    raise NotImplementedError


def remove() -> None:
    """Take away the modules, functions and signals."""
    import multiprocessing  # noqa: F401  the standard library's own use of them stays
    import platform
    import socket  # noqa: F401
    import subprocess  # noqa: F401
    import tempfile  # noqa: F401
    import threading  # noqa: F401

    platform.uname()
    for name in MODULES:
        sys.modules[name] = None  # type: ignore[assignment]
    for name in FUNCTIONS:
        if hasattr(os, name):
            delattr(os, name)
    for name in SIGNALS:
        delattr(signal, name)
    for name in ("pause", "pthread_kill", "pthread_sigmask", "sigwait", "setitimer", "alarm"):
        delattr(signal, name)
    for owner, name in (
        (asyncio.AbstractEventLoop, "add_signal_handler"),
        (asyncio.SelectorEventLoop, "add_signal_handler"),
        (pathlib.Path, "owner"),
        (pathlib.Path, "group"),
    ):
        setattr(owner, name, no_signal_handler)


if __name__ == "__main__":
    remove()
    from horovodjob.azurefiles import file_lock

    # Its half for Windows locks a byte beyond what files of Linux can have.
    file_lock.lock = lambda file: None
    from horovodjob_cli.__main__ import main

    for command in json.loads(sys.argv[1]):
        sys.argv = ["hvj", *command]
        try:
            main()
        except SystemExit as end:
            if end.code:
                sys.exit(f"{command}: {end.code}")
