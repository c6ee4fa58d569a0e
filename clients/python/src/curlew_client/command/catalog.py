"""All commands by name: where each is, and what it is for. Pure, and imports nothing."""

MESSAGES = "curlew_client.command.messages"
RESOURCES = "curlew_client.command.resources"

SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Messages": {
        "send": (f"{MESSAGES}.sending", "send a message, or many from files or stdin"),
        "receive": (f"{MESSAGES}.receiving", "lease messages of a group, print and ack them"),
        "pull": (f"{MESSAGES}.pulling", "read a queue from an offset on; takes nothing away"),
    },
    "Topics and groups": {
        "topic": (f"{RESOURCES}.topics", "list, show, make, change and delete topics"),
        "group": (f"{RESOURCES}.groups", "list, show, make, change, pause and delete groups"),
        "lag": (f"{RESOURCES}.lags", "how far behind a group is; --watch looks again"),
    },
    "This command": {
        "context": (f"{RESOURCES}.named_nodes", "servers by name: add, use, list, show, remove"),
    },
}
"""Section → name → module, and one line."""

COMMANDS: dict[str, tuple[str, str]] = {
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
