"""Measures dwell and its peers, interleaved, on one Redis of its own; writes results/<peer>.json.

A peer is a folder with a script `peer.sh`, which is called in three ways:
  peer.sh install <mode>    from its registry, into its folder
  peer.sh about <mode>      prints its version, and a sentence on how it is set up, as two lines
  peer.sh run <mode> <measure>
                            starts what it needs, runs one measure, prints one line of JSON as its last
What `run` is told is in the environment: see `tell`. Redis is empty before each measure.
A peer with a server of its own may write the server's process id and VmRSS, kB, before the first message to $DATA/server.
"""

import datetime
import json
import os
import platform
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent

# Mode by mode: the measures that make sense there, in order. Pushes come first, since what they take says how long
# before the due time the pushes of the other measures have to begin.
BATCHES = ["push", "drain", "lateness", "burst", "idle", "memory"]
# Lateness at a tenth and at nine tenths, in percent, of the rate at which the burst was delivered and acked.
SHARES = ["lateness-10", "lateness-90"]
# With one message in a request: a measure, and the number of connections.
SINGLES = ["push-1", "push-32", "drain-1", "drain-32"]
ALL = BATCHES + SHARES + SINGLES
ONCE = ["idle", "memory", *SHARES]  # in the first round only
PEERS = {
    "dwell-http": ALL,
    "dwell-library": ALL,
    "dwell-sqs": ALL,
    "dwell-rust": ALL,
    "dwell-go": ALL,
    "bullmq": ALL,
    "rsmq": ALL,
    # Its workers take tasks one by one in any measure.
    "celery": BATCHES + SHARES + ["push-1", "push-32"],
    "asynq": ALL,
    # Idle counts the commands of Redis, which it does not use.
    "nats": ["push", "drain", "lateness", "burst", "memory", *SHARES, *SINGLES],
    "beanstalkd-memory": ["push", "drain", "lateness", "burst", *SHARES, *SINGLES],
    "beanstalkd-f50": ["push", "drain", *SINGLES],
    "beanstalkd-f0": ["push", "drain", *SINGLES],
    "rabbitmq-transient": ["push", "drain", "lateness", "burst", *SHARES, *SINGLES],
    "rabbitmq-persistent": ["push", "drain", *SINGLES],
}

# What is slow gets fewer messages, by this factor in each of its measures, for a run that ends: who syncs every one of
# them to disk, and who spends a good part of a millisecond of processor time on each.
SLOW = {"beanstalkd-f0": 10, "celery": 10}

ROUNDS = int(os.environ.get("ROUNDS", 3))
MESSAGES = int(os.environ.get("MESSAGES", 50_000))
SINGLE = int(os.environ.get("SINGLE", 10_000))  # messages, one in a request
BURST = int(os.environ.get("BURST", 50_000))
RATE = int(os.environ.get("RATE", 2_000))  # messages a second, for lateness
SPAN_S = int(os.environ.get("SPAN_S", 5))  # of due times, for lateness
SHARE_SPAN_S = 3  # likewise, at a share of a peer's limit
IDLE_S = int(os.environ.get("IDLE_S", 10))
MEMORY = int(os.environ.get("MEMORY", 50_000))  # pending messages, for memory
SETTLE_S = 3  # before memory is read: buffers of connections go
TIMEOUT_S = 300
INSTALL = os.environ.get("INSTALL") != "no"  # "no": what is there is up to date


def main():
    chosen = sys.argv[1:] or list(PEERS)
    for name in chosen:
        if name not in PEERS:
            sys.exit(f"{name} is none of {', '.join(PEERS)}")
    for name in chosen if INSTALL else []:
        folder, _, mode = name.partition("-")
        subprocess.run([HERE / folder / "peer.sh", "install", mode], check=True, stdout=sys.stderr)
    # Told to end, it ends what it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    scratch = Path(tempfile.mkdtemp(prefix="dwell-peers-"))
    redis = Redis(scratch)
    try:
        reports = {name: begin(name) for name in chosen}
        for round_number in range(1, ROUNDS + 1):
            for measure in ALL:
                for name in chosen:
                    if measure in PEERS[name] and (measure not in ONCE or round_number == 1):
                        run = measure_one(name, measure, reports[name], redis, scratch)
                        run = {"round": round_number, "measure": measure, **run}
                        print(name, json.dumps(run), flush=True)
                        reports[name]["runs"].append(run)
                        write(name, reports[name])
    finally:
        redis.stop()
        shutil.rmtree(scratch, ignore_errors=True)


def begin(name):
    folder, _, mode = name.partition("-")
    about = subprocess.run([HERE / folder / "peer.sh", "about", mode], check=True, capture_output=True, text=True)
    version, setup = about.stdout.strip().split("\n")[:2]
    return {
        "peer": name,
        "version": version,
        "setup": setup,
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": machine(),
        "redis": subprocess.run(["redis-server", "--version"], capture_output=True, text=True).stdout.split()[2][2:],
        "counts": {
            "messages": MESSAGES,
            "single": SINGLE,
            "burst": BURST,
            "rate": RATE,
            "span_s": SPAN_S,
            "memory": MEMORY,
            "payload_bytes": 100,
        },
        "runs": [],
    }


