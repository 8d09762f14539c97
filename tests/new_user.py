#!/usr/bin/env python3
"""What a new user types: every shell block of the README, the quickstart, the tutorials and the how-to pages, in a bare prefix.

Each page begins with an empty directory, a home without files, a path that has this dwell and the machine's own programs, and a
broker as `dwell serve` starts it. Its blocks are typed as they are printed, one after the other, into a terminal, and a question is
answered with yes. The first command that fails ends the run. A block that is not played has its reason in NOT_PLAYED, and one
that is in neither list fails: so a new block is played, or somebody says why not.

BINARY=target/debug/dwell plays with that one; else dwell is installed as the README says. Port 7373 has to be free.
"""

import os
import pathlib
import pty
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BROKER = ("127.0.0.1", 7373)
SERVE = "dwell serve"
INSTALL = "cargo install --locked --path ."
# In the answer to a request that was refused.
ERROR = "urn:dwell:error:"
# Seconds for one block.
PATIENCE = 60

# The beginning of a block, and why nobody types it here.
NOT_PLAYED = {
    "make test": "it runs this repository's tests, and takes minutes: continuous integration runs it",
    "docker build": "there is no container engine: `make play-image` plays the Dockerfile",
    "deploy/secrets.sh": "there is no cluster: `make chart-test` renders and checks what is installed",
    "  helm template": "`make chart-test` gives every configuration of the chart to `dwell config check`",
    "  kubectl": "there is no cluster",
    "kubectl": "there is no cluster",
    "redis-server --port 6380": "`make dashboards` plays it, with a real Prometheus",
    "dwell doctor --config /etc/dwell/dwell.toml": "it needs sentinels: `redis::sentinel` plays a failover",
    "redis-cli -h sentinel-a": "it needs sentinels: `redis::sentinel` plays a failover",
    "make static": "it installs into this machine: `make package` installs the package below a scratch root",
    "install -D --mode=0600 redis-password": "it needs systemd",
    "dwell --context prod topic list": "it needs the reader's own broker with TLS: `tools::cli` plays contexts",
    "dwell completions zsh": "it is typed into a zsh, which knows where its completions are",
    "DWELL_TRACE_OTLP_ENDPOINT": "it needs a collector: `tools::spans` has one",
}

# Commands that do not end by themselves: they are interrupted as soon as this command succeeds.
ENDLESS = {"dwell consume orders --exec": "test -e closed"}

# What the reader of a page has already: files, messages, a service.
BEFORE = {
    "docs/how-to/any-language.md": [
        "printf '#!/bin/sh\\ncat >closed\\n' > close-order.sh && chmod +x close-order.sh",
        "dwell push orders 'close order 1'",
    ],
    "docs/how-to/bulk.md": ["dwell push orders 'close order 1' --delay 2h"],
    "docs/how-to/dead-letters.md": [
        "dwell topic create TOPIC",
        "dwell topic create orders",
        "dwell push TOPIC 'to nobody'",
        "dwell consume TOPIC --count 1 --exec false",
    ],
    "docs/how-to/move-a-topic.md": ["dwell topic create orders", "dwell push orders 'close order 1' --delay 30m"],
    "docs/how-to/trace.md": ["dwell topic create orders"],
}

# What happens between two blocks of a page: before the one that begins so.
BETWEEN = {
    "dwell reserve orders --max 10": ["dwell push orders 'close order 2'"],
    "curl --cacert ca.crt": ["cp /etc/dwell/tls.crt ca.crt", "cp /etc/dwell/shop shop"],
}

# Configurations that a page prints as TOML: the block, and before which commands the broker begins anew with it.
CONFIGURED = {"curl --cacert ca.crt": 0, "curl http://10.0.0.4:7374": 2}

# Names of the reader's own machines and directories, and what they are here.
PLACES = {
    "dwell.internal": "localhost",
    "10.0.0.4": "127.0.0.1",
    "0.0.0.0": "127.0.0.1",
    "/etc/dwell": "{scratch}/etc",
}


class Failure(Exception):
    pass


def pages():
    yield ROOT / "README.md"
    yield ROOT / "docs/quickstart.md"
    for folder in ("tutorials", "how-to"):
        yield from sorted((ROOT / "docs" / folder).glob("*.md"))


def blocks(page, kind):
    """The blocks of a page, each with the number of its first line."""
    block, begin, found = None, 0, []
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if block is None and line.strip() == f"```{kind}":
            block, begin = [], number + 1
        elif block is not None and line.strip() == "```":
            found.append((begin, "\n".join(block)))
            block = None
        elif block is not None:
            block.append(line)
    return found


def value_of(table, block):
    """What a table has for the beginning of a block."""
    return next((value for begin, value in table.items() if block.startswith(begin)), None)


