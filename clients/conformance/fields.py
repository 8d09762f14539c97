#!/usr/bin/env python3
"""Checks that each client knows every field of the requests and answers that it uses, by the broker's OpenAPI document.

    fields.py LANGUAGE …        DWELL_BIN names the broker, and CLIENTS the directory of the sources
"""

import json
import os
import re
import sys
import urllib.request
from pathlib import Path

from story import Story

CLIENTS = Path(os.environ["CLIENTS"])
# A client sends and reads these. The others are for brokers, probes and the console.
SCHEMAS = """BatchMessage PushResult Control GroupFate Message FailedAttempt NewDue ListedMessage Explained GroupReason
Reserve Delivery Settled Nacked Extend TopicSettings DeadLetter ExponentialBackoff LadderBackoff Topic TopicDescription GroupTotals
PartitionState Counts NewGroup KeyLimit DeliveryWindow Group GroupDescription GroupKeys KeyPause KeyState Member PauseOf PurgeOf Purged DeadLetterMessage DeadLetterSelector Redriven BulkChange BulkChanged
BulkCount MoveTo Moved GroupForecast Due Findings Found NewCronJob CronJob ListedBroker AttentionList AttentionItem
ClockMove ClockMoved DueMessages FiredCronJob""".split()
# For gateways: `attachment`, `late`, `min_age`, and `per_key` with its `on_failure`. For whoever handles a batch as a whole, which a worker
# does not: `min` with its `linger`, and `same_key`.
LEFT_OUT = {
    "attachment", "late", "linger", "linger_ms", "min", "min_age", "min_age_ms", "on_failure", "per_key", "same_key",
}
SOURCES = {"python": "python/src/dwell/*.py", "typescript": "typescript/src/*.ts", "go": "go/**/*.go", "java": "java/src/main/java/com/example/dwell/*.java"}


def camel(name):
    return re.sub("_([a-z])", lambda letter: letter[1].upper(), name)


def fields(document, schema):
    """The fields of a schema, also those that it takes from others."""
    if "$ref" in schema:
        return fields(document, document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[-1]])
    found = set(schema.get("properties", {}))
    return found.union(*(fields(document, part) for part in schema.get("allOf", [])))


def main():
    story = Story(os.environ["DWELL_BIN"], "calm", 0)
    try:
        with urllib.request.urlopen(story.server + "/openapi.json", timeout=10) as answer:
            document = json.load(answer)
    finally:
        story.close()
    missing, count = [], 0
    for schema in SCHEMAS:
        names = fields(document, document["components"]["schemas"][schema]) - LEFT_OUT
        # Each duration has two names; a client sends one of them.
        names = {name for name in names if not (name.endswith("_ms") and name.removesuffix("_ms") in names)}
        count += len(names)
        for language in sys.argv[1:]:
            # A duration that has a type may have its name without the unit.
            text = "\n".join(file.read_text() for file in CLIENTS.glob(SOURCES[language]) if not file.name.endswith("_test.go"))
            missing += [f"{language}: {schema}.{name}" for name in sorted(names)
                        if not re.search(rf"\b({name}(_ms)?|{camel(name)}|{camel(name.removesuffix('_ms'))})\b", text, re.IGNORECASE)]
    if missing or count < 300:
        raise SystemExit(f"fields: {count} fields, of which these are not known: {missing}")
    print(f"fields: {' and '.join(sys.argv[1:])} know {count} fields of {len(SCHEMAS)} schemas")


if __name__ == "__main__":
    main()
