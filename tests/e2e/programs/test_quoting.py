"""Whatever text a user writes as an argument or a value reaches every rank byte for byte."""

from __future__ import annotations

import json
import random
from hashlib import sha256

from e2e.namespace import Namespace

# Characters that shells, ssh, mpirun, hostfiles and logs interpret, among plain text.
HOSTILE = [*" \t\n\r\"'`\\$(){}[]<>|&;*?~#!%^=,:@-+/.", "$(HOME)", "$$", "${IFS}", "\\n", "--", "-x", "ü", "你", "🎓"]
PLAIN = [*"abcXYZ019_", "\x01", "\x7f", "\u2028", "\U0010ffff"]
SHOW = (
    "import hashlib, json, os, sys; "
    "digest = lambda text: hashlib.sha256(os.fsencode(text)).hexdigest()[:16]; "
    "names = [name for name in os.environ if name.startswith('Q_')]; "
    "found = [[digest(word) for word in sys.argv[1:]], {name: digest(os.environ[name]) for name in names}]; "
    "print(digest(json.dumps(found, sort_keys=True)))"  # mpirun can mix longer lines of two ranks
)


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:16]


def _written(text: str) -> str:
    """The text with $ escaped, because Kubernetes expands $(NAME)."""
    return text.replace("$", "$$")


def test_any_text_reaches_every_rank_byte_for_byte(namespace: Namespace) -> None:
    """Also a value of a hundred kilobytes; the random texts are others in each run."""
    texts = ["".join(random.choices(HOSTILE + PLAIN, k=random.randrange(12))) for _ in range(200)]
    words = ["a'b \n" * 5000, "", ":", "z", *texts[:100]]
    values = ['"c$d' * 10000, "y" * 40000, *texts[100:]]
    env = [{"name": f"Q_{number}", "value": _written(value)} for number, value in enumerate(values)]
    command = ["python3", "-c", SHOW, *map(_written, words)]
    namespace.apply(namespace.job("texts", command, env=env, worker={"replicas": 2}, runPolicy={"backoffLimit": 0}))
    namespace.wait_phase("texts", "Succeeded")
    expected = [
        [_digest(word) for word in words],
        {f"Q_{number}": _digest(value) for number, value in enumerate(values)},
    ]
    assert list(namespace.output("texts")) == [_digest(json.dumps(expected, sort_keys=True))] * 2, texts
