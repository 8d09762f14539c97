#!/usr/bin/env python3
"""Installs a client as the pages say, and runs the first program of its README with it.

    installs.py clone LANGUAGE …       as the README says; LANGUAGE is rust, python, typescript, go or java
    installs.py package LANGUAGE …     as docs/how-to/clients.md says for the files in PACKAGES, by default target/package

DWELL_BIN names the broker. A reader has a home without files, and an empty directory. They type the first shell block of the README,
and then its first program. Only the registry of the language is reached.

With a clone, a copy of this repository that is named `dwell` is beside the directory. An install may leave nothing in the copy, except
where a build has its directory. With a package there is no clone: the directory has the file of the language, and the command of the
page stands where the README names the clone.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree
from pathlib import Path

from program import Program
from story import Story

CLIENTS = Path(os.environ["CLIENTS"])
ROOT = CLIENTS.parent
GUIDE = ROOT / "docs/how-to/clients.md"
PACKAGES = Path(os.environ.get("PACKAGES", ROOT / "target/package"))
ADDRESS = "http://127.0.0.1:7373"
# Seconds until an install is done and its program has printed its line: a client for Rust is built with all that it uses.
PATIENCE = 900
# The name of the program blocks, the file of the program, and how it is run. JAR is where Maven installs the dependency of the README.
PROGRAMS = {
    "rust": ("rust", "src/main.rs", "cargo run --quiet"),
    "python": ("python", "main.py", "python main.py"),
    "typescript": ("js", "main.mjs", "node main.mjs"),
    "go": ("go", "main.go", "go run ."),
    "java": ("java", "Main.java", 'java -cp "$JAR" Main.java'),
}
TOOLS = {"rust": ["cargo", "rustc", "cc"], "python": ["python3"], "typescript": ["node", "npm"], "go": ["go"], "java": ["javac", "mvn"]}
# What the guide calls a language, where that is another word.
TITLES = {"typescript": "TypeScript and JavaScript"}
# Where a build writes into the copy, because its commands say so.
BUILT = {"typescript": ("clients/typescript/node_modules", "clients/typescript/dist"), "java": ("clients/java/target",)}


def where(tool):
    """The directory of a tool itself, not of a script that finds it by files of a home."""
    if tool == "python3":
        return str(Path(sys._base_executable).resolve().parent)
    if tool in ("cargo", "rustc"):
        return subprocess.check_output(["rustc", "--print", "sysroot"], text=True, cwd=ROOT).strip() + "/bin"
    found = shutil.which(tool)
    if not found:
        raise SystemExit(f"installs: {tool} is needed in PATH")
    return str(Path(found).parent)


def block(page, name):
    found = re.search(rf"^```{name}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    if not found:
        raise SystemExit(f"installs: {page} has no block of {name}")
    return found[1]


def package_command(language):
    """The command of the guide that installs from the file of a package, and the name of that file."""
    title = TITLES.get(language, language.capitalize())
    found = re.search(rf"^\| {title} \| `([^`]+)` \| `([^`]+)` \|$", GUIDE.read_text(), re.MULTILINE)
    if not found:
        raise SystemExit(f"installs: {GUIDE} has no line with the file and the command for {title}")
    return found[1], found[2]


def from_package(language, lines):
    """The lines of the README, with the command of the guide in the place of the first one that names the clone."""
    file, command = package_command(language)
    kept = []
    for line in lines:
        if "../dwell" not in line:
            kept.append(line)
        elif command not in kept:
            kept.append(command)
    if command not in kept:
        raise SystemExit(f"installs: no command for {language} names the clone: {lines}")
    return file, kept


def jar(readme):
    """Where Maven has the dependency that the README prints, below the home."""
    group, artifact, version = (part.text for part in xml.etree.ElementTree.fromstring(block(readme, "xml")))
    return f"{group.replace('.', '/')}/{artifact}/{version}/{artifact}-{version}.jar"


def copied(to):
    """Copies the files that a clone of this repository has, and those that are not committed yet."""
    names = subprocess.check_output(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT).decode().split("\0")
    for name in filter(None, names):
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)


def files(directory, built):
    """Every file of the copy with the time at which it was written."""
    found = {}
    for path in directory.rglob("*"):
        name = str(path.relative_to(directory))
        if path.is_file() and not name.startswith(built):
            found[name] = path.stat().st_mtime_ns
    return found


def play(language, scratch, server, lines, about):
    """Types the lines in the directory `shop`, and then the first program of the README."""
    name, file, run = PROGRAMS[language]
    readme = CLIENTS / language / "README.md"
    home = scratch / "home"
    home.mkdir()
    (scratch / "program").write_text(block(readme, name).replace(ADDRESS, server))
    script = "\n".join([*lines, f"mkdir -p $(dirname {file})", f"cp ../program {file}", f"exec {run}"])
    path = [*dict.fromkeys(map(where, TOOLS[language])), "/usr/local/bin", "/usr/bin", "/bin"]
    environment = {"HOME": str(home), "PATH": ":".join(path), "LANG": "C.UTF-8", "TERM": "dumb"}
    if language == "java":
        environment["JAR"] = str(home / ".m2/repository" / jar(readme))
    program = Program(["sh", "-e", "-c", script], server, about, scratch / "shop", environment)
    try:
        program.wait_for("close order 4711", PATIENCE)
    finally:
        program.kill()


def clone(language, scratch, server):
    there = scratch / "dwell"
    copied(there)
    before = files(there, BUILT.get(language, ()))
    readme = CLIENTS / language / "README.md"
    play(language, scratch, server, block(readme, "sh").splitlines(), f"the install and the program of {readme.relative_to(ROOT)}")
    after = files(there, BUILT.get(language, ()))
    changed = sorted({name for name, _ in before.items() ^ after.items()})
    if changed:
        raise SystemExit(f"installs: the install of {language} changed the clone: {changed[:10]}")
    return f"{language}: is installed as its README says"


def package(language, scratch, server):
    file, lines = from_package(language, block(CLIENTS / language / "README.md", "sh").splitlines())
    if not (PACKAGES / file).is_file():
        raise SystemExit(f"installs: there is no {file} in {PACKAGES}: make package-clients")
    shutil.copy2(PACKAGES / file, scratch / "shop")
    play(language, scratch, server, lines, f"the install of {file}, as {GUIDE.relative_to(ROOT)} says, and the program of the README")
    return f"{language}: is installed from {file}, as {GUIDE.name} says"


def main():
    install = {"clone": clone, "package": package}[sys.argv[1]]
    for language in sys.argv[2:]:
        story = Story(os.environ["DWELL_BIN"], "calm", 0)
        try:
            with tempfile.TemporaryDirectory(prefix="dwell-install-", ignore_cleanup_errors=True) as scratch:
                (Path(scratch) / "shop").mkdir()
                print(install(language, Path(scratch), story.server), flush=True)
        finally:
            story.close()


if __name__ == "__main__":
    main()
