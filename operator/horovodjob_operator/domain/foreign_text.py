"""Text that other programs write into objects, cleaned where it enters: the rest of the operator can store it. Pure."""

import re

# Longer than any message that Kubernetes writes itself, and short enough for a thousand pods.
MAX_CHARACTERS = 32768
MAX_REASON_CHARACTERS = 128
# The pattern of the reason of a metav1.Condition.
REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")


def clean_text(value: object) -> str:
    """The text without what JSON and protobuf cannot contain: halves of characters, and NUL."""
    if not value:
        return ""
    text = (value if isinstance(value, str) else str(value))[:MAX_CHARACTERS]
    if "\0" in text:
        text = text.replace("\0", "\N{REPLACEMENT CHARACTER}")
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def clean_reason(value: object, default: str = "Unknown") -> str:
    """The reason of a condition; a text that is none becomes its letters and digits."""
    text = clean_text(value)[:MAX_REASON_CHARACTERS]
    if not text or REASON.fullmatch(text):
        return text
    words = re.sub(r"[^A-Za-z0-9_]", "", text).lstrip("0123456789_")
    return words or default
