"""`curlew …`: looks at the first word, and imports only what that command needs.

Commands of other distributions are entry points of the group `curlew.commands`: a callable that
takes the words behind its name and gives the exit status; its `help` is shown in the list.

Exit status: see `Exit`.
"""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module

from curlew_client.command.catalog import COMMANDS, OPTIONS, SECTIONS, options_first

GROUP = "curlew.commands"
_FOLDER_END = ".dist-info"


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
    words, options = options_first(words)
    name = words[0] if words else "--help"
    if name in {"--help", "-h", "help"}:
        if len(words) > 1:
            return _run([words[1], *words[2:], "--help"])
        sys.stdout.write(_help())
        return Exit.DONE if words else Exit.USAGE
    if name in {"--version", "-V"}:
        sys.stdout.write(f"{_versions()}\n")
        return Exit.DONE
    if name == "--complete":
        from curlew_client.command.parsing.completing import completed

        sys.stdout.write(completed(words[1:] or [""], _texts(_others())))
        return Exit.DONE
    if name in COMMANDS:
        return _run_ours(name, [*words[1:], *options])
    others = _others()
    if name in others:
        return _loaded(others[name])([*words[1:], *options])
    sys.stderr.write(f"curlew: {_unknown(name, list(others))}\n")
    return Exit.USAGE


def _run_ours(name: str, words: list[str]) -> int:
    try:
        running = import_module("curlew_client.command.running")
        return int(running.run(running.app_of(name), words))
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "rich":
            raise  # a command imports it before it asks for anything
        sys.stderr.write("curlew: this needs the library rich; install curlew-client[cli]\n")
        return Exit.USAGE


def _others() -> dict[str, str]:
    """The commands of other distributions by name, each as `module:callable`. Read from their
    folders: importing `importlib.metadata` takes longer than most commands."""
    found: dict[str, str] = {}
    for folder in _distributions():
        try:
            with open(f"{folder}/entry_points.txt", encoding="utf-8") as file:  # noqa: PTH123
                text = file.read()
        except OSError:
            continue
        ours = text.partition(f"[{GROUP}]\n")[2].partition("\n[")[0]
        for line in ours.splitlines():
            name, equals, place = line.partition("=")
            if equals and name.strip() not in COMMANDS:
                found.setdefault(name.strip(), place.strip())
    return found


def _loaded(place: str) -> Callable[[Sequence[str]], int]:
    module, _, name = place.partition(":")
    found: Callable[[Sequence[str]], int] = getattr(import_module(module), name)
    return found


def _texts(others: dict[str, str]) -> dict[str, str]:
    """What each of them is for."""
    return {name: str(getattr(_loaded(place), "help", "")) for name, place in others.items()}


def _versions() -> str:
    """The server's, else the client's."""
    if found := _version_by_folder("curlew"):
        return f"curlew {found}"
    from curlew_client.options import VERSION

    return f"curlew-client {_version_by_folder('curlew_client') or VERSION}"


def _version_by_folder(name: str) -> str | None:
    """The version in the name of a distribution's folder; None: there is none."""
    for folder in _distributions():
        each = folder.rpartition("/")[2]
        if each.startswith(f"{name}-"):
            return each[len(name) + 1 : -len(_FOLDER_END)]
    return None


def _distributions() -> Iterator[str]:
    """The folders in which installed distributions describe themselves."""
    for directory in sys.path:
        try:
            inside = os.listdir(directory or ".")  # noqa: PTH208  # pathlib is slow to import
        except OSError:
            continue
        yield from (f"{directory or '.'}/{each}" for each in inside if each.endswith(_FOLDER_END))


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
    **dict.fromkeys(("replica", "replicas", "shard", "shards", "nodes"), "cluster status"),
    "whoami": "node whoami",
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
        lines += ["A node on this machine:"]
        lines += [*(f"  {name:<15}{text}" for name, text in sorted(_texts(others).items())), ""]
    lines += ["Of every command but those of a node on this machine:"]
    lines += [f"  {text:<18}{meaning}" for text, meaning in OPTIONS]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
