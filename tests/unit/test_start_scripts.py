"""The start scripts, in a shell of this machine."""

import subprocess
from importlib.resources import files
from pathlib import Path

ENVIRONMENT = files("horovodjob_operator.start_scripts") / "environment.sh"


def test_directories_for_logs_and_outputs_are_closed_to_other_groups(tmp_path: Path) -> None:
    logs, output = tmp_path / "experiments" / "logs", tmp_path / "models" / "best"
    variables = {"HOROVODJOB_LOGS": str(logs), "HOROVODJOB_POD": "pod", "HOROVODJOB_OUTPUTS": "MODEL"}
    variables |= {"AZ_BATCHAI_OUTPUT_MODEL": str(output), "PATH": "/usr/bin:/bin"}
    prepare = f". {ENVIRONMENT}; prepare_logs; prepare_outputs"
    subprocess.run(["sh", "-euc", prepare], env=variables, check=True)
    made = [logs.parent, logs, output.parent, output]
    assert [oct(path.stat().st_mode & 0o777) for path in made] == ["0o770"] * 4
    assert (logs / "execution-pod.log").stat().st_mode & 0o777 == 0o644
