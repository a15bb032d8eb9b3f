"""The trainer waits for 60 s in recv on a TCP socket on which nothing comes, then does.

As for a label server, a parameter server or a database. A person sees the loss lines stop, no CPU,
no bytes, and then the run goes on.
"""

from __future__ import annotations

import socket
import subprocess
import sys

from knobs import STEPS, lasting
from ordinary import AFTERWARDS, make_loader, make_model, make_optimizer, train

SERVER = """
import socket, sys, time
with socket.create_server(("127.0.0.1", 0)) as server:
    print(server.getsockname()[1], flush=True)
    client, _ = server.accept()
    time.sleep(float(sys.argv[1]))
    client.sendall(b"labels")
"""


def ask_labels(port: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port)) as server:
        return server.recv(64)


def main() -> None:
    command = [sys.executable, "-c", SERVER, str(lasting(60))]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        assert server.stdout
        port = int(server.stdout.readline())
        model = make_model()
        optimizer = make_optimizer(model)
        step = train(model, optimizer, make_loader(STEPS))
        print(f"got {ask_labels(port)!r}", flush=True)
        train(model, optimizer, make_loader(AFTERWARDS), step)
    print("DONE", flush=True)


if __name__ == "__main__":
    main()
