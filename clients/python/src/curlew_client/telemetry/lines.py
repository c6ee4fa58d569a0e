"""Lines of a log about sends and handlers, with their facts as fields of the record.

from curlew_client.telemetry.lines import LogHook

with Client(hooks=[LogHook()]) as curlew: ...

What succeeds is of level DEBUG, what fails of level WARNING. The fields are `curlew_topic`,
`curlew_group`, `curlew_count`, `curlew_message_id` and `curlew_ms`; bodies and keys are not in it.
"""

import logging
from time import monotonic

from curlew_client.hooks import Handling, Hook, Sending


class LogHook(Hook):
    """Writes a line for each send and each call of a handler. Any number of clients share it."""

    def __init__(self, logger: logging.Logger | None = None) -> None:
        """`logger`: where to; else the one named `curlew_client.calls`."""
        self._logger = logger or logging.getLogger("curlew_client.calls")

    def before_send(self, sending: Sending) -> None:
        """Look at the clock."""
        sending.notes[self] = monotonic()

    def after_send(self, sending: Sending) -> None:
        """Say what came of it."""
        results = sending.results
        message_id = results[0].message_id if results is not None and len(results) == 1 else None
        fields = {
            "curlew_topic": sending.topic,
            "curlew_count": len(sending.messages),
            "curlew_message_id": message_id,
        }
        self._say(f"send to {sending.topic}", sending.notes[self], fields, sending.error)

    def before_handle(self, handling: Handling) -> None:
        """Look at the clock."""
        handling.notes[self] = monotonic()

    def after_handle(self, handling: Handling) -> None:
        """Say what came of it."""
        messages = handling.messages
        topic = messages[0].topic
        fields = {
            "curlew_topic": topic,
            "curlew_group": handling.group,
            "curlew_count": len(messages),
            "curlew_message_id": messages[0].message_id if len(messages) == 1 else None,
        }
        what = f"handler of {topic} for {handling.group}"
        self._say(what, handling.notes[self], fields, handling.error)

    def _say(
        self, what: str, began_s: float, fields: dict[str, object], error: BaseException | None
    ) -> None:
        level = logging.DEBUG if error is None else logging.WARNING
        if not self._logger.isEnabledFor(level):
            return
        took_ms = (monotonic() - began_s) * 1_000
        fields["curlew_ms"] = round(took_ms, 3)
        outcome = "done" if error is None else f"failed: {type(error).__name__}: {error}"
        self._logger.log(level, "%s: %s in %.1f ms", what, outcome, took_ms, extra=fields)
