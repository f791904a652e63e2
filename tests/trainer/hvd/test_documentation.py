"""The snippets of the documentation, run one after the other on two ranks."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

DOCUMENT = Path(__file__).parents[3] / "docs" / "horovod-keras3.md"
END = """
weights = np.concatenate([np.ravel(weight) for weight in model.get_weights()])
assert all(np.array_equal(weights, others) for others in hvd.allgather_object(weights))
assert state.position == 20
"""


def test_the_documented_snippets_run_and_synchronize_the_ranks(
    run: Callable[..., Any], preloaded_python: list[str], tmp_path: Path
) -> None:
    snippets = re.findall(r"^```python\n(.*?)^```", DOCUMENT.read_text(), re.DOTALL | re.MULTILINE)
    assert len(snippets) > 5
    script = tmp_path / "script.py"
    script.write_text("\n".join([f"import os; os.chdir({str(tmp_path)!r})", *snippets, END]))
    ended = run(2, [*preloaded_python, str(script)])
    assert ended.code == 0, ended.stderr