class Reader:
    """Somebody with a terminal, a home and a directory."""

    def __init__(self, prefix, scratch):
        self.scratch = scratch
        self.broker = None
        home = scratch / "home"
        home.mkdir()
        self.environment = {
            "HOME": str(home),
            "PATH": f"{prefix}/bin:/usr/local/bin:/usr/bin:/bin",
            "TERM": "dumb",
            "LANG": "C.UTF-8",
        }
        self.directory = scratch / "work"
        self.directory.mkdir()
        (scratch / "etc").mkdir()

    def placed(self, text):
        for name, here in PLACES.items():
            text = text.replace(name, here.format(scratch=self.scratch))
        return text

    def start(self, script):
        """A shell in a terminal, which stops at the first command that fails."""
        process, terminal = pty.fork()
        if process == 0:
            os.chdir(self.directory)
            os.execve("/bin/bash", ["bash", "-euo", "pipefail", "-c", self.placed(script)], self.environment)
        return process, terminal

    def type(self, script, until=None):
        """Types a script. With `until` it is interrupted once that command succeeds, and has to go on until then."""
        process, terminal = self.start(script)
        said, ends, interrupted = "", time.monotonic() + PATIENCE, False
        while True:
            if time.monotonic() > ends:
                os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)
                raise Failure(f"it did not end within {PATIENCE} s:\n{said}")
            if until and not interrupted and self.succeeds(until):
                os.write(terminal, b"\x03")
                interrupted = True
            if not select.select([terminal], [], [], 0.1)[0]:
                continue
            try:
                part = os.read(terminal, 65536).decode(errors="replace")
            except OSError:
                break
            said += part
            if not part:
                break
            if re.search(r"Type yes to go on:\s*$", said):
                os.write(terminal, b"yes\n")
                said += "\n"
        status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        os.close(terminal)
        if until and not interrupted:
            raise Failure(f"it ended by itself:\n{said}")
        # curl ends with 0 whatever it is answered.
        is_refused = ERROR in said and ERROR not in script
        if not until and (status != 0 or is_refused):
            raise Failure(f"status {status}:\n{said}")
        return said

    def succeeds(self, command):
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        return subprocess.run(["bash", "-c", command], cwd=self.directory, env=self.environment, **quiet).returncode == 0

    def serve(self, command):
        """Starts a broker, in the place of the one that runs."""
        self.stop()
        command = ["bash", "-euo", "pipefail", "-c", f"exec {self.placed(command)}"]
        log = open(self.scratch / "broker.log", "ab")
        self.broker = subprocess.Popen(command, cwd=self.directory, env=self.environment, stdout=log, stderr=log)
        ends = time.monotonic() + PATIENCE
        while not is_open():
            if self.broker.poll() is not None or time.monotonic() > ends:
                raise Failure("the broker did not start:\n" + (self.scratch / "broker.log").read_text()[-2000:])
            time.sleep(0.05)

    def stop(self):
        if self.broker:
            self.broker.terminate()
            self.broker.wait(PATIENCE)
            self.broker = None


def is_open():
    with socket.socket() as probe:
        return probe.connect_ex(BROKER) == 0


def play(page, prefix):
    name = str(page.relative_to(ROOT))
    played, left_out = 0, 0
    with tempfile.TemporaryDirectory(prefix="new-user-") as scratch:
        reader = Reader(prefix, pathlib.Path(scratch))
        try:
            for number, block in blocks(page, "sh"):
                place = f"{name}:{number}"
                reason = value_of(NOT_PLAYED, block)
                if reason:
                    print(f"  {place}: not played: {reason}")
                    left_out += 1
                    continue
                try:
                    play_block(reader, page, block)
                except Failure as failure:
                    raise Failure(f"{place}: {failure}\n\nthe block:\n{block}") from None
                played += 1
        finally:
            reader.stop()
    print(f"{name}: {played} blocks played, {left_out} not", flush=True)
    return played, left_out


def play_block(reader, page, block):
    name = str(page.relative_to(ROOT))
    configuration = value_of(CONFIGURED, block)
    # `main` has installed it, as the block says.
    lines = [line for line in block.splitlines() if line != INSTALL]
    if lines and lines[-1].startswith(SERVE):
        return reader.serve(lines[-1])
    if configuration is not None:
        config = reader.scratch / "etc" / "dwell.toml"
        config.write_text(reader.placed(blocks(page, "toml")[configuration][1]))
        reader.serve("dwell serve --config /etc/dwell/dwell.toml")
    elif reader.broker is None:
        reader.serve(SERVE)
        for command in BEFORE.get(name, []):
            reader.type(command)
    for command in value_of(BETWEEN, block) or []:
        reader.type(command)
    return reader.type("\n".join(lines), value_of(ENDLESS, block))


def install(prefix):
    binary = os.environ.get("BINARY")
    if binary:
        (prefix / "bin").mkdir(parents=True)
        shutil.copy(ROOT / binary, prefix / "bin/dwell")
        return
    # The target directory of the repository: what is built already is not built again.
    environment = {**os.environ, "CARGO_INSTALL_ROOT": str(prefix), "CARGO_TARGET_DIR": str(ROOT / "target")}
    subprocess.run(INSTALL.split(), cwd=ROOT, env=environment, check=True)


def main():
    if is_open():
        sys.exit("new-user: something listens on port 7373: stop it, since the pages use that port")
    missing = [program for program in ("bash", "curl", "jq", "openssl") if not shutil.which(program)]
    if missing:
        sys.exit(f"new-user: needed in PATH: {' '.join(missing)}")
    blocks_played = blocks_left = 0
    with tempfile.TemporaryDirectory(prefix="new-user-prefix-") as prefix:
        install(pathlib.Path(prefix))
        for page in pages():
            try:
                played, left_out = play(page, prefix)
            except Failure as failure:
                sys.exit(f"new-user: {failure}")
            blocks_played, blocks_left = blocks_played + played, blocks_left + left_out
    print(f"new-user: {blocks_played} blocks played, {blocks_left} not played, each with its reason")


if __name__ == "__main__":
    main()
