#!/usr/bin/env python3
"""Writes the client for threads, `_client.py` and `_administration.py`, from that for asyncio.

    unasync.py [--check]        with --check it only says whether they are as they would be written
"""

import re
import sys
from pathlib import Path

SOURCES = Path(__file__).parent.parent / "src" / "dwell"
FILES = ("administration", "client")
REPLACED = [
    (r"from asyncio import sleep", "from time import sleep"),
    (r"async (def|for|with) ", r"\1 "),
    (r"await ", ""),
    (r"\bAsync(Client|Administration|Transport|Iterator)\b", r"\1"),
    (r"\b_async_", "_"),
    (r"__a(enter|exit)__", r"__\1__"),
    (r"\baclose\b", "close"),
    (r", for asyncio\. It may be used by many tasks", ". It may be used by many threads"),
]


def written(name):
    text = (SOURCES / f"_async_{name}.py").read_text()
    for pattern, replacement in REPLACED:
        text = re.sub(pattern, replacement, text)
    head, _, rest = text.partition("\n")
    return f"{head}\n\n# Generated from _async_{name}.py: python3 tools/unasync.py\n{rest}"


def main():
    wrong = [name for name in FILES if (SOURCES / f"_{name}.py").read_text() != written(name)] if "--check" in sys.argv else []
    if wrong:
        raise SystemExit(f"unasync: {wrong} are not as tools/unasync.py writes them")
    if "--check" not in sys.argv:
        for name in FILES:
            (SOURCES / f"_{name}.py").write_text(written(name))


if __name__ == "__main__":
    main()
