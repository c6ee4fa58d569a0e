"""A real PostgreSQL for tests: a fresh cluster in a temporary directory on a free local port.

Nothing is shared with a server of the machine, and nothing is left behind: the server is stopped
at the end of the session, and dies with the test process when that is killed (on Linux). A machine
without PostgreSQL fails the tests; they are never skipped.
"""

import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

import psycopg
import pytest
from psycopg import sql

from tests.support.nodes.free_ports import free_port

USER = "curlew"
PASSWORD = "kept-out-of-messages"

INSTALL = "install PostgreSQL 15 or newer (Debian: apt-get install postgresql-15)"
_START_S = 60.0
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "shared_buffers": "16MB",
    "max_connections": "60",
}


class PostgresServer:
    """A server of our own. `stop` and `start` may be repeated; port and data stay."""

    def __init__(self, directory: Path, binaries: Path, account: pwd.struct_passwd | None) -> None:
        self._directory = directory
        self._binaries = binaries
        self._account = account
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = itertools.count(1)
        self._addresses = _SETTINGS["listen_addresses"]
        self.port = free_port()

    @property
    def pid(self) -> int:
        """Of the process whose children serve the connections."""
        assert self._process is not None
        return self._process.pid

    @classmethod
    def create(cls, *addresses: str) -> Self:
        """Initialise and start a server, or fail with what to install.

        It listens at 127.0.0.1, and at `addresses`, for clients of their networks.
        """
        binaries, account = find_binaries(), _account()
        directory = Path(tempfile.mkdtemp(prefix="curlew-postgres-"))
        server = cls(directory, binaries, account)
        try:
            server._initialise()
            server._listen(addresses)
            server.start()
        except BaseException:
            server.destroy()
            raise
        return server

    def url(self, database: str, *, password: str = PASSWORD) -> str:
        return f"postgresql://{USER}:{password}@127.0.0.1:{self.port}/{database}"

    def new_database(self, template: str = "template0", encoding: str = "") -> str:
        """Create a database and return its URL. `encoding`: another than the server's, for which
        the locale is C."""
        name = f"test_{next(self._numbers)}"
        statement = sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(
            sql.Identifier(name), sql.Identifier(template)
        )
        if encoding:
            statement += sql.SQL(" ENCODING {} LOCALE 'C'").format(sql.Literal(encoding))
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(statement)
        return self.url(name)

    def start(self) -> None:
        """Start and wait until it takes connections."""
        assert self._process is None
        settings = [
            argument
            for name, value in self._settings().items()
            for argument in ("-c", f"{name}={value}")
        ]
        command = [*_dying_with_us(), self._program("postgres"), "-D", self._data, *settings]
        self._process = self._spawn(command)
        self._wait_until_ready()

    def stop(self) -> None:
        """Stop at once, closing all connections; nothing happens when it does not run."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)  # PostgreSQL's "fast shutdown"
            self._process.wait(timeout=_START_S)
            self._process = None

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """It keeps its connections and says nothing, as where its machine or disk hangs."""
        found = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        pids = [self.pid, *map(int, found)]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def keep_copy(self, name: str) -> None:
        """Of all that it holds now; it stops for it."""
        self.stop()
        self._copy(self._data, name)
        self.start()

    def bring_copy_back(self, name: str) -> None:
        """Go on, after a stop, with what it held when the copy was made."""
        self.stop()
        shutil.rmtree(self._data)
        self._copy(name, self._data)
        self.start()

    def _copy(self, source: str, target: str) -> None:
        subprocess.run(["cp", "-a", source, target], cwd=self._directory, check=True)

    def destroy(self) -> None:
        self.stop()
        shutil.rmtree(self._directory)

    def _initialise(self) -> None:
        password_file = self._directory / "password"
        password_file.write_text(PASSWORD)
        if self._account is not None:
            for path in (self._directory, password_file):
                os.chown(path, self._account.pw_uid, self._account.pw_gid)
        command = [
            *(self._program("initdb"), "-D", self._data, "-U", USER, "--no-sync"),
            *("--auth=scram-sha-256", f"--pwfile={password_file}"),
            *("--encoding=UTF8", "--locale=C"),
        ]
        if self._spawn(command).wait(timeout=_START_S):
            pytest.fail(f"initdb failed: {self.log.read_text()}")

    def _settings(self) -> dict[str, str]:
        return {**_SETTINGS, "listen_addresses": self._addresses, "port": str(self.port)}

    def _listen(self, addresses: Sequence[str]) -> None:
        self._addresses = ",".join([self._addresses, *addresses])
        with (Path(self._data) / "pg_hba.conf").open("a") as rules:
            rules.writelines(f"host all all {each}/24 scram-sha-256\n" for each in addresses)

    def _spawn(self, command: list[str]) -> subprocess.Popen[bytes]:
        """Start a program as the server's account, with its output in the log."""
        account = self._account
        with self.log.open("ab") as log:
            return subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                cwd=self._directory,
                user=account.pw_uid if account else None,
                group=account.pw_gid if account else None,
                extra_groups=[] if account else None,
            )

    def _wait_until_ready(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + _START_S
        while True:
            try:
                psycopg.connect(self.url("postgres"), connect_timeout=5).close()
            except psycopg.OperationalError:
                if self._process_ended(within_s=0.02) or time.monotonic() > deadline:
                    pytest.fail(f"PostgreSQL did not start: {self.log.read_text()}")
            else:
                return

    def _process_ended(self, within_s: float) -> bool:
        assert self._process is not None
        try:
            self._process.wait(timeout=within_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _program(self, name: str) -> str:
        return str(self._binaries / name)

    @property
    def _data(self) -> str:
        return str(self._directory / "data")

    @property
    def log(self) -> Path:
        return self._directory / "log"


def find_binaries() -> Path:
    """The directory of `initdb` and `postgres`; the newest that Debian installed, or on PATH."""
    packaged = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    versions = sorted(packaged, key=lambda path: int(path.parents[1].name))
    if versions:
        return versions[-1].parent
    found = shutil.which("initdb")
    if found is None:
        pytest.fail(f"these tests need PostgreSQL's initdb and postgres: {INSTALL}")
    return Path(found).resolve().parent


def _account() -> pwd.struct_passwd | None:
    """The account to run as: PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    pytest.fail("running as root, and there is no account 'postgres' or 'nobody' to switch to")


def _dying_with_us() -> list[str]:
    """A prefix that stops the server when this process dies without a chance to do so."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "INT"] if setpriv else []


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One server for all tests of the session; each test makes its own database in it."""
    server = PostgresServer.create()
    yield server
    server.destroy()


@pytest.fixture
def own_postgres_server() -> Iterator[PostgresServer]:
    """A server for one test, which may stop it."""
    server = PostgresServer.create()
    yield server
    server.destroy()
