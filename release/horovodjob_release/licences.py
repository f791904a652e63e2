"""Licences: what packages state, as SPDX expressions where that is possible, and what may be distributed."""

from __future__ import annotations

import re
from email.message import Message

from license_expression import ExpressionError, get_spdx_licensing

# What permits redistribution of unchanged packages in an image, with the licence texts that come with them.
ALLOWED = frozenset(
    {
        *("0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC0-1.0", "GPL-2.0-only", "HPND", "ISC"),
        *(
            "LGPL-2.1-or-later",
            "LGPL-3.0-only",
            "LGPL-3.0-or-later",
            "MIT",
            "MIT-0",
            "MIT-CMU",
            "MPL-2.0",
            "PSF-2.0",
            "Python-2.0",
            "Unlicense",
        ),
        *("Zlib", "ZPL-2.1"),
    }
)
CLASSIFIERS = {
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "GNU Lesser General Public License v3 (LGPLv3)": "LGPL-3.0-only",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
# Texts of the field License from before PEP 639.
TEXTS = {
    "3-clause bsd license": "BSD-3-Clause",
    "apache 2.0": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "bsd": "BSD-3-Clause",
    "bsd 2-clause license": "BSD-2-Clause",
    "bsd 3-clause": "BSD-3-Clause",
    "isc license": "ISC",
    "mit license": "MIT",
    "mit style": "MIT",
    "psfl": "PSF-2.0",
}
# Packages with metadata that name no licence, and what the LICENSE file in their distribution is.
UNSTATED = {"axe-playwright-python": "MIT AND MPL-2.0", "cel-python": "Apache-2.0", "namex": "Apache-2.0"}
UNKNOWN = "NOASSERTION"
SPDX = get_spdx_licensing()


def python_licence(metadata: Message[str, str]) -> str:
    """SPDX expression of a Python package, from its core metadata."""
    if stated := metadata.get("License-Expression"):
        return stated
    text = (metadata.get("License") or "").strip()
    if _is_expression(text):
        return text
    if known := TEXTS.get(text.lower()):
        return known
    names = [line.rpartition(" :: ")[2] for line in metadata.get_all("Classifier", []) if line.startswith("License ::")]
    if found := sorted({CLASSIFIERS[name] for name in names if name in CLASSIFIERS}):
        return " AND ".join(found)
    return UNSTATED.get(metadata["Name"], UNKNOWN)


def debian_licences(copyright_file: str) -> tuple[str, ...]:
    """Short names of the licences that a copyright file lists, or of the common ones that it refers to.

    Machine-readable copyright files 1.0; older files name /usr/share/common-licenses.
    """
    machine_readable = copyright_file.startswith("Format")
    pattern = r"^License:[ \t]*(\S.*?)[ \t]*$" if machine_readable else r"common-licenses/([\w.+-]*\w)"
    return tuple(sorted(set(re.findall(pattern, copyright_file, re.MULTILINE))))


def is_distributable(expression: str) -> bool:
    """Whether an SPDX expression lets anybody distribute the package: of alternatives, one suffices."""
    try:
        parsed = SPDX.parse(expression)
    except ExpressionError:
        return False
    known = {symbol: SPDX.TRUE if symbol.render() in ALLOWED else SPDX.FALSE for symbol in parsed.symbols}
    return bool(parsed.subs(known, simplify=True) == SPDX.TRUE)


def is_in_main(section: str) -> bool:
    """Whether a Debian package is of `main`, which the Debian Free Software Guidelines let anybody distribute.

    Sections of other areas begin with the area, as in `non-free/libs` (Debian Policy 2.4).
    """
    return "/" not in section


def _is_expression(text: str) -> bool:
    if not text or len(text) > 60:
        return False
    try:
        return not SPDX.unknown_license_keys(text)
    except ExpressionError:
        return False
