"""The processor time of tests is that of their file, also with workers and in child processes."""

import re
from pathlib import Path

import pytest

from stages.commands import pytest as run_pytest
from stages.settings import ROOT

BUSY = """
def test_busy(server):
    server.stdin.write("work\\n")
    server.stdin.flush()
    assert server.stdout.readline() == "done\\n"
"""
IDLE = "def test_idle(server): pass\n"
SERVER = """
import subprocess, sys
for _ in sys.stdin:
    subprocess.run([sys.executable, "-c", "import time\\nwhile time.process_time() < 0.6: pass"], check=True)
    print("done", flush=True)
"""
PLUGIN = f"""
import subprocess, sys
import pytest
from runner.processor_times import ProcessorTimes

@pytest.fixture(scope="session")
def server():
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", {SERVER!r}], stdin=pipe, stdout=pipe, text=True) as process:
        yield process
        process.stdin.close()

def pytest_configure(config): config.pluginmanager.register(ProcessorTimes(least_seconds=0.5))
"""


def test_a_file_for_which_a_server_of_all_files_needs_much_is_listed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "conftest.py").write_text(PLUGIN)
    (tmp_path / "pytest.ini").write_text(f"[pytest]\npythonpath = {ROOT / 'tests'}\n")
    (tmp_path / "test_busy.py").write_text(BUSY)
    (tmp_path / "test_idle.py").write_text(IDLE)
    run_pytest(str(tmp_path), f"--rootdir={tmp_path}", "-n", "1")
    output = capfd.readouterr().out
    found = re.findall(r"^ *([\d.]+) (test_\w+\.py)$", output.partition("processor seconds by file")[2], re.MULTILINE)
    assert [file for _, file in found] == ["test_busy.py"], output
    assert float(found[0][0]) >= 0.6
