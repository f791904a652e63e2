"""The worker's command of an MPIJob: what it does before its ssh server starts is the preparation of a HorovodJob."""

import re
import shlex
from collections.abc import Sequence

from horovodjob.command_line import BASH_SYNTAX, parse_line
from horovodjob.document import Node
from horovodjob.mpijob.launcher import report_entrypoint

SHELLS = ("sh", "bash", "dash", "ash")
SSHD = re.compile(
    r"(?:^|(?<=[;&|\n(]))[ \t]*(?:exec\s+)?(?:sudo\s+(?:-\w+\s+)*)?(?:[\w./-]*/)?sshd(?![\w./-])[^;&|\n]*"
)
# What only an ssh server needs.
SSH_FILES = re.compile(
    r"mkdir(\s+-\w+)*\s+(/var)?/run/sshd|ssh-keygen\s+-A|set\s+-\w+|(chmod|chown|mkdir|cp|ln)\b.*\.?ssh(/\S*)?"
)
IDLE = re.compile(r"(sleep\s+(infinity|inf|\d+\w?)|tail\s+-f\s+/dev/null|wait|exit(\s+0)?|true)")
PLAIN_OPTIONS = re.compile(r"-[De]+")
OWN_SERVER = "workers run the operator's ssh server"
KEYWORDS = (("if", "fi"), ("do", "done"), ("case", "esac"))


def preparation(container: Node) -> str | None:
    """The shell command that a worker runs before sshd; None if there is none. Reports what is omitted."""
    command = [word for word in container.items("command") if isinstance(word, str)]
    words = _without_sudo([*command, *(word for word in container.items("args") if isinstance(word, str))])
    where = container.at("command" if command else "args")
    if not words:
        return None
    report_entrypoint(container)
    if words[0].rpartition("/")[2] == "sshd":
        if not all(PLAIN_OPTIONS.fullmatch(word) for word in words[1:]):
            container.notes.warn(where, f"the options of sshd are omitted: {OWN_SERVER}")
        return None
    if len(words) == 3 and words[0].rpartition("/")[2] in SHELLS and re.fullmatch(r"-[a-z]*c", words[1]):
        return _before_sshd(container, where, words)
    container.notes.warn(where, f"is omitted: {OWN_SERVER}; what must run before can be spec.preparation")
    return None


def _before_sshd(container: Node, where: str, words: Sequence[str]) -> str | None:
    text = words[2].replace("\\\n", " ")
    starts = list(SSHD.finditer(text))
    before = _without_end(text[: starts[-1].start()]) if starts else ""
    if not starts or not _is_complete(before):
        container.notes.warn(where, f"is omitted: {OWN_SERVER}; what must run before can be spec.preparation")
        return None
    after = [part.strip() for part in re.split(r"[;&|\n]+", text[starts[-1].end() :])]
    if any(part and not IDLE.fullmatch(part) for part in after):
        container.notes.warn(where, "what runs after sshd is omitted: a worker runs only the operator's ssh server")
    parts = [part.strip() for part in re.split(r"&&|[;\n]", before)]
    if all(not part or SSH_FILES.fullmatch(part) for part in parts):
        return None
    container.notes.warn(where, f"what runs before sshd is spec.preparation now, and {OWN_SERVER}")
    if not text[: starts[-1].start()].rstrip().endswith("&&"):
        before += "\n:"  # sshd starts whatever the exit code of the last command is
    if words[0].rpartition("/")[2] == "bash" and BASH_SYNTAX.search(before):
        return f"exec {words[0]} -c {shlex.quote(before)}"
    return before


def _without_sudo(words: list[str]) -> list[str]:
    while words and (words[0].rpartition("/")[2] == "sudo" or (words[0].startswith("-") and len(words) > 1)):
        words = words[1:]
    return words


def _without_end(text: str) -> str:
    """The text without its last operator; before a pipe, without the command that writes into it."""
    text = text.rstrip()
    if text.endswith("|") and not text.endswith("||"):
        text = "".join(re.split(r"((?:&&|[;\n]))", text)[:-1])
    return re.sub(r"(&&|[;&|(]|\s)+$", "", text).strip()


def _is_complete(text: str) -> bool:
    """Whether a shell would accept the text alone."""
    try:
        parse_line(text, {})
    except ValueError:
        return False
    words = re.findall(r"[\w']+", text)
    pairs = [(words.count(first), words.count(last)) for first, last in KEYWORDS]
    pairs += [(text.count("("), text.count(")")), (text.count("{"), text.count("}"))]
    return all(first == last for first, last in pairs)
