"""All commands by name: where each is, and what it is for. Pure, and imports nothing of weight."""

from collections.abc import Sequence

MESSAGES = "curlew_client.command.messages"
RESOURCES = "curlew_client.command.resources"
ACCESS = "curlew_client.command.access"

SECTIONS: dict[str, dict[str, tuple[str, str, str]]] = {
    "Messages": {
        "send": (f"{MESSAGES}.sending", "app", "send a message, or many from files or stdin"),
        "receive": (
            f"{MESSAGES}.receiving",
            "app",
            "lease messages of a group, print, ack",
        ),
        "pull": (f"{MESSAGES}.pulling", "app", "read a queue from an offset on"),
        "tail": (f"{MESSAGES}.tailing", "app", "print messages as they come"),
        "browse": (f"{MESSAGES}.finding", "browse", "find messages by key, tag, text or time"),
        "message": (f"{MESSAGES}.finding", "app", "one message: show, where it is, its trace"),
        "export": (f"{MESSAGES}.moving", "app", "write a topic as JSON lines"),
        "import": (f"{MESSAGES}.moving", "importer", "send messages from JSON lines"),
        "bench": (f"{MESSAGES}.benching", "app", "how long sends take: percentiles, histogram"),
    },
    "Topics and groups": {
        "topic": (f"{RESOURCES}.topics", "app", "list, show, make, change and delete topics"),
        "group": (f"{RESOURCES}.groups", "app", "list, show, make, change, pause, delete groups"),
        "lag": (f"{RESOURCES}.lags", "app", "how far behind a group is; --watch looks again"),
        "offsets": (f"{RESOURCES}.offsets", "app", "where a group is: show, reset, copy, snapshot"),
        "dlq": (f"{RESOURCES}.dead_letters", "app", "dead letters: list, redrive, purge"),
        "delayed": (f"{RESOURCES}.waiting", "app", "messages that wait: list, move, cancel"),
        "schedule": (f"{RESOURCES}.schedules", "app", "messages that are sent by the clock"),
        "tx": (f"{RESOURCES}.transactions", "app", "transactions: list, commit, roll back"),
        "clients": (f"{RESOURCES}.nodes", "clients", "who consumes and produces"),
    },
    "Nodes": {
        "node": (f"{RESOURCES}.nodes", "app", "whether it is ready, its limits, whose key this is"),
        "cluster": (
            f"{RESOURCES}.nodes",
            "cluster",
            "nodes and shards; status is 1 when one is away",
        ),
        "hand-over": (f"{RESOURCES}.nodes", "hand_over", "have another node lead a shard"),
        "config": (f"{RESOURCES}.nodes", "config", "the settings of a node, and changing them"),
        "namespace": (f"{RESOURCES}.namespaces", "app", "namespaces: list, make, delete"),
        "principal": (f"{ACCESS}.principals", "app", "who may do what, and their API keys"),
        "policy": (f"{ACCESS}.policies", "app", "rules beside the roles; may I do this?"),
    },
    "This command": {
        "context": (f"{RESOURCES}.named_nodes", "app", "servers by name: add, use, list, remove"),
        "completion": (f"{RESOURCES}.shells", "app", "print the completion of bash, zsh or fish"),
    },
}
"""Section → name → module, its app there, and one line."""

COMMANDS: dict[str, tuple[str, str, str]] = {
    name: found for section in SECTIONS.values() for name, found in section.items()
}

OPTIONS: tuple[tuple[str, str], ...] = (
    ("--url URL", "the node; else CURLEW_URL, the context in use, http://127.0.0.1:8710"),
    ("--context NAME", "one of `curlew context list`; else CURLEW_CONTEXT, the one in use"),
    ("--key-file FILE", "a file with the API key; else CURLEW_KEY, the key of the context"),
    ("--namespace NAME", "whose topics and groups these are"),
    ("--timeout 10s", "how long to wait for an answer"),
    ("--json", "JSON in place of tables"),
)
"""What every command takes, before or behind its name."""

WITH_VALUE = frozenset(text.split()[0] for text, _ in OPTIONS if " " in text)


def options_first(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words from the command on, and the options of every command that stand before it."""
    options = []
    rest = list(words)
    while rest and rest[0].startswith("--"):
        name, is_one, _ = rest[0].partition("=")
        if name in WITH_VALUE and not is_one and len(rest) > 1:
            options += [rest.pop(0), rest.pop(0)]
        elif name in WITH_VALUE or name == "--json":
            options.append(rest.pop(0))
        else:
            break
    return rest, options
