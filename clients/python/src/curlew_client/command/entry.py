"""`curlew …`: looks at the first word, and imports only what that command needs.

Commands of other distributions are entry points of the group `curlew.commands`: a callable that
takes the words behind its name and gives the exit status; its `help` is shown in the list.

Exit status: see `Exit`.
"""

import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from curlew_client.command.catalog import COMMANDS, OPTIONS, SECTIONS, WITH_VALUE

GROUP = "curlew.commands"


class Exit:
    """What the exit status says."""

    DONE = 0
    REFUSED = 1
    """The node refused, or a part of the messages failed."""
    USAGE = 2
    """The words are wrong; nothing was asked."""
    UNREACHABLE = 3
    """No node answered, in time, as a Curlew node does."""
    NOT_ALLOWED = 4
    """The key is missing, wrong, or has no right to it."""
    NOT_FOUND = 5
    """What was named does not exist."""
    INTERRUPTED = 130
    """Ctrl-C."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        status = _run(words)
        sys.stdout.flush()
    except BrokenPipeError:  # `curlew tail orders | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.DONE
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    return status


def _run(words: list[str]) -> int:
    words, options = _options_first(words)
    name = words[0] if words else "--help"
    if name in {"--help", "-h", "help"}:
        if len(words) > 1:
            return _run([words[1], *words[2:], "--help"])
        sys.stdout.write(_help())
        return Exit.DONE if words else Exit.USAGE
    if name in {"--version", "-V"}:
        sys.stdout.write(f"{_versions()}\n")
        return Exit.DONE
    if name in COMMANDS:
        return _run_ours(name, [*words[1:], *options])
    others = _others()
    if name in others:
        found: Callable[[Sequence[str]], int] = others[name].load()
        return found([*words[1:], *options])
    sys.stderr.write(f"curlew: {_unknown(name, list(others))}\n")
    return Exit.USAGE


def _options_first(words: list[str]) -> tuple[list[str], list[str]]:
    """The words from the command on, and the options that stand before it."""
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


def _run_ours(name: str, words: list[str]) -> int:
    try:
        running = import_module("curlew_client.command.running")
        return int(running.run(running.app_of(name), words))
    except ModuleNotFoundError as error:
        if error.name not in {"cyclopts", "rich"}:
            raise  # a command imports these before it asks for anything
        sys.stderr.write(
            f"curlew: this command needs the library {error.name}; install curlew-client[cli]\n"
        )
        return Exit.USAGE


def _others() -> dict[str, Any]:
    """The commands of other distributions, not loaded."""
    from importlib.metadata import entry_points

    return {each.name: each for each in entry_points(group=GROUP) if each.name not in COMMANDS}


def _versions() -> str:
    if found := _version_by_folder("curlew"):
        return f"curlew {found}"
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"curlew {version('curlew')}"
    except PackageNotFoundError:
        return f"curlew-client {version('curlew-client')}"


def _version_by_folder(name: str) -> str | None:
    """The version in the name of a distribution's folder; None: there is none. Importing
    `importlib.metadata`, which knows more places, takes most of the time of a start."""
    start, end = f"{name}-", ".dist-info"
    for directory in sys.path:
        try:
            inside = os.listdir(directory or ".")  # noqa: PTH208  # pathlib is slow to import
        except OSError:
            continue
        for each in inside:
            if each.startswith(start) and each.endswith(end):
                return each[len(start) : -len(end)]
    return None


OF_THE_SERVER = frozenset(
    {
        *("audit", "dev", "init", "key", "migrate", "openapi", "release-store", "secret-key"),
        *("remove-node", "reset-replica", "security", "serve", "settings", "store"),
    }
)


OF_OTHERS = {
    **dict.fromkeys(("produce", "producer", "publish", "pub", "put"), "send"),
    **dict.fromkeys(("consume", "consumer", "subscribe", "sub", "poll", "ack"), "receive"),
    **dict.fromkeys(("queue", "topics", "mqadmin"), "topic"),
    **dict.fromkeys(("groups", "consumer-groups"), "group"),
    **dict.fromkeys(("broker", "health", "status"), "node"),
    **dict.fromkeys(("query", "search", "find"), "browse"),
    **dict.fromkeys(("acl", "acls"), "policy"),
    **dict.fromkeys(("user", "users"), "principal"),
    **dict.fromkeys(("transaction", "transactions"), "tx"),
}
"""Words of RocketMQ, SQS and Kafka for commands of ours."""


def _unknown(name: str, others: list[str]) -> str:
    if name in OF_THE_SERVER:
        return f"`curlew {name}` is a command of the server, which is not installed here"
    from difflib import get_close_matches

    if name in OF_OTHERS:
        return f"there is no command {name!r}; did you mean `curlew {OF_OTHERS[name]}`?"
    near = get_close_matches(name, [*COMMANDS, *others], 1, 0.5)
    hint = f"did you mean `curlew {near[0]}`?" if near else "`curlew --help` lists all"
    return f"there is no command {name!r}; {hint}"


def _help() -> str:
    lines = ["Usage: curlew COMMAND …       `curlew COMMAND --help` says more about one", ""]
    for title, commands in SECTIONS.items():
        lines += [f"{title}:", *(f"  {name:<15}{found[2]}" for name, found in commands.items()), ""]
    if others := _others():
        texts = {name: str(getattr(found.load(), "help", "")) for name, found in others.items()}
        lines += ["A node on this machine:"]
        lines += [*(f"  {name:<15}{text}" for name, text in sorted(texts.items())), ""]
    lines += ["Of every command but those of a node on this machine:"]
    lines += [f"  {text:<18}{meaning}" for text, meaning in OPTIONS]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
