"""A real Ray cluster on this machine, for tests: a head and further nodes, each in its own process group."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

RAY = Path(sys.executable).with_name("ray")
MEMORY = str(80_000_000)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Cluster:
    """`ray start --head` and nodes beside it; every process it started is gone after the block."""

    def __init__(self, scratch: Path) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        # Sockets have short names at most, so this cannot be pytest's own folder.
        self.scratch = scratch
        self.nodes: list[subprocess.Popen] = []
        # Nodes and drivers of this cluster share a token of its own, which goes with it.
        own = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_USAGE_STATS_ENABLED": "0"}
        self.environment = {**os.environ, "OMP_NUM_THREADS": "1", **own}

    def __enter__(self) -> Cluster:
        port = self.address.partition(":")[2]
        self._start("--head", "--port", port, "--node-ip-address", "127.0.0.1", "--include-dashboard=false",
                    "--temp-dir", str(self.scratch), cpus=1)  # fmt: skip
        return self

    def add_node(self, *, cpus: int) -> subprocess.Popen:
        return self._start("--address", self.address, "--node-ip-address", "127.0.0.1", cpus=cpus)

    def kill_node(self, node: subprocess.Popen) -> None:
        """The whole node at once, as a machine that loses its power."""
        for pid in self._members(node):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        node.wait()

    def __exit__(self, *_: object) -> None:
        for node in reversed(self.nodes):
            self.kill_node(node)

    def _start(self, *words: str, cpus: int) -> subprocess.Popen:
        command = [RAY, "start", *words, "--num-cpus", str(cpus), "--object-store-memory", MEMORY, "--block"]
        log = open(self.scratch / f"node-{len(self.nodes)}.log", "wb")  # noqa: SIM115 - the node's for as long as it lives
        node = subprocess.Popen(command, stdout=log, stderr=log, env=self.environment, start_new_session=True)
        self.nodes.append(node)
        deadline = time.monotonic() + 60
        while b"Ray runtime started" not in Path(log.name).read_bytes():
            if node.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(Path(log.name).read_text()[-2000:])
            time.sleep(0.2)
        return node

    def _members(self, node: subprocess.Popen) -> list[int]:
        """The node's process and all below it, by parent."""
        below: dict[int, list[int]] = {}
        for entry in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = entry.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            below.setdefault(int(fields[1]), []).append(int(entry.parent.name))
        found = [node.pid]
        for pid in found:
            found += below.get(pid, [])
        return found
