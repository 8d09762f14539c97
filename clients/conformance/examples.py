#!/usr/bin/env python3
"""Runs what the pages show of a client, against a real broker: the example of its README and of the how-to guide, the programs of
the tutorials, and its own programs.

    examples.py LANGUAGE        rust, python, typescript, go, java or shell; DWELL_BIN names the broker

Runs in the directory where the client is installed; CLIENTS is the directory of the sources.
"""

import os
import re
import signal
import sys
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

from program import PATIENCE, Program
from story import Story, free_port, until

CLIENTS = Path(os.environ["CLIENTS"])
BUILD_PATIENCE = 600
# The address on every page.
ADDRESS = "http://127.0.0.1:7373"
# Language, the name of its code blocks, and how a file with such a block is run.
BLOCKS = {
    "rust": ("rust", "rs", ["cargo", "run", "--quiet", "--manifest-path"]),
    "python": ("python", "py", ["python3"]),
    "typescript": ("js", "mjs", ["node"]),
    "go": ("go", "go", ["go", "run"]),
    "java": ("java", "java", ["java", "-cp", "target/classes"]),
}
TUTORIALS = ("python", "typescript", "go")
# Exit codes after SIGTERM where a worker heeds signals without being told to. A JVM that stops as it should has the code of the signal.
HEEDED = {"rust": 0, "python": 0, "java": 128 + signal.SIGTERM}
PROGRAMS = {
    "rust": [[str(CLIENTS.parent / "target/debug/examples/shop")]],
    "python": [["python3", "examples/close_unpaid_orders.py"]],
    "typescript": [["node", "examples/close-unpaid-orders.mjs"]],
    "go": [["./close_unpaid_orders"]],
    "java": [["java", "-cp", "target/classes", "examples/CloseUnpaidOrders.java"]],
    "shell": [["./close-unpaid-orders.sh"]],
}
SERVERS = {
    "rust": [str(CLIENTS.parent / "target/debug/examples/shop_axum")],
    "python": ["uvicorn", "--app-dir", "examples", "--port", "{port}", "close_unpaid_orders_fastapi:app"],
    "typescript": ["node", "examples/close-unpaid-orders-express.mjs"],
}


def blocks(language):
    """The first block of the README, and the one of the how-to guide: with each, the line that it prints."""
    name = BLOCKS[language][0]
    pages = [CLIENTS / language / "README.md", CLIENTS.parent / "docs/how-to/clients.md"]
    for page in pages:
        found = re.search(rf"^```{name}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
        if not found:
            raise SystemExit(f"examples: {page} has no example in {language}")
        yield page, found[1], "close order 4711"


def tutorials(language):
    """The programs of the tutorials. Each has the line that it prints before it."""
    name = BLOCKS[language][0]
    pages = sorted((CLIENTS.parent / "docs/tutorials").glob("*.md"))
    found = [(page, block, line) for page in pages for line, block in re.findall(
        rf"^<!-- program: ([^\n]*) -->\n```{name}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)]
    if len(found) != len(pages):
        raise SystemExit(f"examples: {len(pages)} tutorials have {len(found)} programs in {language}")
    return found


# A program of a block of Rust, with the versions of crates that the broker has; a workspace, so that cargo looks for no other.
MANIFEST = f"""[package]
name = "example"
edition = "2024"

[dependencies]
dwell-client = {{ path = "{CLIENTS}/rust", features = ["client"] }}
tokio = {{ version = "1", features = ["macros", "rt-multi-thread"] }}

[[bin]]
name = "example"
path = "main.rs"

[workspace]
"""


def command_of(language, directory, file):
    _, _, command = BLOCKS[language]
    if language == "go":
        return [*command, f"./{directory}"]
    if language == "rust":
        manifest = Path(directory, "Cargo.toml")
        manifest.write_text(MANIFEST)
        Path(directory, "Cargo.lock").write_bytes((CLIENTS.parent / "Cargo.lock").read_bytes())
        return [*command, str(manifest), "--target-dir", str(CLIENTS.parent / "target")]
    return [*command, str(file)]


def run_block(language, page, block, line, server):
    # Go and Node.js find the client from the directory of the program.
    with tempfile.TemporaryDirectory(dir=".", prefix="example-") as directory:
        file = Path(directory, f"main.{BLOCKS[language][1]}")
        file.write_text(block.replace(ADDRESS, server))
        program = Program(command_of(language, directory, file), server)
        try:
            print(f"    the example of {page.name}", flush=True)
            # A block of Rust is built first.
            program.wait_for(line, BUILD_PATIENCE if language == "rust" else PATIENCE)
            if language in HEEDED:
                program.stop((HEEDED[language],))
        finally:
            program.kill()


def tick(server):
    """The cron job that a tutorial creates with curl before its program runs."""
    body, headers = b'{"every": "1s", "payload": "count the stock"}', {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{server}/v1/topics/books/cron/tick", body, headers, method="PUT")
    urllib.request.urlopen(request, timeout=10).close()


def run_tutorial(language, page, block, line, server):
    if page.name == "cron.md":
        tick(server)
    run_block(language, page, block, line, server)


def post(url):
    with urllib.request.urlopen(urllib.request.Request(url, method="POST"), timeout=10) as answer:
        return answer.status


def accepts(url):
    try:
        urllib.request.urlopen(url, timeout=5).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


def run_server(command, server):
    port = free_port()
    program = Program([part.format(port=port) for part in command], server, PORT=str(port))
    try:
        url = f"http://127.0.0.1:{port}/orders"
        until("the shop serves", lambda: accepts(url) or program.child.poll() is not None, PATIENCE)
        post(f"{url}/4711")
        post(f"{url}/4712")
        post(f"{url}/4711/pay")
        program.wait_for("paid order 4711")
        program.wait_for("closed order 4712")
        # uvicorn ends by the signal after it has stopped.
        program.stop((0, -signal.SIGTERM))
    finally:
        program.kill()


def run_program(language, command, server):
    program = Program(command, server)
    try:
        program.wait_for("paid order 4711")
        program.wait_for("closed order 4712")
        program.stop((HEEDED.get(language, 0),))
        if any("closed order 4711" in line for line in program.lines):
            raise SystemExit("examples: an order that was paid is closed")
    finally:
        program.kill()


def main():
    language = sys.argv[1]
    count = 0

    def each(run, *args):
        nonlocal count
        story = Story(os.environ["DWELL_BIN"], "calm", 0)
        try:
            run(*args, story.server)
        finally:
            story.close()
        count += 1

    if language in BLOCKS:
        for shown in blocks(language):
            each(run_block, language, *shown)
    if language in TUTORIALS:
        for shown in tutorials(language):
            each(run_tutorial, language, *shown)
    for command in PROGRAMS.get(language, []):
        each(run_program, language, command)
    if language in SERVERS:
        each(run_server, SERVERS[language])
    print(f"{language}: {count} examples do what they say", flush=True)


if __name__ == "__main__":
    main()
