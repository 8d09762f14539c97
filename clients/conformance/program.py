"""A program that uses a client: what it prints is waited for, and it is stopped as a service manager does it."""

import os
import signal
import subprocess
import threading

from story import until

# Seconds until a program has printed what it should, and until it has stopped.
PATIENCE = 60


class Program:
    """A program whose lines are read as it runs, in a new process group."""

    def __init__(self, command, server, about=None, cwd=None, env=os.environ, **more):
        print("  " + (about or " ".join(command)), flush=True)
        self.lines = []
        self.child = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True, cwd=cwd,
            env={**env, "DWELL_SERVER": server, "PAY_WITHIN": "1s", "PYTHONUNBUFFERED": "1", **more},
        )
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.child.stdout:
            self.lines.append(line.rstrip("\n"))

    def wait_for(self, text, patience=PATIENCE):
        is_there = lambda: any(text in line for line in self.lines)
        try:
            until(text, lambda: is_there() or self.child.poll() is not None, patience)
        except TimeoutError:
            pass
        if self.child.poll() is not None:
            self.reader.join(5)
        if not is_there():
            self.kill()
            raise SystemExit(f"clients: {text!r} was not printed, but:\n" + "\n".join(self.lines))

    def stop(self, good):
        os.killpg(self.child.pid, signal.SIGTERM)
        try:
            code = self.child.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()
            raise SystemExit("clients: does not stop at SIGTERM:\n" + "\n".join(self.lines))
        self.reader.join(5)
        if code not in good:
            raise SystemExit(f"clients: ended with {code}:\n" + "\n".join(self.lines))

    def kill(self):
        if self.child.poll() is None:
            os.killpg(self.child.pid, signal.SIGKILL)
            self.child.wait()
