"""A client that waits for a daemon which is not its child, as `docker run` or `srun` does.

`--daemon SOCKET` is the daemon: it does the work, for 90 s, and is started by somebody else. The
client (`foreign_processes.py SOCKET`) hands over the job and passes the answer on. A person sees
nothing for a minute and a half, and the client uses no CPU.
"""

from __future__ import annotations

import socket
import sys
import time

from knobs import lasting


def serve(path: str) -> None:
    """Do one job: some thinking, then the answer."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen(1)
        client, _ = server.accept()
        with client:
            client.recv(1024)
            until, n = time.monotonic() + lasting(90), 0
            while time.monotonic() < until:
                n += sum(range(10_000)) % 7
            client.sendall(b"trained elsewhere\nDONE\n")


def wait_for_daemon(path: str) -> bytes:
    with socket.socket(socket.AF_UNIX) as daemon:
        for _ in range(100):  # it may still be starting
            try:
                daemon.connect(path)
                break
            except (FileNotFoundError, ConnectionRefusedError):
                time.sleep(0.1)
        daemon.sendall(b"run --gpus all trainer\n")
        return b"".join(iter(lambda: daemon.recv(1024), b""))


def main() -> None:
    if sys.argv[1] == "--daemon":
        serve(sys.argv[2])
    else:
        sys.stdout.write(wait_for_daemon(sys.argv[1]).decode())


if __name__ == "__main__":
    main()
