"""The first half of a transaction: what `MQ-Transaction` says, and the answer to it.

MQ-Transaction: prepare; group=pg1; check-after=30s; checks=when_asked
"""

from typing import Final, NamedTuple

from msgspec import UNSET

from app.api.formats.mq_headers import SendOptions
from app.api.formats.wire import PreparedAnswer
from app.api.http.errors import UnsupportedFeature, did_you_mean
from app.api.naming.request_namespace import stored
from app.broker.transactions.transaction_table import Transaction
from app.domain.access.actions import Action, Kind
from app.domain.access.standing import Standing
from app.domain.durations import parse_duration_ms
from app.domain.errors import InvalidRequest

_HINT: Final = "write MQ-Transaction: prepare; group=pg1; check-after=30s"
_KNOWN: Final = ("group", "check-after", "checks")
_CHECKS: Final = ("when_due", "when_asked")


class Preparation(NamedTuple):
    """Who decides about the message, and when to ask first (None: the default)."""

    producer_group: str
    check_after_ms: int | None
    counts_when_asked: bool = False
    """A check counts only when somebody fetched it."""


def preparation_of(options: SendOptions, standing: Standing) -> Preparation | None:
    """What the options say about a transaction; None when there is none. Its producer group is
    asked for the decision, and is handed the message then: the caller needs PUB on it."""
    if options.transaction is None:
        if options.producer_group is not None:
            raise InvalidRequest(
                "MQ-Producer-Group is for transactions, and this send is none", hint=_HINT
            )
        return None
    verb, *parameters = [part.strip() for part in options.transaction.split(";")]
    if verb != "prepare":
        raise InvalidRequest(f"a transaction is begun with 'prepare', not {verb!r}", hint=_HINT)
    given: dict[str, str] = {}
    for parameter in parameters:
        name, separator, text = parameter.partition("=")
        name = name.strip()
        if name not in _KNOWN or not separator or name in given:
            raise InvalidRequest(
                f"MQ-Transaction cannot be read at {parameter!r}",
                hint=did_you_mean(name, _KNOWN) or _HINT,
            )
        given[name] = text.strip()
    group = given.get("group", options.producer_group)
    if not group or options.producer_group not in (None, group):
        raise InvalidRequest(
            "a transaction has one producer group, which is asked when no decision comes",
            hint=_HINT,
        )
    checks = given.get("checks", _CHECKS[0])
    if checks not in _CHECKS:
        raise InvalidRequest(
            f"checks is {checks!r}; it must be one of {', '.join(_CHECKS)}", hint=_HINT
        )
    check_after_ms = _check_after_ms(given.get("check-after"))
    group = stored("producer group", group)
    standing.require(Action.PUB, Kind.PRODUCER, group)
    return Preparation(group, check_after_ms, checks == "when_asked")


def _check_after_ms(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return parse_duration_ms(text)
    except ValueError as error:
        raise InvalidRequest(f"check-after: {error}", hint=_HINT) from error


def refuse_with_transaction(options: SendOptions, *, is_claimed: bool, is_later: bool) -> None:
    """Refuse what does not go with a transaction; RocketMQ drops a delay silently."""
    for is_given, what in (
        (is_claimed, "a claim to be stored once"),
        (is_later, "a delay"),
        (options.timeout_s is not None, "a timeout"),
        (options.one_way is True, "one_way: its answer names it"),
    ):
        if is_given:
            raise UnsupportedFeature(
                f"a transactional message cannot have {what}",
                hint="leave out MQ-Transaction, or what does not go with it",
            )


def prepared_answer(transaction: Transaction, unique_id: str | None) -> PreparedAnswer:
    """The body of the 202."""
    return PreparedAnswer(
        "SEND_OK",
        transaction.transaction_id,
        transaction.transaction_id,
        "PREPARED",
        transaction.topic,
        transaction.prepared_ms + transaction.check_after_ms,
        UNSET if unique_id is None else unique_id,
    )
