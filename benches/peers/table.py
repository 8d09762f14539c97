"""Makes the section "Against others" of docs/internals/benchmarks.md, and its plot, from results/*.json."""

import json
import statistics
from pathlib import Path

from measure import PEERS, SHARES, SINGLES, SLOW

HERE = Path(__file__).resolve().parent
PAGE = HERE.parents[1] / "docs" / "internals" / "benchmarks.md"
PLOT = PAGE.with_name("benchmarks-peers.svg")
TITLE = "## Against others"

NAMES = {
    "dwell-http": "dwell, over HTTP",
    "dwell-library": "dwell, as a library",
    "dwell-sqs": "dwell, over its SQS façade",
    "dwell-rust": "dwell, with its Rust client",
    "dwell-go": "dwell, with its Go client",
    "bullmq": "BullMQ",
    "rsmq": "rsmq_async",
    "celery": "Celery, with an eta",
    "asynq": "asynq",
    "nats": "NATS JetStream, scheduled",
    "beanstalkd-memory": "beanstalkd, no log",
    "beanstalkd-f50": "beanstalkd, `-b -f50`",
    "beanstalkd-f0": "beanstalkd, `-b -f0`",
    "rabbitmq-transient": "RabbitMQ, transient",
    "rabbitmq-persistent": "RabbitMQ, persistent",
}

# What to know of some, where they were measured.
NOTES = {
    "dwell-sqs": "The delays of SQS are whole seconds, rounded up here so that nothing is early; the lateness and burst of the "
    "façade include that.",
    "dwell-rust": "A push of dwell's clients is a call of one message: a Producer gathers those of all callers, also where the others "
    "have one message in a request. A Worker asks for as many messages as handlers are free, and gathers its acks.",
    "beanstalkd-memory": "The delays of beanstalkd are whole seconds, rounded up here so that nothing is early; "
    "its lateness and burst include that.",
    "rsmq": "A consumer of rsmq_async has to poll: more often means less lateness and more idle commands.",
    "celery": "Celery's workers take a message with an eta at once and keep it in memory until it is due, so their memory "
    "bounds what waits. If a worker dies, Redis still has its messages, and delivers them again after the "
    "visibility timeout, which has to be longer than any delay. Its lateness and burst do not include the cost of "
    "fetching before the due time. Its drain begins when the workers have connected.",
    "asynq": "asynq stores due times in whole seconds and drops the fraction, so a task would run up to a second early. They are "
    "rounded up here, and its lateness and burst include that. A shorter DelayedTaskCheckInterval means less lateness and more "
    "idle commands.",
    "nats": "nats-server publishes scheduled messages at most once every 250 ms, which its lateness and burst include. It reads "
    "fractions of a second; WithScheduleAt of its Go client drops them, so the header is set directly. It answers a "
    "publish when the message is written to the file, which it syncs every 2 minutes. Its memory is the growth of the "
    "server's resident memory, which includes garbage and caches; the messages are in files.",
    "rabbitmq-transient": "RabbitMQ has no delays without a plugin. With a time to live only the head of a queue "
    "expires: a message with a longer delay holds back the ones behind it. Messages are pushed in due order here, so "
    "the figures do not show this.",
}

MISSING = (
    "lmstfy and HDT3213/delayqueue are missing: the Go module proxy does not offer them (403, \"This module version "
    "is not available\"), and the script builds nothing from elsewhere."
)


def main():
    reports = [json.loads(path.read_text()) for path in (HERE / "results").glob("*.json")]
    reports.sort(key=lambda report: list(PEERS).index(report["peer"]))
    text = PAGE.read_text() if PAGE.exists() else "# Benchmarks\n"
    before, _, rest = text.partition(TITLE)
    behind = rest.partition("\n## ")
    after = "\n## " + behind[2] if behind[1] else ""
    PAGE.write_text(before.rstrip() + "\n\n" + section(reports) + after)
    PLOT.write_text(plot(reports))


