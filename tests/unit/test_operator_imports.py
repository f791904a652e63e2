"""What the process of the operator imports."""

import subprocess
import sys


def test_the_operator_imports_no_client_that_it_does_not_use() -> None:
    unused = ("kubernetes", "requests", "oauthlib", "websocket")
    program = f"import sys, horovodjob_operator.__main__; print([m for m in {unused} if sys.modules.get(m)])"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert found == "[]\n"
