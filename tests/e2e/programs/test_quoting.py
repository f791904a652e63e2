"""Whatever text a user writes as an argument or a value reaches every rank byte for byte."""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import sha256

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from e2e.namespace import Namespace
from support.api_client import Object

# Characters that shells, ssh, mpirun, hostfiles and logs interpret, among plain text.
HOSTILE = [*" \t\n\r\"'`\\$(){}[]<>|&;*?~#!%^=,:@-+/.", "$(HOME)", "$$", "${IFS}", "\\n", "--", "-x", "ü", "你", "🎓"]
ANYTHING = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
TEXTS = st.lists(st.one_of(st.sampled_from(HOSTILE), ANYTHING), max_size=12).map("".join)
LARGE = st.builds(lambda piece, times: ((piece or "x") * times)[:20000], TEXTS, st.integers(1, 4000))
SHOW = (
    "import hashlib, json, os, sys; "
    "digest = lambda text: hashlib.sha256(os.fsencode(text)).hexdigest()[:16]; "
    "names = [name for name in os.environ if name.startswith('Q_')]; "
    "print(json.dumps([[digest(word) for word in sys.argv[1:]], {name: digest(os.environ[name]) for name in names}]))"
)
EXAMPLES = 4


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:16]


def _written(text: str) -> str:
    """The text with $ escaped, because Kubernetes expands $(NAME)."""
    return text.replace("$", "$$")


@dataclass(frozen=True, slots=True)
class Case:
    """The arguments and variables of a job."""

    words: list[str]
    values: list[str]

    def job(self, namespace: Namespace, name: str) -> Object:
        """A job of two ranks, which print digests of their arguments and variables."""
        command = ["python3", "-c", SHOW, *map(_written, self.words)]
        env = [{"name": f"Q_{number}", "value": _written(value)} for number, value in enumerate(self.values)]
        return namespace.job(name, command, env=env, worker={"replicas": 2}, runPolicy={"backoffLimit": 0})

    @property
    def expected(self) -> list[object]:
        """The expected output of each rank."""
        values = {f"Q_{number}": _digest(value) for number, value in enumerate(self.values)}
        return [[_digest(word) for word in self.words], values]


def _case(words: list[str], values: list[str], large: tuple[str, str, str, str]) -> Case:
    return Case([*words, *large[:2]], [*values, *large[2:]])


CASES = st.builds(
    _case,
    words=st.lists(TEXTS, min_size=10, max_size=60),
    values=st.lists(TEXTS, min_size=10, max_size=60),
    large=st.tuples(LARGE, LARGE, LARGE, LARGE),
)


def _examples() -> list[Case]:
    """Random cases; a failure shows its case."""
    found: list[Case] = []

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(CASES)
    def collect(case: Case) -> None:
        found.append(case)

    collect()
    return found[-EXAMPLES:]


@pytest.fixture(scope="module")
def cases(module_namespace: Namespace) -> dict[str, Case]:
    """The cases by the names of their jobs, all of which run side by side."""
    large = Case(["a'b \n" * 5000, "", ":", "z"], ['"c$d' * 10000, "y" * 40000])
    named = {"large": large, **{f"example-{number}": case for number, case in enumerate(_examples())}}
    for name, case in named.items():  # one by one: kubectl stores a copy of each in an annotation
        module_namespace.apply(case.job(module_namespace, name))
    return named


@pytest.mark.parametrize("name", [*(f"example-{number}" for number in range(EXAMPLES)), "large"])
def test_any_text_reaches_every_rank_byte_for_byte(
    module_namespace: Namespace, cases: dict[str, Case], name: str
) -> None:
    """Also a value of a hundred kilobytes."""
    module_namespace.wait_phase(name, "Succeeded")
    found = [json.loads(line) for line in module_namespace.output(name)]
    assert found == [cases[name].expected] * 2, cases[name]
