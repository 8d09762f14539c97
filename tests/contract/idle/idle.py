"""POSTs over one connection of http.client and over the pools of urllib3 and requests, with silence before each.

Every POST has to succeed on the connection of the first one; none of the three sends a POST again by itself.
"""

import http.client
import os
import sys
import time
import urllib.parse

TARGET = urllib.parse.urlsplit(os.environ["CONTRACT_URL"])
PATH = "/v1/topics/idle/messages"
HEADERS = {"Authorization": "Bearer " + os.environ["CONTRACT_TOKEN"], "Content-Type": "text/plain"}


def standard():
    connection = http.client.HTTPConnection(TARGET.netloc)
    # Otherwise http.client would connect again after the broker had said that it closes.
    connection.connect()
    connection.auto_open = 0

    def post():
        connection.request("POST", PATH, body=b"python", headers=HEADERS)
        response = connection.getresponse()
        response.read()
        return response.status, 1

    return post


def pooled():
    import urllib3

    pool = urllib3.HTTPConnectionPool(TARGET.hostname, TARGET.port, maxsize=1, retries=False)

    def post():
        status = pool.request("POST", PATH, body=b"python", headers=HEADERS).status
        return status, pool.num_connections

    return post


def session():
    import requests

    with_pool = requests.Session()

    def post():
        status = with_pool.post(TARGET.geturl() + PATH, data=b"python", headers=HEADERS).status_code
        pools = with_pool.get_adapter(TARGET.geturl()).poolmanager.pools
        return status, sum(pools[key].num_connections for key in pools.keys())

    return post


def main():
    clients = {}
    for name, make in [("http.client", standard), ("urllib3", pooled), ("requests", session)]:
        try:
            clients[name] = make()
        except ImportError:
            print(f"python, {name}: not installed")
    failed = 0
    for pause in [0, 6, 30, 60]:
        time.sleep(pause)
        for name, post in clients.items():
            try:
                status, connections = post()
                failed += status != 201 or connections != 1
                print(f"python, {name}: after {pause} s: {status}, connections: {connections}", flush=True)
            except Exception as error:
                failed += 1
                print(f"python, {name}: after {pause} s: {error!r}", flush=True)
    sys.exit(failed > 0)


main()
