"""What is said about words that cannot be understood: what is missing or too much, and the word of
this command for one of RocketMQ, SQS or Kafka. Pure."""

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Final

from cyclopts import CycloptsError
from cyclopts.exceptions import (
    MissingArgumentError,
    UnknownCommandError,
    UnknownOptionError,
    UnusedCliTokensError,
)

CLOSE: Final = 0.8
"""Less alike is another word, not a slip."""

_UNKNOWN: Final = r'Unknown command "(.*?)"\.(?: Did you mean .*\?)? Available commands: (.*)\.'
_VERBS: Final = {
    **dict.fromkeys(("describe", "get", "info", "view"), ("show", "list")),
    **dict.fromkeys(("ls", "all", "show"), ("list",)),
    **dict.fromkeys(("add", "make", "new", "put"), ("create",)),
    **dict.fromkeys(("rm", "remove", "del", "drop"), ("delete",)),
    **dict.fromkeys(("alter", "change", "edit", "update"), ("set",)),
}
"""Words that may mean several of ours: the first that the command has."""
_OPTIONS: Final = {
    **dict.fromkeys(("--partitions", "--num-partitions", "--write-queue-nums"), "--queues"),
    **dict.fromkeys(("--count", "--max-messages", "--max-number-of-messages", "--num"), "--limit"),
    **dict.fromkeys(("--message-group-id", "--message-group"), "--sharding-key"),
    **dict.fromkeys(("--delay-seconds",), "--delay"),
    **dict.fromkeys(("--consumer-group", "--group-id"), "--group"),
    **dict.fromkeys(("--visibility-timeout",), "--invisible"),
    **dict.fromkeys(("--idle", "--wait-time-seconds", "--poll-timeout"), "--wait"),
    **dict.fromkeys(("--bootstrap-server", "--broker-list", "--namesrv-addr", "--server"), "--url"),
    **dict.fromkeys(("--tags",), "--tag"),
    **dict.fromkeys(("--key",), "--keys"),
    **dict.fromkeys(("--force", "-y"), "--yes"),
}
_AS_WORDS: Final = frozenset({"--topic", "--group", "--body", "--message", "--message-body"})
"""Options elsewhere that are words here."""


def usage_text(error: CycloptsError, words: Sequence[str]) -> str:
    """One sentence."""
    if isinstance(error, MissingArgumentError) and error.argument is not None:
        name = error.keyword or error.argument.name
        if error.keyword in words or name in words:
            return f"{name} needs a value behind it"
        return f"{name} is missing; --help says what belongs here"
    if isinstance(error, UnusedCliTokensError) and error.unused_tokens:
        return f"{error.unused_tokens[0]!r} is a word too many; --help says what belongs here"
    if isinstance(error, UnknownOptionError):
        return _option_text(error.token.keyword or error.token.value, _known_by(error))
    text = " ".join(str(error).split())
    if isinstance(error, UnknownCommandError):
        text = _verb_text(text)
    return text[:1].lower() + text[1:] if text else type(error).__name__


def _known_by(error: UnknownOptionError) -> list[str]:
    return [name for argument in error.argument_collection for name in argument.names]


def _option_text(word: str, known: Iterable[str]) -> str:
    """`known`: all that the command has, words by their capital names."""
    option = word.partition("=")[0]
    names = [name for name in known if name.startswith("-")]
    meant = _OPTIONS.get(option)
    if meant not in names:
        near = get_close_matches(option, names, 1, CLOSE) if option.startswith("--") else []
        meant = near[0] if near else None
    said = f"there is no option {option}"
    if meant is not None:
        return f"{said}. Did you mean {meant}?"
    if option in _AS_WORDS:
        return f"{said}; it is a word without a name here, see --help"
    return f"{said}; --help lists all"


def _verb_text(text: str) -> str:
    found = re.fullmatch(_UNKNOWN, text)
    if found is None:
        return text
    word, shown = found[1], found[2].split(", ")
    meant = next((each for each in _VERBS.get(word, ()) if each in shown), None)
    return text if meant is None else f'Unknown command "{word}". Did you mean "{meant}"?'