def machine():
    cpu = [line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")]
    memory = int(open("/proc/meminfo").readline().split()[1]) // 1_048_576
    return f"{os.cpu_count()} x {cpu[0] if cpu else platform.machine()}, {memory} GiB, Linux {platform.release()}"


def measure_one(name, measure, report, redis, scratch):
    if measure in SHARES and limit(name, report) is None:
        return {"failed": "no burst, so no limit to take a share of"}
    folder, _, mode = name.partition("-")
    redis.call("flushall")
    data = Path(tempfile.mkdtemp(dir=scratch))
    load = round(os.getloadavg()[0], 1)
    # What a push leaves behind is what memory is of.
    what, _, variant = ("push" if measure == "memory" else measure).partition("-")
    command = [str(HERE / folder / "peer.sh"), "run", mode, what]
    environment = tell(name, measure, report, redis, data)
    used = redis.info("memory", "used_memory")
    # A session of its own, so that what the script started ends with it.
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        if measure == "idle":
            result = idle(process, redis)
        else:
            lines = process.communicate(timeout=TIMEOUT_S)[0].strip().split("\n")
            result = json.loads(lines[-1]) if process.returncode == 0 else {"failed": f"exit code {process.returncode}"}
            if measure == "memory" and "failed" not in result:
                result = memory(redis, used, data, int(environment["COUNT"]))
    except (subprocess.TimeoutExpired, ValueError) as error:
        result = {"failed": f"{type(error).__name__}: {error}"[:200]}
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # It has ended.
        process.wait()
        shutil.rmtree(data, ignore_errors=True)
    if variant:
        # A figure of a variant of a measure has a name that no other has.
        for unit in ("per_s", "ms"):
            if f"{what}_{unit}" in result:
                result[f"{what}_{variant}_{unit}"] = result.pop(f"{what}_{unit}")
    if measure in SHARES:
        result |= {"rate": int(environment["RATE"]), "count": int(environment["COUNT"])}
    return {"load_before": load, **result}


def tell(name, measure, report, redis, data):
    """What a peer is told: where Redis and its own scratch directory are, how much, and when."""
    many = {"burst": BURST, "lateness": RATE * SPAN_S, "memory": MEMORY, **dict.fromkeys(SINGLES, SINGLE)}
    count, rate = many.get(measure, MESSAGES) // SLOW.get(name, 1), RATE
    if measure in SHARES:
        rate = max(1, round(limit(name, report) * int(measure.partition("-")[2]) / 100))
        count = rate * SHARE_SPAN_S
    callers = measure.partition("-")[2] if measure in SINGLES else ""
    rates = [run["push_per_s"] for run in report["runs"] if "push_per_s" in run]
    # Everything is pushed before the first message is due; half as long again as it took before, since machines vary.
    lead_ms = int(3_000 + 1_500 * count / min(rates)) if rates else 10_000
    return {
        **os.environ,
        "REDIS_PORT": str(redis.port),
        "PORT": str(free_port()),
        "DATA": str(data),
        "COUNT": str(count),
        "RATE": str(rate),
        "LEAD_MS": str(lead_ms),
        **({"BATCH": "1", "CALLERS": callers} if callers else {}),
    }


def limit(name, report):
    """Messages a second that were delivered and acked of the burst; None before there was one."""
    took = [run["burst_s"] for run in report["runs"] if "burst_s" in run]
    return BURST // SLOW.get(name, 1) / statistics.median(took) if took else None


def idle(process, redis):
    """Commands a second that Redis is sent while a consumer waits and nothing is there."""
    for line in process.stdout:
        if line.strip() == "ready":
            break
    time.sleep(3)
    before, began = redis.commands(), time.monotonic()
    time.sleep(IDLE_S)
    # The question is one command itself.
    commands = redis.commands() - before - 1
    return {"idle_commands_per_s": round(commands / (time.monotonic() - began), 2)}


def memory(redis, used, data, count):
    """By how many bytes Redis, or the peer's own server, has grown for each message that is pending."""
    time.sleep(SETTLE_S)
    if (data / "server").exists():
        process, kilobytes = (data / "server").read_text().split()
        status = Path(f"/proc/{process}/status").read_text().splitlines()
        now = next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))
        grown = (now - int(kilobytes)) * 1_024
    else:
        grown = redis.info("memory", "used_memory") - used
    return {"memory_bytes_per_message": round(grown / count)}


class Redis:
    """One redis-server on loopback that keeps nothing on disk."""

    def __init__(self, scratch):
        self.port = free_port()
        self.process = subprocess.Popen(
            ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"],
            cwd=scratch,
            stdout=subprocess.DEVNULL,
        )
        until = time.monotonic() + 10
        while self.call("ping") != "PONG":
            if time.monotonic() > until:
                sys.exit("redis-server does not answer")
            time.sleep(0.05)

    def call(self, *words):
        command = ["redis-cli", "-p", str(self.port), *words]
        return subprocess.run(command, capture_output=True, text=True).stdout.strip()

    def info(self, section, name):
        lines = self.call("info", section).splitlines()
        return next(int(line.split(":")[1]) for line in lines if line.startswith(f"{name}:"))

    def commands(self):
        return self.info("stats", "total_commands_processed")

    def stop(self):
        self.process.terminate()
        self.process.wait()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def write(name, report):
    (HERE / "results").mkdir(exist_ok=True)
    (HERE / "results" / f"{name}.json").write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
