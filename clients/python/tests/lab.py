"""Talks to clients/conformance/lab.py, which starts these tests."""

import json
import os
import urllib.request


def lab(path, **asked):
    request = urllib.request.Request(os.environ["LAB"] + path, json.dumps(asked).encode(), method="POST")
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)
