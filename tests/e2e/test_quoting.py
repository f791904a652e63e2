"""Whatever text a user writes as an argument or a value reaches every rank byte for byte."""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import sha256
from itertools import count

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from e2e.space import Space

# What shells, ssh, mpirun, hostfiles and logs take for something else, among text that nothing takes for anything.
HOSTILE = [*" \t\n\r\"'`\\$(){}[]<>|&;*?~#!%^=,:@-+/.", "$(HOME)", "$$", "${IFS}", "\\n", "--", "-x", "ü", "你", "🎓"]
ANYTHING = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
TEXTS = st.lists(st.one_of(st.sampled_from(HOSTILE), ANYTHING), max_size=12).map("".join)
LARGE = st.builds(lambda piece, times: ((piece or "x") * times)[:20000], TEXTS, st.integers(1, 4000))
SHOW = (
    "import hashlib, json, os, sys; "
    "told = lambda text: hashlib.sha256(os.fsencode(text)).hexdigest()[:16]; "
    "names = [name for name in os.environ if name.startswith('Q_')]; "
    "print(json.dumps([[told(word) for word in sys.argv[1:]], {name: told(os.environ[name]) for name in names}]))"
)
NUMBERS = count()


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:16]


def _written(text: str) -> str:
    """As it is written into a job for it to arrive: Kubernetes takes $ for the beginning of a reference."""
    return text.replace("$", "$$")


@pytest.fixture(scope="module")
def run(module_space: Space) -> Callable[[list[str], list[str]], list[object]]:
    """Runs a job with these arguments and values of variables; what its two ranks have found."""

    def ranks(words: list[str], values: list[str]) -> list[object]:
        name = f"quoting-{next(NUMBERS)}"
        command = ["python3", "-c", SHOW, *map(_written, words)]
        env = [{"name": f"Q_{number}", "value": _written(value)} for number, value in enumerate(values)]
        policy = {"backoffLimit": 0}
        module_space.apply(
            module_space.job(name, command, env=env, worker={"replicas": 2}, runPolicy=policy),
        )
        module_space.wait_phase(name, "Succeeded")
        return [json.loads(line) for line in module_space.output(name)]

    return ranks


# Each example is a job, and a smaller one than the first that fails would not be worth the minutes.
@settings(
    max_examples=4, deadline=None, database=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate]
)
@given(
    words=st.lists(TEXTS, min_size=10, max_size=60),
    values=st.lists(TEXTS, min_size=10, max_size=60),
    large=st.tuples(LARGE, LARGE, LARGE, LARGE),
)
def test_any_text_reaches_every_rank_byte_for_byte(
    run: Callable[[list[str], list[str]], list[object]],
    words: list[str],
    values: list[str],
    large: tuple[str, str, str, str],
) -> None:
    words, values = [*words, *large[:2]], [*values, *large[2:]]
    wanted = [[_digest(word) for word in words], {f"Q_{n}": _digest(value) for n, value in enumerate(values)}]
    assert run(words, values) == [wanted, wanted]


def test_a_hundred_kilobytes_are_no_trouble(run: Callable[[list[str], list[str]], list[object]]) -> None:
    words, values = ["a'b \n" * 5000, "", ":", "z"], ['"c$d' * 10000, "y" * 40000]
    wanted = [[_digest(word) for word in words], {f"Q_{n}": _digest(value) for n, value in enumerate(values)}]
    assert run(words, values) == [wanted, wanted]