def section(reports):
    first, counts = reports[0], reports[0]["counts"]
    # Results from before memory was measured do not have it.
    pending = max(report["counts"].get("memory", 0) for report in reports)
    loads = [run["load_before"] for report in reports for run in report["runs"] if "load_before" in run]
    of_each = [max(run["round"] for run in report["runs"]) for report in reports]
    rounds = str(max(of_each)) if min(of_each) == max(of_each) else f"{min(of_each)} to {max(of_each)}"
    rounds += " round" if rounds == "1" else " rounds"
    rows = [
        "| | push/s | drain/s | lateness p50, p99, ms | burst, s | idle, Redis commands/s | memory, bytes a message |",
        "|---|---|---|---|---|---|---|",
    ]
    for report in reports:
        cells = [
            number(report, "push_per_s"),
            number(report, "drain_per_s"),
            lateness(report),
            burst(report),
            number(report, "idle_commands_per_s", 1),
            number(report, "memory_bytes_per_message"),
        ]
        rows.append("| " + " | ".join([NAMES[report["peer"]], *cells]) + " |")
    setups = [f"* **{NAMES[report['peer']]}** {report['version']}: {report['setup']}." for report in reports]
    dates = sorted({report["date"] for report in reports})
    return f"""{TITLE}

```sh
benches/peers/run.sh             # all of them; or some: benches/peers/run.sh dwell-http bullmq
```

The script installs each peer from its registry, measures it, and writes this section. Every figure is the median of {rounds}, in which
the peers take turns at each measure; the lowest and highest figures are in brackets. *Idle* and *memory* are measured once.

{chr(10).join(rows)}

![push and drain, messages a second](benchmarks-peers.svg)

{singles(reports)}{shares(reports)}Payloads have {counts["payload_bytes"]} bytes. *push*: {counts["messages"]:,} messages that are due in an hour. *drain*: receive and ack {counts["messages"]:,} messages that are due.
*lateness*: from the due time to the delivery, of {counts["rate"] * counts["span_s"]:,} messages that were pushed before and are due at {counts["rate"]:,} a second.
*burst*: {counts["burst"]:,} messages are due at the same instant; from that instant to the last ack. *idle*: a consumer waits, and there are no
messages. *memory*: how much Redis, or the peer's own server, grows for each of {pending:,} messages that are due in an hour.
`-`: the measure does not apply, or was not taken. Each message was delivered and acked exactly once, none early{exceptions(reports)}.

{chr(10).join(setups)}

Notes:

* Machine: {first["machine"]}. The load before a measure, mostly of the measures before, was {min(loads)} to {max(loads)},
  on {first["machine"].split(" ")[0]} processors.
  Measured {dates[0]}{" to " + dates[-1] if len(dates) > 1 else ""}.
* One Redis {first["redis"]} on loopback without an append-only file serves all peers that need one. Client, broker and Redis
  share the processors. dwell, beanstalkd, RabbitMQ and NATS are separate processes; BullMQ, rsmq_async, Celery and
  asynq are libraries in the client, which saves them a hop.
* The peers promise different things: the messages of beanstalkd without a log, and RabbitMQ's transient messages,
  are lost when the process ends, and rsmq_async, BullMQ, Celery and asynq do other work for each message than dwell.
{notes(reports)}* Batches and connections were chosen for each peer, not searched exhaustively.
* {missing(reports)}
"""


def singles(reports):
    """The table of pushes and drains with one message in a request, of those that were measured."""
    rows = []
    for report in reports:
        cells = [number(report, f"{what}_{callers}_per_s") for what in ("push", "drain") for callers in (1, 32)]
        if set(cells) != {"-"}:
            rows.append("| " + " | ".join([NAMES[report["peer"]], *cells]) + " |")
    if not rows:
        return ""
    count = max(report["counts"].get("single", 0) for report in reports)
    return f"""With one message in a request, and {count:,} messages: each connection waits for the answer before it sends the next one.

| | push/s, 1 connection | push/s, 32 connections | drain/s, 1 | drain/s, 32 |
|---|---|---|---|---|
{chr(10).join(rows)}

"""


def shares(reports):
    """The table of lateness at a share of each one's limit, of those that were measured."""
    rows = []
    for report in reports:
        runs = [next((run for run in report["runs"] if run["measure"] == share), {}) for share in SHARES]
        if any("rate" in run for run in runs):
            cells = [cell for run in runs for cell in share_cells(run)]
            rows.append("| " + " | ".join([NAMES[report["peer"]], *cells]) + " |")
    if not rows:
        return ""
    return f"""How late messages are at a tenth and at nine tenths of the rate at which a peer delivered and acked the burst, p50, p99 and p99.9.
All were pushed before, and are due within three seconds.

| | a tenth, messages/s | lateness, ms | nine tenths, messages/s | lateness, ms |
|---|---|---|---|---|
{chr(10).join(rows)}

"""


