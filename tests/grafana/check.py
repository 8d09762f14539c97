"""Checks that Grafana stores each dashboard as its file says, finds it valid, imports it, and answers each of its queries.

The requests are those of Grafana's pages: values of variables, panels with everything chosen and with one topic chosen, and
annotations. tests/grafana/run sets the addresses and the password in the environment.
"""

import base64
import copy
import json
import os
import re
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

GRAFANA = os.environ["GRAFANA_URL"]
LOGIN = "Basic " + base64.b64encode(f"admin:{os.environ['GRAFANA_PASSWORD']}".encode()).decode()
BROKERS = os.environ["BROKERS"].split()
FILES = sorted(Path("grafana/dashboards").glob("*.json"))
SOURCE = "dwell-prometheus"
# Longer than the 20 s of a rate: four scrapes of 5 s.
LOAD_SECONDS = 30
# What a panel that is a third of a screen asks for.
MAX_DATA_POINTS = 600
# As in Grafana's own data source: label_values(series, label).
LABEL_VALUES = re.compile(r"^label_values\((?:(.+),\s*)?([a-zA-Z_][a-zA-Z0-9_]*)\)\s*$")
VARIABLE = re.compile(r"\$\{?(\w+)\}?")

failures = []


def check(holds, message):
    if not holds:
        failures.append(message)
    return holds


def send(url, body=None, headers=None, method=None):
    """The status and the JSON of an answer."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json", **(headers or {})}, method=method)
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as answer:
            status, text = answer.status, answer.read()
    except urllib.error.HTTPError as error:
        status, text = error.code, error.read()
    try:
        return status, json.loads(text or "null")
    except json.JSONDecodeError:
        return status, text.decode(errors="replace")


def grafana(path, body=None):
    return send(GRAFANA + path, body, {"Authorization": LOGIN})


def broker(number, path, body, method="POST"):
    status, answer = send(BROKERS[number] + "/v1/topics/" + path, body, method=method)
    assert status < 300, f"{path}: {status}: {answer}"
    return answer


def load():
    """Pushes, acks, nacks and dead letters at both brokers, until rates have values."""
    backoff = {"kind": "ladder", "steps": ["50ms"]}
    broker(0, "orders", {"partitions": 8, "max_attempts": 2, "backoff": backoff}, "PUT")
    broker(0, "mail", {"partitions": 2}, "PUT")
    until = time.monotonic() + LOAD_SECONDS
    while time.monotonic() < until:
        for number in range(len(BROKERS)):
            messages = [{"payload": "close", "key": f"customer-{n}", "delay": f"{n}ms"} for n in range(100)]
            broker(number, "orders/messages/batch", {"messages": messages})
            broker(number, "mail/messages/batch", {"messages": [{"payload": "dear customer", "delay": "1h"}]})
            wanted = {"max": 100, "wait": "200ms"}
            receipts = [d["receipt"] for d in broker(number, "orders/groups/default/reserve", wanted)["deliveries"]]
            failed = [{"receipt": receipt, "reason": "not now"} for receipt in receipts[::10]]
            for verb, settled in ("nack", failed), ("ack", [r for n, r in enumerate(receipts) if n % 10]):
                if settled:
                    broker(number, f"orders/groups/default/{verb}", {"receipts": settled})
        time.sleep(0.2)


def panels(dashboard):
    for panel in dashboard["panels"]:
        yield from panel.get("panels", [])
        if panel["type"] != "row":
            yield panel


def fill(expression, chosen):
    """Replaces variables as the pages do. Those that begin with __ are left to Grafana's server."""
    return VARIABLE.sub(lambda match: chosen.get(match[1], match[0]), expression)


def either(values):
    """Chosen values as the data source for Prometheus writes them into a regular expression."""
    escaped = [re.sub(r"[$^*{}\[\]'+?.()|]", r"\\\\\g<0>", value) for value in values]
    return escaped[0] if len(escaped) == 1 else f"({'|'.join(escaped)})"


def is_stored(name, dashboard):
    uid = dashboard["uid"]
    status, answer = grafana(f"/api/dashboards/uid/{uid}")
    if not check(status == 200, f"{name}: it is not provisioned: {status}: {answer}"):
        return
    stored, meta = answer["dashboard"], answer["meta"]
    check({**stored, "id": 0, "version": 0} == {**dashboard, "id": 0, "version": 0}, f"{name}: stored as something else")
    check(meta["provisioned"] and meta["folderTitle"] == "dwell", f"{name}: {meta}")
    # As the page for imports does, with another uid, into the folder General.
    imported = {**dashboard, "uid": f"imported-{uid}"}
    status, answer = grafana("/api/dashboards/import", {"dashboard": imported, "overwrite": False, "inputs": []})
    check(status == 200 and answer.get("imported"), f"{name}: it is not imported: {status}: {answer}")
    status, answer = grafana(f"/api/dashboards/uid/imported-{uid}")
    check(status == 200 and answer["dashboard"]["panels"] == dashboard["panels"], f"{name}: imported as something else")


