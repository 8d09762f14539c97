"""Real brokers that are killed and restarted while a client works, and a balancer in front of them."""

import os
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from counters import PATIENCE, Counters


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def until(what, condition, patience=PATIENCE):
    give_up = time.monotonic() + patience
    while not condition():
        if time.monotonic() > give_up:
            raise TimeoutError(what)
        threading.Event().wait(0.02)


class Process:
    """A server that can be killed and started again on the same address and data."""

    def __init__(self, args, is_ready, log):
        self.args, self.is_ready, self.log = args, is_ready, log
        self.child = None

    def start(self):
        with open(self.log, "ab") as log:
            env = {name: value for name, value in os.environ.items() if not name.startswith("DWELL_")}
            # What a killed broker owned is handed out by another one after this time.
            env["DWELL_LEASE_TTL"] = "2s"
            self.child = subprocess.Popen(self.args, stdout=log, stderr=log, env=env)
        until(f"{self.args[0]} is ready: see {self.log}", lambda: self.is_ready() or self.child.poll() is not None)
        if self.child.poll() is not None:
            raise RuntimeError(f"{self.args} ended: {Path(self.log).read_text()[-2000:]}")

    def end(self, number):
        if self.child and self.child.poll() is None:
            self.child.send_signal(number)
            if number == signal.SIGTERM:
                try:
                    self.child.wait(30)
                except subprocess.TimeoutExpired:
                    self.child.kill()
            self.child.wait()


def answers(address, request=b"GET /readyz HTTP/1.0\r\nHost: localhost\r\n\r\n", good=b" 200 ", context=None):
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    try:
        with socket.socket(family) as connection:
            connection.settimeout(2)
            connection.connect(address)
            if context:
                connection = context.wrap_socket(connection, server_hostname="localhost")
            with connection:
                connection.sendall(request)
                return good in connection.recv(1000)
    except OSError:
        return False


class Balancer:
    """One address for several brokers: each connection goes to the next one that accepts it."""

    def __init__(self, ports):
        self.ports, self.turn = ports, 0
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=100)
        self.server = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.connect, args=(client,), daemon=True).start()

    def connect(self, client):
        for _ in self.ports:
            self.turn += 1
            try:
                broker = socket.create_connection(("127.0.0.1", self.ports[self.turn % len(self.ports)]))
            except OSError:
                continue
            threading.Thread(target=self.copy, args=(client, broker), daemon=True).start()
            self.copy(broker, client)
            return
        client.close()

    @staticmethod
    def copy(source, target):
        try:
            while data := source.recv(65536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            for end in (source, target):
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass


class Story:
    """Real brokers, and a fault whenever the client has handled another part of the messages."""

    def __init__(self, dwell, name, messages):
        self.dwell, self.name, self.messages = dwell, name, messages
        self.directory = tempfile.mkdtemp(prefix="dwell-story-")
        self.counters, self.failures, self.faults = Counters(), [], 0
        self.brokers, self.redis, self.balancer = [], None, None
        Path(self.directory, "token").write_text("0123456789abcdef0123456789abcdef\n")
        self.token_file = os.path.join(self.directory, "token")
        self.thread = None
        # The certificate that verifies the broker.
        self.ca_file = None
        try:
            self.server = getattr(self, f"begin_{name}")()
        except BaseException:
            self.close()
            raise
        faults = getattr(self, f"fault_{name}", None)
        if faults:
            self.thread = threading.Thread(target=self.run, args=(faults,), daemon=True)
            self.thread.start()

    def run(self, fault):
        for part in range(1, 5):
            if not self.counters.wait({"handled": self.messages * part // 5}, 3600):
                return
            try:
                fault(part)
                self.faults += 1
            except Exception as error:
                self.failures.append(f"fault {part}: {error!r}")

    def broker(self, name, *flags, unix=False, tokens=False, context=None):
        port = free_port()
        address = os.path.join(self.directory, f"{name}.sock") if unix else ("127.0.0.1", port)
        listen = f"unix:{address}" if unix else f"127.0.0.1:{port}"
        args = [self.dwell, "serve", "--listen", listen, "--data-dir", os.path.join(self.directory, name), *flags]
        if tokens:
            config = os.path.join(self.directory, f"{name}.toml")
            Path(config).write_text(f'[[auth.token]]\nname = "shop"\nfile = "{self.token_file}"\nscopes = ["admin"]\n')
            args += ["--config", config]
        process = Process(args, lambda: answers(address, context=context), os.path.join(self.directory, f"{name}.log"))
        process.start()
        self.brokers.append(process)
        return (f"unix:{address}" if unix else f"http{'s' if context else ''}://127.0.0.1:{port}"), port

    def start_redis(self):
        port = free_port()
        args = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", self.directory, "--appendonly", "yes",
                "--appendfsync", "always", "--save", ""]
        ping = lambda: answers(("127.0.0.1", port), b"PING\r\n", b"+PONG")
        self.redis = Process(args, ping, os.path.join(self.directory, "redis.log"))
        self.redis.start()
        return f"redis://127.0.0.1:{port}"

    def restart(self, process, number):
        process.end(number)
        self.counters.add("down")
        process.start()

    def begin_calm(self):
        return self.broker("broker")[0]

    def begin_tls(self):
        files = [os.path.join(self.directory, name) for name in ("tls.key", "tls.crt")]
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", files[0], "-out", files[1], "-days", "2", "-subj", "/CN=localhost",
             "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"],
            check=True, capture_output=True)
        self.ca_file = files[1]
        config = os.path.join(self.directory, "tls.toml")
        Path(config).write_text(f'[tls]\nkey_file = "{files[0]}"\ncert_file = "{files[1]}"\n')
        context = ssl.create_default_context(cafile=self.ca_file)
        return self.broker("broker", "--config", config, context=context)[0]

    def begin_kills(self):
        return self.broker("broker")[0]

    def fault_kills(self, _part):
        self.restart(self.brokers[0], signal.SIGKILL)

    def begin_restarts(self):
        return self.broker("broker", unix=True, tokens=True)[0]

    def fault_restarts(self, _part):
        self.restart(self.brokers[0], signal.SIGTERM)

    def begin_outages(self):
        return self.broker("broker", "--redis", self.start_redis())[0]

    def fault_outages(self, _part):
        self.restart(self.redis, signal.SIGKILL)

    def begin_brokers(self):
        redis = self.start_redis()
        self.balancer = Balancer([self.broker(name, "--redis", redis)[1] for name in ("one", "two")])
        return self.balancer.server

    def fault_brokers(self, part):
        self.restart(self.brokers[part % 2], signal.SIGKILL)

    def end(self):
        if self.thread:
            self.thread.join(PATIENCE)
        answer = {"faults": self.faults, "failures": self.failures}
        self.close()
        return answer

    def close(self):
        self.counters.end()
        if self.balancer:
            self.balancer.listener.close()
        for process in [*self.brokers, self.redis]:
            if process:
                process.end(signal.SIGKILL)
        shutil.rmtree(self.directory, ignore_errors=True)
