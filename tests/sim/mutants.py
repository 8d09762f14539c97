#!/usr/bin/env python3
"""Puts each error of mutants.txt into a copy of the sources, and lets the simulator look for it.

    make mutants                       all that were found before, SECONDS=60 for each, in target/mutants
    make mutants ONLY='late ack'       those whose name has these words, also of those that were not found

The last line is `K of M found`, and the exit code 0 if all were.
"""
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COPY = ROOT / "target" / "mutants"


def mutants(text):
    for block in re.split(r"(?m)^= ", text)[1:]:
        lines = [line for line in block.splitlines() if line.strip() and not line.startswith("#")]
        files = []
        for line in lines[1:]:
            if line.startswith("< "):
                files[-1][1].append((line[2:], []))
            elif line.startswith(">"):
                files[-1][1][-1][1].append(line[1:].strip())
            else:
                files.append((line, []))
        yield lines[0], files


def changed(source, changes):
    lines = source.splitlines()
    for wanted, instead in changes:
        places = [at for at, line in enumerate(lines) if line.strip() == wanted.strip()]
        if not places:
            raise SystemExit(f"no line {wanted!r}")
        for at in reversed(places):
            lines[at : at + 1] = [line for line in instead if line]
    return "\n".join(lines) + "\n"


def copy():
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    for name in filter(None, files.decode().split("\0")):
        source, target = ROOT / name, COPY / name
        if source.is_file() and not (target.is_file() and target.read_bytes() == source.read_bytes()):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)


def look(seconds):
    build = ["cargo", "test", "--quiet", "--locked", "--test", "sim"]
    built = subprocess.run([*build, "--no-run"], cwd=COPY, capture_output=True, text=True)
    if built.returncode:
        raise SystemExit(f"it does not compile:\n{built.stderr}")
    environment = {**os.environ, "SIM": "search", "SECONDS": str(seconds), "FIRST": "1"}
    environment.pop("ONLY", None)
    ran = subprocess.run(build, cwd=COPY, capture_output=True, text=True, env=environment)
    broken = sorted(set(re.findall(r"(?m)^broken: (.*?) \(", ran.stdout)))
    operations = re.findall(r"(?m)^(\d+) operations", ran.stdout)
    return broken, operations[-1] if operations else "?"


def main():
    seconds, only = int(os.environ.get("SECONDS", "60")), os.environ.get("ONLY", "")
    text = (ROOT / "tests/sim/mutants.txt").read_text()
    every = [one for one in mutants(text if only else text.partition("\n# Not found")[0]) if only in one[0]]
    copy()
    print("| error | operations | sentences |\n|---|---|---|", flush=True)
    found = 0
    for name, files in every:
        sources = {path: (COPY / path).read_text() for path, _ in files}
        try:
            for path, changes in files:
                (COPY / path).write_text(changed(sources[path], changes))
            broken, operations = look(seconds)
        finally:
            for path, source in sources.items():
                (COPY / path).write_text(source)
        found += bool(broken)
        print(f"| {name} | {operations} | {'; '.join(broken) or '**not found**'} |", flush=True)
    print(f"{found} of {len(every)} found")
    return 0 if found == len(every) else 1


if __name__ == "__main__":
    sys.exit(main())