def is_valid(name, dashboard):
    # Grafana writes null for the first step, which begins at -Infinity. Its schema of this version does not know that yet.
    for panel in panels(dashboard):
        for threshold in panel["fieldConfig"]["defaults"]["thresholds"]["steps"][:1]:
            check(threshold.pop("value") is None, f"{name}, {panel['title']}: thresholds begin with a value")
    status, answer = grafana("/api/dashboards/validate", {"dashboard": json.dumps(dashboard)})
    check(status == 200 and answer["isValid"], f"{name}: Grafana's schema: {status}: {answer}")


def choices(name, dashboard):
    """What "all" is in each variable, and its values with all chosen in the variables before it."""
    every, values = {"datasource": SOURCE}, {}
    for variable in dashboard["templating"]["list"]:
        if variable["type"] != "query":
            check(variable["type"] == "datasource", f"{name}: the variable {variable['name']} is another one")
            continue
        call = LABEL_VALUES.match(variable["query"]["query"])
        if not check(call, f"{name}: the variable {variable['name']} is not understood"):
            continue
        match = urllib.parse.urlencode({"match[]": fill(call[1], every)})
        path = f"/api/datasources/uid/{SOURCE}/resources/api/v1/label/{call[2]}/values?{match}"
        status, answer = grafana(path)
        found = answer.get("data") if status == 200 else None
        check(found, f"{name}: the variable {variable['name']}: {status}: {answer}")
        values[variable["name"]] = found or []
        every[variable["name"]] = variable["allValue"]
    return every, values


def ask(place, query, chosen):
    """Whether an answer has data. A query without an answer is a failure."""
    query = {
        **query,
        "expr": fill(query["expr"], chosen),
        "datasource": {"type": "prometheus", "uid": fill(query["datasource"]["uid"], chosen)},
        "intervalMs": 5000,
        "maxDataPoints": MAX_DATA_POINTS,
    }
    left = {variable for variable in VARIABLE.findall(query["expr"]) if not variable.startswith("__")}
    check(not left, f"{place}: nothing replaces {left}")
    status, answer = grafana("/api/ds/query", {"queries": [query], "from": "now-1h", "to": "now"})
    result = answer.get("results", {}).get(query["refId"], {}) if isinstance(answer, dict) else {}
    if not check(status == 200 and result.get("status") == 200 and "error" not in result, f"{place}: {status}: {answer}"):
        return False
    return any(any(frame["data"]["values"]) for frame in result["frames"])


def queries(dashboard):
    for panel in panels(dashboard):
        for target in panel["targets"]:
            yield f"{panel['title']}, {target['refId']}", target
    for mark in dashboard["annotations"]["list"]:
        target = {"refId": "X", "expr": mark["expr"], "interval": mark["step"], "range": True, "instant": False}
        yield f"annotation {mark['name']}", {**target, "datasource": mark["datasource"]}


def main():
    status, health = grafana("/api/health")
    print(f"Grafana {health['version']}, {health['commit']}")
    status, source = grafana(f"/api/datasources/uid/{SOURCE}")
    check(status == 200 and source["readOnly"] and source["isDefault"], f"the data source: {status}: {source}")
    load()
    status, answer = grafana(f"/api/datasources/uid/{SOURCE}/health")
    check(status == 200 and answer["status"] == "OK", f"the data source: {status}: {answer}")
    print("| dashboard | panels | variables | queries | with data, all chosen | one topic and all brokers chosen |")
    print("|---|---|---|---|---|---|")
    for file in FILES:
        name, dashboard = file.stem, json.loads(file.read_text())
        is_stored(name, dashboard)
        is_valid(name, copy.deepcopy(dashboard))
        every, values = choices(name, dashboard)
        some = {**every, "topic": either(["orders"]), "group": either(["default"]), "instance": either(values["instance"])}
        asked = list(queries(dashboard))
        found = [sum(ask(f"{name}, {place}", query, chosen) for place, query in asked) for chosen in (every, some)]
        check(found[0], f"{name}: no query finds anything")
        print(f"| {name} | {len(list(panels(dashboard)))} | {1 + len(values)} | {len(asked)} | {found[0]} | {found[1]} |", flush=True)
    status, answer = grafana("/api/search?type=dash-db&tag=dwell")
    uids = {found["uid"] for found in answer}
    check(len(FILES) == 4 and len(uids) == 8, f"dashboards with the tag dwell: {uids}")
    for failure in failures:
        print(f"grafana: {failure[:1000]}", file=sys.stderr)
    return 1 if failures else 0


sys.exit(main())
