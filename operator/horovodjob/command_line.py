"""Command lines that a shell reads, as arguments in which Kubernetes replaces $(NAME)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

SHELL = "/bin/sh"
BASH = "/bin/bash"
BASH_SYNTAX = re.compile(r"\[\[|&>|<\(|>\(|<<<|\bsource\s|\bpipefail\b|\bshopt\s|\$'|\{[^{}\s]*(?:,|\.\.)[^{}\s]*\}")
# First words that are no programs, or after which `exec` changes the meaning.
SHELL_WORDS = frozenset(
    {".", ":", "!", "{", "[[", "alias", "break", "case", "cd", "command", "continue", "eval", "exec", "exit", "export"}
    | {"for", "function", "if", "local", "read", "readonly", "return", "set", "shift", "source", "time", "trap"}
    | {"ulimit", "umask", "unset", "until", "wait", "while"}
)
VARIABLE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\}|\(([A-Za-z_]\w*)\))")
SUBSTITUTION = re.compile(r"\$\([^()]*\)|`[^`]*`")
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
SIMPLE_VALUE = re.compile(r"[\w@%+=:,./-]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Line:
    """A command line that was read: its words, or None where only a shell knows them."""

    text: str
    words: tuple[str, ...] | None
    is_simple: bool  # one command without ; & | or a line end, so that a shell can become it


def parse_line(text: str, variables: Mapping[str, bool]) -> Line:
    """Splits a line as a shell does; $NAME becomes $(NAME).

    `variables` are those of the container that Kubernetes can replace, each with whether it can stand outside quotes:
    whether its value is one word. Raises ValueError for a quote that has no end.
    """
    return _Parser(text.strip(), variables).line()


def argument(text: str, variables: Mapping[str, bool]) -> str | None:
    """A text that is one word already, with its variables as $(NAME); None where it has others."""
    result, position = [], 0
    for match in VARIABLE.finditer(text):
        name = match[1] or match[2] or match[3]
        if name not in variables:
            return None
        result += [literal(text[position : match.start()]), f"$({name})"]
        position = match.end()
    return "".join([*result, literal(text[position:])])


def literal(text: str) -> str:
    """Text in which Kubernetes replaces nothing."""
    return text.replace("$", "$$")


def shell_text(text: str) -> str:
    """Shell text that arrives unchanged, although Kubernetes replaces $(NAME) and $$."""
    return re.sub(r"\$(?=[$(])", lambda _: "$$", text)


def shell_command(text: str, *, is_simple: bool) -> list[str]:
    """A command that runs the text in a shell, which a simple command replaces so that signals reach it."""
    bash = BASH_SYNTAX.search(text)
    first = text.split(maxsplit=1)[0] if text.strip() else ""
    can_exec = is_simple and first not in SHELL_WORDS and not ASSIGNMENT.match(first)
    return [BASH if bash else SHELL, "-c", shell_text(f"exec {text}" if can_exec else text)]


def shell_word(text: str) -> str:
    """One word of a shell's command line in which only variables are replaced."""
    if re.fullmatch(r"[\w@%+=:,./${}-]+", text, re.ASCII):
        return text
    return '"' + re.sub(r'(["\\`])', r"\\\1", text) + '"'


def program(text: str, variables: Mapping[str, bool]) -> list[str]:
    """The command that a whole line is: its words, or a shell with the line. Raises ValueError as parse_line does."""
    line = parse_line(text, variables)
    if line.words and line.words[0] not in SHELL_WORDS and not ASSIGNMENT.match(line.words[0]):
        return list(line.words)
    return shell_command(line.text, is_simple=line.is_simple)


class _Parser:
    """One pass over a line, with the rules of the POSIX shell for quotes."""

    def __init__(self, text: str, variables: Mapping[str, bool]) -> None:
        self.text, self.variables = text, variables
        self.position = 0
        self.words: list[str] = []
        self.word: str | None = None
        self.needs_shell = BASH_SYNTAX.search(text) is not None
        self.is_simple = True

    def line(self) -> Line:
        while self.position < len(self.text):
            self._step(self.text[self.position])
        self._end_word()
        return Line(self.text, None if self.needs_shell else tuple(self.words), self.is_simple)

    def _step(self, char: str) -> None:
        match char:
            case " " | "\t":
                self._end_word()
            case "'":
                end = self._end_of_quote("'")
                self._add(literal(self.text[self.position + 1 : end]))
                self.position = end
            case '"':
                self._double_quotes()
            case "\\":
                self._escape()
            case "$":
                self._variable(quoted=False)
            case "#" | "~" if self.word is None:
                self.needs_shell = True
            case "`":
                self._substitution()
            case "<" | ">" | "*" | "?" | "[":
                self.needs_shell = True
            case ";" | "|" | "&" | "(" | ")" | "\n":
                self.needs_shell = True
                # `2>&1` is one redirection and starts nothing else.
                if char != "&" or self.text[self.position - 1 : self.position] not in (">", "<"):
                    self.is_simple = False
            case _:
                self._add(char)
        self.position += 1

    def _add(self, text: str) -> None:
        self.word = (self.word or "") + text

    def _end_word(self) -> None:
        if self.word is not None:
            self.words.append(self.word)
        self.word = None

    def _end_of_quote(self, quote: str) -> int:
        end = self.text.find(quote, self.position + 1)
        if end < 0:
            raise ValueError(f"has a {quote} without its end: close the quote")
        return end

    def _escape(self) -> None:
        self.position += 1
        if self.position >= len(self.text):
            raise ValueError("ends with a backslash: remove it")
        if self.text[self.position] != "\n":
            self._add(literal(self.text[self.position]))

    def _double_quotes(self) -> None:
        self._add("")
        self._end_of_quote('"')
        self.position += 1
        while (char := self.text[self.position : self.position + 1]) != '"':
            if not char:
                raise ValueError('has a " without its end: close the quote')
            following = self.text[self.position + 1 : self.position + 2]
            if char == "\\" and following and following in '$`"\\\n':
                self._escape()
            elif char == "$":
                self._variable(quoted=True)
            else:
                if char == "`":
                    self._substitution()
                else:
                    self._add(char)
            self.position += 1

    def _substitution(self) -> None:
        """Skips the command that a shell would run and replace by its output; it can have quotes of its own."""
        self.needs_shell = True
        self._add("")
        if match := SUBSTITUTION.match(self.text, self.position):
            self.position = match.end() - 1

    def _variable(self, *, quoted: bool) -> None:
        if match := VARIABLE.match(self.text, self.position):
            name = match[1] or match[2] or match[3]
            if name not in self.variables or not (quoted or self.variables[name]):
                self.needs_shell = True
            self._add(f"$({name})")
            self.position = match.end() - 1
        elif self.text.startswith("$(", self.position):
            self._substitution()
        elif re.match(r"\$[{\w@*#?$!'\"-]", self.text[self.position :]) and not (
            quoted and self.text[self.position + 1] in "'\""
        ):
            self.needs_shell = True
            self._add("$$")
        else:
            self._add("$$")
