"""Load: wrk for single requests, and a generator of ours for batches and two-step exchanges.

Ours speaks HTTP/1.1 over blocking sockets with requests that are built once, in processes of its
own, so that it costs little beside the server; both share the machine's cores.
"""

import multiprocessing
import re
import shutil
import socket
import ssl
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

RECEIVE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Rate:
    """Outcome of one run."""

    per_second: float
    p50_ms: float = 0.0
    p99_ms: float = 0.0


def wrk(
    url: str,
    body: bytes,
    connections: int,
    seconds: float,
    *,
    method: str = "POST",
    headers: Mapping[str, str] | None = None,
) -> Rate:
    """Send `body` again and again with wrk, one thread."""
    program = shutil.which("wrk")
    if program is None:
        raise SystemExit("make bench needs wrk: apt-get install wrk")
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(f'wrk.method = "{method}"\nwrk.body = "{_lua(body)}"\n')
        for name, value in (headers or {}).items():
            script.write(f'wrk.headers["{_lua(name.encode())}"] = "{_lua(value.encode())}"\n')
        script.flush()
        output = subprocess.run(
            [
                *(program, "-t1", f"-c{connections}", f"-d{seconds:g}s"),
                *("--latency", "-s", script.name, url),
            ],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    if "Non-2xx" in output:
        raise RuntimeError(output)
    rate = re.search(r"Requests/sec: +([\d.]+)", output)
    assert rate, output
    return Rate(float(rate[1]), _percentile(output, 50), _percentile(output, 99))


def _lua(text: bytes) -> str:
    """The inside of a string in Lua, which wrk's script is in."""
    return "".join(f"\\{byte:03}" for byte in text)


def _percentile(output: str, percent: int) -> float:
    found = re.search(rf"{percent}% +([\d.]+)(us|ms|s)", output)
    assert found, output
    return float(found[1]) * {"us": 0.001, "ms": 1.0, "s": 1000.0}[found[2]]


class Connection:
    """One keep-alive connection."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname
        assert parts.port
        self.host = f"{parts.hostname}:{parts.port}"
        self._socket = socket.create_connection((parts.hostname, parts.port), timeout=30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if parts.scheme == "https":
            anybody = ssl._create_unverified_context()  # a node of our own
            self._socket = anybody.wrap_socket(self._socket)

    def build(self, method: str, path: str, body: bytes = b"", *headers: str) -> bytes:
        """A whole request."""
        lines = [f"{method} {path} HTTP/1.1", f"Host: {self.host}", f"Content-Length: {len(body)}"]
        return "\r\n".join([*lines, *headers, "", ""]).encode() + body

    def send(self, request: bytes) -> None:
        """Send a request and leave its answer for later."""
        self._socket.sendall(request)

    def exchange(self, request: bytes) -> tuple[int, bytes, bytes]:
        """Send a request: (status, header block, body)."""
        self.send(request)
        return self.answer()

    def answer(self) -> tuple[int, bytes, bytes]:
        """The answer to the request that was sent."""
        data = bytearray()
        while (end := data.find(b"\r\n\r\n")) < 0:
            data += self._receive()
        head = bytes(data[:end])
        length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
        wanted = end + 4 + (int(length[1]) if length else 0)
        while len(data) < wanted:
            data += self._receive()
        return int(head[9:12]), head, bytes(data[end + 4 : wanted])

    def _receive(self) -> bytes:
        data = self._socket.recv(RECEIVE_BYTES)
        if not data:
            raise ConnectionError("the server closed the connection")
        return data

    def fileno(self) -> int:
        """For selectors."""
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()


Work = Callable[[str, int], Iterator[int]]
"""(address, number of the process) → an iterator that does one exchange a step and yields how many
messages it moved; its first step only prepares."""


def generate(work: Work, url: str, processes: int, seconds: float) -> Rate:
    """Messages per second that `processes` of `work` move in `seconds`."""
    context = multiprocessing.get_context("fork")
    results: multiprocessing.SimpleQueue[float] = context.SimpleQueue()
    children = [
        context.Process(target=_drive, args=(work, url, number, seconds, results))
        for number in range(processes)
    ]
    for child in children:
        child.start()
    for child in children:
        child.join()
        if child.exitcode:
            raise RuntimeError("the load generator failed; see above")
    return Rate(sum(results.get() for _ in children))


def _drive(
    work: Work, url: str, number: int, seconds: float, results: "multiprocessing.SimpleQueue[float]"
) -> None:
    steps = work(url, number)
    next(steps)
    start = time.perf_counter()
    moved = 0
    while (elapsed := time.perf_counter() - start) < seconds:
        count = next(steps, None)
        if count is None:
            break
        moved += count
    results.put(moved / max(elapsed, 1e-9))
