"""One process of a history that uses the Python client with the key in the file `KEY_FILE` beside
its own. Roles and arguments are those of `load_worker`.

A refused key ends what uses it, and the program reads the file again; a right that is missing ends
workers, and producers try on. Any other error ends the process.
"""

from collections.abc import Callable
from time import monotonic
from typing import Any, Final

import curlew_client
from curlew_client import CurlewError, SendResult
from curlew_client.errors import Forbidden, Unauthorized
from typing_extensions import override

from tests.client.faults.load_worker import ClientWorker
from tests.history.events import Received
from tests.history.worker import STOPPING, run

KEY_FILE: Final = "key"
PAUSE_S: Final = 0.05


class KeyedWorker(ClientWorker):
    """Begins anew when its key is refused."""

    is_refused = False

    def _key(self) -> str:
        return self.file.with_name(KEY_FILE).read_text()

    @override
    def options(self) -> dict[str, Any]:
        return {**super().options(), "key": self._key()}

    @override
    def goes_on(self) -> bool:
        return super().goes_on() and not self.is_refused

    @override
    def note(self, began_s: float, sent: tuple[str, str], result: SendResult | CurlewError) -> None:
        if isinstance(result, CurlewError):
            assert type(result) in {Unauthorized, Forbidden}, repr(result)
            assert result.outcome == "not_stored", repr(result)
            self.is_refused = isinstance(result, Unauthorized)
            STOPPING.wait(self.pause_s)
        super().note(began_s, sent, result)

    @override
    def worker(self) -> curlew_client.Worker:
        return curlew_client.Worker(self.url, key=self._key(), client_id=self.name)

    @override
    def run(self, worker: curlew_client.Worker) -> None:
        """In the background, so that the signals stay with the process."""
        worker.start()
        began_s = monotonic()
        while worker.failure is None and not STOPPING.wait(PAUSE_S):
            pass
        try:
            worker.stop()
        except (Unauthorized, Forbidden):
            self.record(Received(began_s, monotonic(), "refused", self.name, 0.0, []))

    def again_and_again(self, role: Callable[[ClientWorker], None]) -> None:
        """Do it, and again with the key that is in the file then, until SIGTERM."""
        while not STOPPING.is_set():
            self.is_refused = False
            role(self)
            STOPPING.wait(PAUSE_S)


def _keyed(role: Callable[[ClientWorker], None]) -> Callable[[KeyedWorker], None]:
    return lambda worker: worker.again_and_again(role)


if __name__ == "__main__":
    run(
        KeyedWorker,
        {
            "send": _keyed(ClientWorker.send),
            "gather": _keyed(ClientWorker.gather),
            "batch": _keyed(ClientWorker.batch),
            "work": _keyed(ClientWorker.work),
            "poll": _keyed(ClientWorker.poll),
        },
    )
