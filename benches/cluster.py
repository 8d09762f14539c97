#!/usr/bin/env python3
"""How the cost of a message grows with the primaries of a Redis Cluster: benches/cluster.py [MESSAGES]

Starts clusters of 1, 2 and 3 primaries and a broker, all on loopback, and gives MESSAGES messages of 100 bytes (100,000) a life:
pushed, reserved and acked over HTTP in batches of 100. All of them share the processors of one machine, so it reports the
processor time of each process for a message, and not how fast they are. Needs redis-server, and `cargo build --release`.
"""

import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

PROGRAM = os.environ.get("DWELL_BIN", "target/release/dwell")
MESSAGES = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
BATCH, LANES, PARTITIONS, SLOTS = 100, 8, 24, 16_384
TICK = os.sysconf("SC_CLK_TCK")


def main():
    print("| primaries | messages/s | broker, µs/message | all of Redis, µs/message | each primary, µs/message |")
    print("|---|---|---|---|---|")
    for primaries in (1, 2, 3):
        directory = tempfile.mkdtemp(prefix="dwell-cluster-")
        processes = []
        try:
            measure(primaries, directory, processes)
        finally:
            for process in reversed(processes):
                process.terminate()
                process.wait()
            shutil.rmtree(directory)


def measure(primaries, directory, processes):
    ports = [free_port() for _ in range(primaries)]
    for port in ports:
        path = os.path.join(directory, str(port))
        os.mkdir(path)
        processes.append(subprocess.Popen(
            ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--cluster-enabled", "yes", "--save", "",
             "--dir", path, "--logfile", "redis.log", "--cluster-announce-ip", "127.0.0.1"]))
    for at, port in enumerate(ports):
        eventually(lambda: redis(port, "PING") == "+PONG")
        redis(port, "CLUSTER", "ADDSLOTSRANGE", str(SLOTS * at // primaries), str(SLOTS * (at + 1) // primaries - 1))
        redis(port, "CLUSTER", "SET-CONFIG-EPOCH", str(at + 1))
        redis(port, "CLUSTER", "MEET", "127.0.0.1", str(ports[0]))
    for port in ports:
        eventually(lambda: "cluster_state:ok" in redis(port, "CLUSTER", "INFO"))
        eventually(lambda: f"cluster_known_nodes:{primaries}\r" in redis(port, "CLUSTER", "INFO"))
    http_port = free_port()
    environment = {
        "PATH": os.environ["PATH"], "DWELL_DATA_DIR": os.path.join(directory, "dwell"), "DWELL_LOG_LEVEL": "error",
        "DWELL_LISTEN": f"127.0.0.1:{http_port}",
        "DWELL_REDIS_URL": "redis+cluster://" + ",".join(f"127.0.0.1:{port}" for port in ports)}
    os.mkdir(environment["DWELL_DATA_DIR"])
    broker = subprocess.Popen([PROGRAM, "serve"], env=environment, stdout=subprocess.DEVNULL)
    processes.append(broker)
    eventually(lambda: ask(http_port, "GET", "/readyz")[0] == 200)
    assert ask(http_port, "PUT", "/v1/topics/orders", {"partitions": PARTITIONS})[0] in (200, 201)
    life(http_port, LANES * BATCH * 10)
    before = [processor_time(process.pid) for process in processes]
    began = time.monotonic()
    life(http_port, MESSAGES)
    took = time.monotonic() - began
    spent = [(processor_time(process.pid) - time_before) * 1e6 / MESSAGES
             for process, time_before in zip(processes, before)]
    *nodes, of_broker = spent
    each = ", ".join(f"{micros:.1f}" for micros in nodes)
    print(f"| {primaries} | {MESSAGES / took:,.0f} | {of_broker:.1f} | {sum(nodes):.1f} | {each} |", flush=True)


def life(port, messages):
    left = {"pushes": messages, "acks": messages}
    lock = threading.Lock()

    def take(what, count):
        with lock:
            taken = min(left[what], count)
            left[what] -= taken
            return taken

    def produce():
        connection = http.client.HTTPConnection("127.0.0.1", port)
        while count := take("pushes", BATCH):
            body = {"messages": [{"payload": "x" * 100} for _ in range(count)]}
            status, _ = ask(port, "POST", "/v1/topics/orders/messages/batch", body, connection)
            assert status in (200, 201), status

    def consume():
        connection = http.client.HTTPConnection("127.0.0.1", port)
        group = "/v1/topics/orders/groups/default"
        while left["acks"] > 0:
            _, found = ask(port, "POST", f"{group}/reserve", {"max": BATCH, "wait": "1s"}, connection)
            receipts = [delivery["receipt"] for delivery in found["deliveries"]]
            if receipts:
                status, _ = ask(port, "POST", f"{group}/ack", {"receipts": receipts}, connection)
                assert status == 200, status
                take("acks", len(receipts))

    threads = [threading.Thread(target=work) for work in [produce] * LANES + [consume] * LANES]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def ask(port, method, path, body=None, connection=None):
    connection = connection or http.client.HTTPConnection("127.0.0.1", port)
    headers = {"content-type": "application/json"} if body is not None else {}
    connection.request(method, path, json.dumps(body) if body is not None else None, headers)
    answer = connection.getresponse()
    read = answer.read()
    return answer.status, json.loads(read) if read else None


def redis(port, *words):
    with socket.create_connection(("127.0.0.1", port), 5) as connection:
        said = "".join(f"${len(word)}\r\n{word}\r\n" for word in words)
        connection.sendall(f"*{len(words)}\r\n{said}".encode())
        return connection.recv(65_536).decode().strip("\n").rstrip("\r") + ("\r" if words[0] == "CLUSTER" else "")


def processor_time(pid):
    """Seconds, of user and system."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def free_port():
    while True:
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            port = found.getsockname()[1]
        # The bus of a node listens 10,000 ports above it.
        if port < 55_000:
            return port


def eventually(is_true):
    for _ in range(200):
        try:
            if is_true():
                return
        except OSError:
            pass
        time.sleep(0.1)
    raise SystemExit("benches/cluster.py: something that was started is not ready after 20 s")


main()
