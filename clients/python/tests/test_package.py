"""The package: it is installed without writing into the clone, and its types are right for those who use it."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from test_programs import Readme

CLIENT = Path(__file__).parent.parent
# The sources, where clients/run has copied them from.
CLONE = Path(os.environ["CLIENTS"], "python") if "CLIENTS" in os.environ else CLIENT


def run(*command, **options):
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=300, **options)


class Package(unittest.TestCase):
    def test_an_install_writes_nothing_into_the_clone(self):
        def files():
            return {path: path.stat().st_mtime_ns for path in CLONE.rglob("*")}

        before = files()
        with tempfile.TemporaryDirectory() as directory:
            ended = run("-m", "pip", "install", "--quiet", "--no-deps", "--target", directory, str(CLONE), cwd=directory)
            self.assertEqual(ended.returncode, 0, ended.stderr)
            self.assertTrue(Path(directory, "dwell", "py.typed").exists())
        self.assertEqual(files(), before)

    def test_the_client_for_threads_is_that_for_asyncio(self):
        ended = run(str(CLIENT / "tools" / "unasync.py"), "--check")
        self.assertEqual(ended.returncode, 0, ended.stderr)

    def test_programs_have_types(self):
        """Also the blocks of the README: a wrong setting or option is an error of mypy."""
        with tempfile.TemporaryDirectory() as directory:
            for n, (_, block) in enumerate(Readme.BLOCK.findall((CLIENT / "README.md").read_text())):
                Path(directory, f"block_{n}.py").write_text(block)
            Path(directory, "wrong.py").write_text(
                "from dwell import Client, Producer\n"
                "client = Client()\n"
                "client.create_topic('orders', max_atempts=5)  # type: ignore[call-arg]\n"
                "client.create_topic('orders', max_attempts='5')  # type: ignore[arg-type]\n"
                "client.push('orders', 'x', delay=30)  # type: ignore[arg-type]\n"
                "client.purge('orders', all=False)  # type: ignore[arg-type]\n"
                "Producer(client).push('orders', 'x', dealy='1s')  # type: ignore[call-arg]\n"
            )
            cache = ["--cache-dir", str(Path(directory, "cache"))]
            # Handlers in the README have no annotations.
            loose = ["--config-file", os.devnull, "--warn-unused-ignores", "--check-untyped-defs"]
            ended = run("-m", "mypy", *cache, *loose, directory, cwd=directory)
            self.assertEqual(ended.returncode, 0, ended.stdout)
            ended = run("-m", "mypy", *cache, "--strict", str(CLIENT / "examples"))
            self.assertEqual(ended.returncode, 0, ended.stdout)


if __name__ == "__main__":
    unittest.main()
