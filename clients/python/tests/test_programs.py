"""Runs the small programs of examples/ against a real broker, and what the README says."""

import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from lab import lab

CLIENT = Path(__file__).parent.parent
PATIENCE = 120
PRINTS = {
    "push_thousand.py": ["stored 1000 messages", "found 1000 duplicates"],
    "cancel_half.py": ["cancelled 500 messages", "left 500 messages", "scheduled 500 messages"],
    "failing_worker.py": [
        "sent to ada@example.com at attempt 2", "bob@nowhere buried None unknown domain",
        "eve@example.com max_attempts ConnectionError smtp: 554", "redriven 1",
    ],
    "graceful_stop.py": ["handled 2 left 4 in flight 0", "the rest at attempt 1"],
}


class Programs(unittest.TestCase):
    def setUp(self):
        self.server = lab("/story", name="calm", messages=0)["server"]
        self.addCleanup(lab, "/story/end")

    def run_program(self, *command, directory=None):
        environment = {**os.environ, "DWELL_SERVER": self.server}
        ended = subprocess.run(
            [sys.executable, *command], env=environment, cwd=directory, capture_output=True, text=True, timeout=PATIENCE
        )
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
        return ended.stdout

    def test_programs_print_what_they_do(self):
        for name, lines in PRINTS.items():
            with self.subTest(name):
                printed = self.run_program(str(CLIENT / "examples" / name)).splitlines()
                for line in lines:
                    self.assertIn(line, printed)

    def test_a_test_moves_the_clock(self):
        printed = self.run_program("-m", "pytest", "-q", "-p", "no:cacheprovider", str(CLIENT / "examples" / "clock_test.py"))
        self.assertIn("1 passed", printed)

    def test_the_measurement_has_ratios(self):
        printed = self.run_program(str(CLIENT / "examples" / "measure_pushes.py"), "0.3")
        self.assertRegex(printed, r"^threads: single pushes 1\.0, producer \d+\.\d, batches of 100 \d+\.\d\nasyncio: single pushes \d+\.\d, producer \d+\.\d\n$")


class Readme(unittest.TestCase):
    """Each Python block of the README. A comment before it says how it is played.

    * `<!-- prints: LINE -->` or nothing: a program; what it needs beside the page is in the first lines of `GIVEN`.
    * `<!-- pytest -->`: a test file.
    """

    BLOCK = re.compile(r"(?:^<!-- (prints: [^\n]*|pytest) -->\n)?^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)

    def test_each_block_does_what_it_says(self):
        blocks = self.BLOCK.findall((CLIENT / "README.md").read_text())
        self.assertGreater(len(blocks), 6)
        for says, block in blocks:
            with self.subTest(block.splitlines()[0]), tempfile.TemporaryDirectory() as directory:
                server = lab("/story", name="calm", messages=0)["server"]
                try:
                    self.play(says, block.replace("http://127.0.0.1:7373", server), server, directory)
                finally:
                    lab("/story/end")

    def play(self, says, block, server, directory):
        file = Path(directory, "test_page.py" if says == "pytest" else "page.py")
        file.write_text(block)
        command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", str(file)] if says == "pytest" else [str(file)]
        child = subprocess.Popen(
            [sys.executable, *command], env={**os.environ, "DWELL_SERVER": server, "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        try:
            line = says.removeprefix("prints: ") if says.startswith("prints: ") else None
            printed = []
            for text in child.stdout:
                printed.append(text)
                if line is not None and line in text:
                    # A worker ends at SIGTERM.
                    child.terminate()
                    break
            else:
                self.assertIsNone(line, "".join(printed))
            printed += child.stdout
            # A program that had nothing more to do may end by the signal.
            self.assertIn(child.wait(PATIENCE), (0, -15) if line else (0,), "".join(printed))
        finally:
            if child.poll() is None:
                child.kill()
            child.stdout.close()
            child.wait()


if __name__ == "__main__":
    unittest.main()