def share_cells(run):
    late = run.get(f"lateness_{run.get('measure', '').partition('-')[2]}_ms")
    if late is None:
        return ["-", "-"]
    return [f"{run['rate']:,}", ", ".join(f"{late[p]:,}" for p in ("p50", "p99", "p99.9"))]


def notes(reports):
    found = [NOTES[report["peer"]] for report in reports if report["peer"] in NOTES]
    for report in reports:
        if report["peer"] in SLOW:
            measured = {run["measure"] for run in report["runs"]}
            measures = [name for name in PEERS[report["peer"]] if name in measured and name not in ("idle", *SHARES)]
            counts = ", ".join(f"{expected(report, {'measure': name}):,} for {name}" for name in measures)
            found.append(f"{NAMES[report['peer']]} got fewer messages: {counts}.")
    return "".join(f"* {note}\n" for note in found)


def missing(reports):
    """Who could have been measured and was not, and who could not."""
    here = {report["peer"] for report in reports}
    absent = [NAMES[name] for name in PEERS if name not in here]
    return (f"Not measured yet: {'; '.join(absent)}. " if absent else "") + MISSING


def values(report, name):
    return [run[name] for run in report["runs"] if name in run]


def number(report, name, digits=0):
    found = values(report, name)
    if not found:
        return "-"
    shown = [f"{value:,.{digits}f}" for value in (statistics.median(found), min(found), max(found))]
    return shown[0] if len(found) == 1 else f"{shown[0]} ({shown[1]} to {shown[2]})"


def burst(report):
    """How long it took, and of how many where it was not of as many as the others."""
    cell = number(report, "burst_s", 2)
    if cell == "-" or report["peer"] not in SLOW:
        return cell
    return f"{cell}; of {expected(report, {'measure': 'burst'}):,}"


def lateness(report):
    found = values(report, "lateness_ms")
    if not found:
        return "-"
    return ", ".join(f"{statistics.median(value[p] for value in found):,.0f}" for p in ("p50", "p99"))


def exceptions(report_list):
    """What was not as it should be: it is said, whoever it is."""
    found = []
    for report in report_list:
        runs = report["runs"]
        for what in ("repeated", "early"):
            many = sum(run.get(what, 0) for run in runs)
            if many:
                found.append(f"{NAMES[report['peer']]} had {many:,} {what}")
        missing = sum(expected(report, run) - run["distinct"] for run in runs if "distinct" in run)
        if missing:
            found.append(f"{NAMES[report['peer']]} had {missing:,} missing")
        failed = [f"{run['measure']} in round {run['round']}" for run in runs if "failed" in run]
        if failed:
            found.append(f"{NAMES[report['peer']]} failed at {', '.join(failed)}")
    return ", but: " + "; ".join(found) if found else ""


def expected(report, run):
    """How many messages this run was of."""
    if "count" in run:
        return run["count"]
    counts = report["counts"]
    many = {
        "memory": counts.get("memory", 0),
        "burst": counts["burst"],
        "lateness": counts["rate"] * counts["span_s"],
        **dict.fromkeys(SINGLES, counts.get("single", 0)),
    }
    return many.get(run["measure"], counts["messages"]) // SLOW.get(report["peer"], 1)


def plot(reports):
    """Two bars for each peer: push and drain."""
    bars = []
    for report in reports:
        for name, colour in (("push_per_s", "#4c78a8"), ("drain_per_s", "#f58518")):
            found = values(report, name)
            if found:
                bars.append((NAMES[report["peer"]].replace("`", ""), name, colour, statistics.median(found)))
    most = max(bar[3] for bar in bars)
    height = 40 + 20 * len(bars)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="760" height="{height}" font-family="sans-serif" font-size="12">',
        f'<rect width="760" height="{height}" fill="white"/>',
        '<text x="180" y="20"><tspan fill="#4c78a8">push</tspan> and <tspan fill="#f58518">drain</tspan>,'
        " messages a second</text>",
    ]
    for place, (peer, name, colour, value) in enumerate(bars):
        y, width = 32 + 20 * place, 480 * value / most
        if name == "push_per_s":
            lines.append(f'<text x="172" y="{y + 18}" text-anchor="end">{peer}</text>')
        lines.append(f'<rect x="180" y="{y}" width="{width:.0f}" height="16" fill="{colour}"/>')
        lines.append(f'<text x="{186 + width:.0f}" y="{y + 12}">{value:,.0f}</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"


if __name__ == "__main__":
    main()
