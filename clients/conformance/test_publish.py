"""Tests which credentials clients/publish wants. Programs that do nothing stand for the tools, so nothing is built or published."""

import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

CREDENTIALS = {"rust": None, "python": "TWINE_PASSWORD", "typescript": "NODE_AUTH_TOKEN", "go": None, "java": "MAVEN_REPOSITORY"}
TOOLS = ("cargo", "python3", "node", "npm", "go", "gofmt", "javac", "mvn")


class Credentials(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="dwell-publish-")
        self.addCleanup(directory.cleanup)
        # The script works where it is: a copy finds no packages and no tools that are installed.
        self.root = Path(directory.name)
        (self.root / "clients").mkdir()
        (self.root / "bin").mkdir()
        shutil.copy(Path(__file__).parent.parent / "publish", self.root / "clients" / "publish")
        (self.root / "Cargo.toml").write_text('[package]\nversion = "0.1.0"\n')
        for tool in TOOLS:
            program = self.root / "bin" / tool
            program.write_text("#!/bin/sh\nexit 1\n")
            program.chmod(0o755)

    def publish(self, *languages, credentials):
        """Whether it began to build the first package, and its text. It never succeeds, since its tools fail."""
        path = f"{self.root / 'bin'}:{os.defpath}"
        given = {name: "secret" for name in credentials}
        command = [str(self.root / "clients" / "publish"), *languages]
        ended = subprocess.run(command, env={"PATH": path, **given}, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60)
        self.assertNotEqual(ended.returncode, 0, ended.stdout)
        return ": package" in ended.stdout, ended.stdout + ended.stderr

    def test_a_language_needs_its_own_credentials_alone(self):
        for language, needed in CREDENTIALS.items():
            with self.subTest(language):
                has_begun, text = self.publish(language, credentials=filter(None, [needed]))
                self.assertTrue(has_begun, text)

    def test_nothing_is_built_without_the_credentials_of_a_language(self):
        for language, needed in CREDENTIALS.items():
            if needed:
                with self.subTest(language):
                    others = set(CREDENTIALS.values()) - {needed, None}
                    has_begun, text = self.publish("rust", language, credentials=others)
                    self.assertFalse(has_begun, text)
                    self.assertIn(f"publish: {needed} is needed for {language}, or --dry-run", text)

    def test_all_languages_need_all_credentials(self):
        for needed in filter(None, CREDENTIALS.values()):
            with self.subTest(needed):
                others = set(CREDENTIALS.values()) - {needed, None}
                has_begun, text = self.publish(credentials=others)
                self.assertFalse(has_begun, text)
                self.assertIn(needed, text)
        has_begun, text = self.publish(credentials=filter(None, CREDENTIALS.values()))
        self.assertTrue(has_begun, text)

    def test_a_dry_run_needs_none(self):
        for language in CREDENTIALS:
            with self.subTest(language):
                has_begun, text = self.publish("--dry-run", language, credentials=())
                self.assertTrue(has_begun, text)


if __name__ == "__main__":
    unittest.main()
