"""Other brokers of this machine, for comparison: Redis with its HTTP front webdis, and RabbitMQ.

Each is started for one measurement in a folder of its own, on free ports of 127.0.0.1 and with
nothing of the machine's own settings, and is gone with its folder when the block ends. Nothing is
installed: `missing` names the Debian packages that are not there.
"""

import base64
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

START_SECONDS_MAX: Final = 60.0
STOP_SECONDS_MAX: Final = 20.0
REDIS_STREAM: Final = "bench"
RABBITMQ_QUEUE: Final = "bench"
_RABBITMQ: Final = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
"""Debian's own program; the one on its PATH changes the user, who could not write to our folder."""
_RABBITMQ_USER: Final = "Basic " + base64.b64encode(b"guest:guest").decode()


class PeerFailed(Exception):
    """A peer could not be measured; says why."""


def missing(*packages: str) -> list[str]:
    """Those of the packages whose programs are not on this machine."""
    programs = {
        "redis-server": shutil.which("redis-server"),
        "webdis": shutil.which("webdis"),
        "nats-server": shutil.which("nats-server"),
        "rabbitmq-server": _rabbitmq_program() and shutil.which("epmd"),
    }
    return [package for package in packages if not programs[package]]


def _rabbitmq_program() -> str | None:
    return str(_RABBITMQ) if _RABBITMQ.exists() else shutil.which("rabbitmq-server")


@contextmanager
def redis(*, append_only: bool) -> Iterator[int]:
    """Redis without snapshots: its port. In memory alone, or with a log synced every second."""
    with tempfile.TemporaryDirectory(prefix="curlew-bench-redis-") as directory:
        port = _free_port()
        command = ["redis-server", "--bind", "127.0.0.1", "--port", str(port), "--dir", directory]
        command += ["--save", "", "--appendonly", "yes" if append_only else "no"]
        command += ["--appendfsync", "everysec", "--auto-aof-rewrite-percentage", "0"]
        with _started(command, directory, port):
            yield port


@contextmanager
def nats() -> Iterator[int]:
    """NATS with JetStream, whose streams are in files that it syncs every two minutes: its port."""
    with tempfile.TemporaryDirectory(prefix="curlew-bench-nats-") as directory:
        port = _free_port()
        command = ["nats-server", "-js", "-sd", directory, "-a", "127.0.0.1", "-p", str(port)]
        with _started(command, directory, port):
            yield port


@contextmanager
def webdis(redis_port: int) -> Iterator[str]:
    """The HTTP front of a Redis: its address. One thread, since server and load share the cores."""
    with tempfile.TemporaryDirectory(prefix="curlew-bench-webdis-") as directory:
        port = _free_port()
        settings = {
            "redis_host": "127.0.0.1",
            "redis_port": redis_port,
            "http_host": "127.0.0.1",
            "http_port": port,
            "threads": 1,
            "pool_size": 4,
            "daemonize": False,
            "verbosity": 0,
            "logfile": f"{directory}/webdis.log",
        }
        file = Path(directory, "webdis.json")
        file.write_text(json.dumps(settings))
        with _started(["webdis", str(file)], directory, port):
            yield f"http://127.0.0.1:{port}"


@contextmanager
def rabbitmq() -> Iterator[tuple[str, dict[str, str]]]:
    """RabbitMQ with its management plugin and one durable queue: (address, headers to send)."""
    program = _rabbitmq_program()
    assert program
    with tempfile.TemporaryDirectory(prefix="curlew-bench-rabbitmq-") as directory:
        names, amqp, distribution, http = (_free_port() for _ in range(4))
        Path(directory, "plugins").write_text("[rabbitmq_management].\n")
        Path(directory, "rabbitmq.conf").write_text(
            f"management.tcp.ip = 127.0.0.1\nmanagement.tcp.port = {http}\n"
        )
        settings = {
            "HOME": directory,
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(names),
            "RABBITMQ_CONFIG_FILE": f"{directory}/rabbitmq.conf",
            "RABBITMQ_CONF_ENV_FILE": f"{directory}/none",
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{directory}/plugins",
            "RABBITMQ_LOG_BASE": f"{directory}/log",
            "RABBITMQ_MNESIA_BASE": f"{directory}/mnesia",
            "RABBITMQ_NODENAME": "curlew-bench@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(amqp),
            "RABBITMQ_PID_FILE": f"{directory}/pid",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        }
        # The register of Erlang's nodes would stay behind if the node itself started it.
        register = ["epmd", "-address", "127.0.0.1", "-port", str(names)]
        with (
            _started(register, directory, names, settings),
            _started([program], directory, http, settings),
        ):
            address = f"http://127.0.0.1:{http}"
            headers = {"Authorization": _RABBITMQ_USER, "Content-Type": "application/json"}
            _declare_queue(address, headers)
            yield address, headers


def _declare_queue(address: str, headers: dict[str, str]) -> None:
    """The plugin listens some time before it answers."""
    url = f"{address}/api/queues/%2F/{RABBITMQ_QUEUE}"
    request = urllib.request.Request(url, b'{"durable":true}', headers, method="PUT")
    deadline = time.monotonic() + START_SECONDS_MAX
    while True:
        try:
            urllib.request.urlopen(request, timeout=10).close()
        except OSError as error:
            if time.monotonic() > deadline:
                raise PeerFailed(f"RabbitMQ declared no queue: {error}") from error
            time.sleep(0.1)
        else:
            return


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def _started(
    command: Sequence[str], directory: str, port: int, settings: dict[str, str] | None = None
) -> Iterator[None]:
    """Run a server in `directory` until the block ends, and wait until it listens."""
    output = Path(directory, f"{Path(command[0]).name}.output")
    with output.open("wb") as file:
        process = subprocess.Popen(
            command,
            cwd=directory,
            env={**os.environ, **(settings or {})},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        _wait_until_listening(process, port, output)
        yield
    finally:
        # Its data goes with its folder, so there is nothing to wait for; a group, since
        # RabbitMQ is a script around its node.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(STOP_SECONDS_MAX)


def _wait_until_listening(process: "subprocess.Popen[bytes]", port: int, output: Path) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    said = output.read_text(errors="replace").strip().splitlines()[-1:]
    raise PeerFailed(f"{output.stem} did not start: {' '.join(said)}")
