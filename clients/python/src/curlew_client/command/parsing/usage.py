"""What is said about a word that is not known: the nearest one, or the word of this command for one
of RocketMQ, SQS or Kafka. Pure."""

from collections.abc import Collection
from difflib import get_close_matches
from typing import Final

CLOSE: Final = 0.8
"""Less alike is another word, not a slip."""
CLOSE_COMMAND: Final = 0.5

_VERBS: Final = {
    **dict.fromkeys(("describe", "get", "info", "view"), ("show", "list")),
    **dict.fromkeys(("ls", "all", "show"), ("list",)),
    **dict.fromkeys(("add", "create", "make", "new", "put"), ("create", "put")),
    **dict.fromkeys(("rm", "remove", "del", "drop"), ("delete",)),
    **dict.fromkeys(("alter", "change", "edit", "set", "update"), ("set", "put")),
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


def unknown_command(word: str, name: str, known: Collection[str]) -> str:
    """`name`: the command that has those that are known."""
    meant = next((each for each in _VERBS.get(word, ()) if each in known), None)
    near = [meant] if meant else get_close_matches(word, known, 1, CLOSE_COMMAND)
    said = f"{name} has no command {word!r}"
    if near:
        return f"{said}; did you mean `{name} {near[0]}`?"
    return f"{said}; it has {', '.join(sorted(known))}"


def unknown_option(word: str, known: Collection[str], *, takes_settings: bool = False) -> str:
    """`known`: the options that the command has; `takes_settings`: it has words name=value, too."""
    meant = _OPTIONS.get(word)
    if meant not in known:
        near = get_close_matches(word, known, 1, CLOSE) if word.startswith("--") else []
        meant = near[0] if near else None
    said = f"there is no option {word}"
    if meant is not None:
        return f"{said}; did you mean {meant}?"
    if takes_settings and word.startswith("--"):
        setting = word[2:].replace("-", "_")
        return f"{said}; a setting is written {setting}=…"
    if word in _AS_WORDS:
        return f"{said}; it is a word without a name here, see --help"
    return f"{said}; --help lists all"
