"""`curlew context …`: servers by name. Keys go in, and never come out again."""

import sys
from pathlib import Path
from typing import Annotated

from curlew_client.command.asking import Yes, confirm
from curlew_client.command.contexts import Context, Contexts
from curlew_client.command.entry import Exit
from curlew_client.command.output import print_json, print_table, say
from curlew_client.command.parsing.declared import App, Parameter
from curlew_client.command.service import key_in
from curlew_client.command.words import NotSo
from curlew_client.options import check_namespace, key_of, node_of

app = App("context", "Servers by name, each with its address and its key.")

Json = Annotated[bool, Parameter(help="JSON in place of a table.")]


@app.command
def add(
    name: str,
    url: str,
    /,
    *,
    key_file: Path | None = None,
    key_stdin: bool = False,
    namespace: str | None = None,
    ca_file: Path | None = None,
    use: bool = False,
) -> None:
    """Keep a server under a name, or change it: `curlew context add staging https://mq.example`.

    Parameters
    ----------
    key_file
        A file with the API key, which is copied.
    key_stdin
        Read the key from stdin; a terminal asks for it.
    namespace
        Whose topics and groups its commands mean.
    ca_file
        Certificates that are trusted besides those of this machine.
    use
        Use it from now on.
    """
    if not name.isprintable() or not name.strip():
        raise NotSo(f"{name!r} is no name")
    found: Context = {"url": node_of(url).url}
    key = key_in(key_file) if key_file is not None else _asked_key() if key_stdin else None
    if key is not None and (checked := key_of(key)) is not None:
        found["key"] = checked
    if namespace:
        check_namespace(namespace)
        found["namespace"] = namespace
    if ca_file is not None:
        found["ca_file"] = str(ca_file.absolute())
    contexts = Contexts.read()
    before = contexts.contexts.get(name, {})
    if "key" in before and "key" not in found and before["url"] == found["url"]:
        found["key"] = before["key"]
    contexts.contexts[name] = found
    if use or contexts.current is None:
        contexts.current = name
    contexts.write()
    in_use = "; it is in use" if contexts.current == name else f"; `curlew context use {name}`"
    say(f"{'changed' if before else 'added'} context {name}{in_use}")


def _asked_key() -> str:
    if sys.stdin.isatty():
        from getpass import getpass

        return getpass("API key: ").strip()
    return sys.stdin.readline().strip()


@app.command
def use(name: str, /) -> None:
    """Use this server when nothing else is said."""
    contexts = Contexts.read()
    contexts.named(name)
    contexts.current = name
    contexts.write()
    say(f"context {name} is in use")


@app.command(name="list")
def list_(*, json: Json = False) -> None:
    """All servers; whether there is a key, not which."""
    contexts = Contexts.read()
    rows = [_shown(contexts, name) for name in sorted(contexts.contexts)]
    if json:
        print_json(rows)
        return
    print_table(
        ("context", "in use", "url", "key", "namespace"),
        [tuple(row.values()) for row in rows],
        empty="there are no contexts; `curlew context add NAME URL` adds one",
    )


@app.command
def remove(name: str, /, *, yes: Yes = False) -> int:
    """Forget a server and its key."""
    contexts = Contexts.read()
    contexts.named(name)
    if not confirm(f"Forget context {name} and its key?", yes=yes):
        return Exit.REFUSED
    del contexts.contexts[name]
    if contexts.current == name:
        contexts.current = None
    contexts.write()
    say(f"removed context {name}")
    return Exit.DONE


def _shown(contexts: Contexts, name: str) -> dict[str, object]:
    found = contexts.contexts[name]
    return {
        "name": name,
        "in_use": contexts.current == name,
        "url": found.get("url"),
        "has_key": bool(found.get("key")),
        "namespace": found.get("namespace", ""),
    }
