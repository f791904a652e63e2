"""mountCommand of unmanaged file systems."""

import re
import shlex


def parse_mount_command(text: str) -> tuple[str, str, list[str]] | None:
    """Type, source and options of an NFS or SMB mount; None for other commands."""
    try:
        words = shlex.split(text)
    except ValueError:
        return None
    words = words[1:] if words[:1] == ["sudo"] else words
    if not words or words.pop(0).rpartition("/")[2] != "mount":
        return None
    kind, options, rest = "", [], []
    while words:
        word = words.pop(0)
        if word in ("-t", "--types", "-o", "--options") and words:
            value = words.pop(0)
            if word in ("-t", "--types"):
                kind = value
            else:
                options += [option for option in value.split(",") if option]
        else:
            rest.append(word)
    patterns = {"nfs": r"[^\s:/]+:/\S*", "nfs4": r"[^\s:/]+:/\S*", "cifs": r"//[^\s/]+/\S+"}
    if len(rest) != 1 or kind not in patterns or not re.fullmatch(patterns[kind], rest[0]):
        return None
    return kind.removesuffix("4"), rest[0], options
