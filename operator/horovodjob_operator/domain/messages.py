"""Parts of messages that several modules use. Pure."""

MAX_MESSAGE_CHARACTERS = 2048


def count_text(number: int, noun: str) -> str:
    """A number with its noun: 1 worker, 2 workers."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def ordinal(number: int) -> str:
    """An ordinal from the first to the tenth."""
    words = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
    return words[number - 1]


def exit_code_text(code: int) -> str:
    """An exit code and the signal that it stands for: shells and container runtimes add 128 to the signal's number."""
    return f"exit code {code}" + (f", killed by signal {code - 128}" if 128 < code <= 192 else "")
