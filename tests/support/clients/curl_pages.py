"""Code blocks of Markdown pages that are made of curl lines, and a shell to paste them into.

Two forms are known. A plain block with a curl in it is a script; every command must succeed. One
with `$ ` before its commands shows what they print, too:

    $ curl -i localhost:8710/v1/topics/none
    HTTP/1.1 404 Not Found
    …
    {"code":"TOPIC_NOT_FOUND", …}

The lines below a command must be found in what it printed: `…` stands for anything, white space for
any white space or none. A command with a status of 400 or more below it may fail.
`<receipt_handle>` in a command stands for the value of that member or header (`<mq-message-id>`)
printed last on the page. `localhost:8710` and `127.0.0.1:8710` are the node.
"""

import json
import re
import subprocess
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

SECONDS: Final = 30
_FENCE: Final = re.compile(
    r"^(?P<indent> *)```(?P<language>[^\n]*)\n(?P<block>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
_SHELLS: Final = frozenset({"", "sh", "bash", "shell", "console"})
_PLACEHOLDER: Final = re.compile(r"<([a-z_-]+)>")
_FAILURE_EXPECTED: Final = re.compile(r"^HTTP/1.1 [45]", re.MULTILINE)
_HEADER: Final = re.compile(r"^([A-Za-z-]+): (.*?)\r?$", re.MULTILINE)
_NODE: Final = re.compile(r"(?:localhost|127\.0\.0\.1):8710\b")
_CURL: Final = re.compile(r"\bcurl ")


@dataclass
class Command:
    """Lines to paste, and what the page says they print; None: nothing is said."""

    lines: str
    printed: str | None = None


def blocks_of(text: str) -> list[list[Command]]:
    """The commands of each curl block of a page."""
    blocks = [
        list(_commands(textwrap.dedent(each["block"])))
        for each in _FENCE.finditer(text)
        if each["language"].strip() in _SHELLS
    ]
    return [block for block in blocks if any(_CURL.search(each.lines) for each in block)]


def _commands(block: str) -> Iterator[Command]:
    if not block.startswith("$ "):
        yield Command(block)
        return
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        lines = part.split("\n")
        end = 1
        while lines[end - 1].endswith("\\"):
            end += 1
        yield Command("\n".join(lines[:end]), "\n".join(lines[end:]).strip())


def is_printed(expected: str, printed: str) -> bool:
    """Whether `printed` has `expected` in it, `…` standing for anything."""
    pieces = [
        r"\s*".join(re.escape(word) for word in piece.split()) for piece in expected.split("…")
    ]
    return re.search(r"[\s\S]*?".join(rf"\s*{piece}\s*" for piece in pieces), printed) is not None


@dataclass
class Shell:
    """Pastes commands as a reader of the page would, in one directory, at one node."""

    port: int
    directory: Path
    _seen: dict[str, str] = field(default_factory=dict)

    def paste(self, command: Command) -> str:
        """What the command printed; an `AssertionError` where it is not what the page says."""
        lines = self.at_node(self._fill(command.lines))
        may_fail = command.printed is not None and _FAILURE_EXPECTED.search(command.printed)
        options = "-sS" if may_fail else "--fail-with-body -sS"
        done = subprocess.run(
            ["/bin/bash", "-euc", _CURL.sub(f"curl {options} ", lines)],
            cwd=self.directory,
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )
        printed = done.stdout.decode(errors="replace")
        ended = {0} if "--max-time" not in lines else {0, 28}
        assert done.returncode in ended, f"{lines}\n{printed}\n{done.stderr.decode()}"
        if command.printed is not None:
            message = f"{lines}\n--- does not print\n{command.printed}\n--- but\n{printed}"
            assert is_printed(command.printed, printed), message
        self._learn(printed)
        return printed

    def at_node(self, lines: str) -> str:
        """With the address of the node in place of the page's."""
        return _NODE.sub(f"127.0.0.1:{self.port}", lines)

    def _fill(self, lines: str) -> str:
        return _PLACEHOLDER.sub(lambda found: self._seen[found[1]], lines)

    def _learn(self, printed: str) -> None:
        self._seen |= {name.lower(): value for name, value in _HEADER.findall(printed)}
        for line in printed.splitlines():
            if line.startswith(("{", "[")):
                self._seen |= dict(_texts(json.loads(line)))


def _texts(value: Any) -> Iterator[tuple[str, str]]:
    """Every text and number in a JSON value by its name."""
    if isinstance(value, dict):
        for name, each in value.items():
            if isinstance(each, str | int):
                yield name, str(each)
            yield from _texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)
