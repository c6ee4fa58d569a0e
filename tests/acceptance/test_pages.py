"""What README, docs and banner tell a user to paste, pasted: every curl block of every page."""

import json
import re
from pathlib import Path

import pytest

from tests.support.clients.curl_pages import Command, Shell, blocks_of, is_printed
from tests.support.nodes.node import ROOT, run_node

PLACES = ("*.md", "docs/**/*.md", "clients/**/*.md", "spark_connector/*.md")
PAGES = sorted(
    str(page.relative_to(ROOT))
    for place in PLACES
    for page in ROOT.glob(place)
    if blocks_of(page.read_text()) and "node_modules" not in page.parts
)
GUIDES = [page.stem for page in (ROOT / "docs/guides").glob("*.md")]


def test_the_pages_are_found() -> None:
    assert {"README.md", "docs/first-steps.md", "docs/reference/http-api.md"} <= set(PAGES)
    assert {f"docs/guides/{name}.md" for name in GUIDES} <= set(PAGES)
    assert len(blocks_of((ROOT / "README.md").read_text())) >= 4


def test_no_curl_is_left_out() -> None:
    page = "a\n```\nid=$(curl a)\n```\n1. b\n   ```sh\n   curl b\n   ```\n```json\ncurl c\n```\n"
    page += "```console\n$ echo 1\n1\n$ echo 2 | curl d\n2\n```\n```\nmake run\n```\n"
    lines = [[command.lines for command in block] for block in blocks_of(page)]
    assert lines == [["id=$(curl a)\n"], ["curl b\n"], ["echo 1", "echo 2 | curl d"]]


@pytest.mark.parametrize("page", PAGES)
def test_every_curl_line_works(page: str, tmp_path: Path) -> None:
    with run_node(tmp_path / "data") as node:
        shell = Shell(node.port, tmp_path)
        for block in blocks_of((ROOT / page).read_text()):
            for command in block:
                shell.paste(command)


def test_the_curl_lines_of_the_banner_work(tmp_path: Path) -> None:
    with run_node(tmp_path / "data") as node:
        lines = [line.strip() for line in node.banner if line.strip().startswith("curl ")]
        assert len(lines) == 3
        shell = Shell(node.port, tmp_path)
        printed = [shell.paste(Command(line)) for line in lines]
    assert "201 Created" in printed[0]
    assert json.loads(printed[1])["depth"] == 1
    assert json.loads(printed[2])["messages"][0]["text"] == '{"id":17}'


UNQUOTED = re.compile(r"curl\b[^'\"\n|]* [^'\"\s]*(?:localhost|127\.0\.0\.1):8710[^'\"\s]*[?*\[]")


@pytest.mark.parametrize("page", PAGES)
def test_addresses_are_quoted_where_a_shell_takes_them_for_a_pattern(page: str) -> None:
    """zsh ends a line with an unquoted `?` that matches no file."""
    assert UNQUOTED.findall((ROOT / page).read_text()) == []


def test_an_unquoted_address_is_noticed() -> None:
    assert UNQUOTED.search("curl -i localhost:8710/v1/topics/orders/messages?tag=a -d 'a'")
    assert UNQUOTED.search("head -c 9 x | curl localhost:8710/v1/topics/orders/messages?tag=a")
    assert not UNQUOTED.search("curl -i 'localhost:8710/v1/topics/orders/messages?tag=a' -d 'a?'")


def test_a_guide_that_shows_offsets_says_on_which_node() -> None:
    """Guides share topics, so what they print is that of an empty node."""
    assert "## A guide and an empty node\n" in (ROOT / "docs/first-steps.md").read_text()
    silent = [
        name
        for name in GUIDES
        if 'queue_offset":0' in (text := (ROOT / f"docs/guides/{name}.md").read_text())
        and "$ curl" in text
        and "../first-steps.md#a-guide-and-an-empty-node" not in text
    ]
    assert silent == []


FALSE = """
```
$ curl -i localhost:8710/v1/topics/none
HTTP/1.1 200 OK
```
"""


def test_a_page_that_is_wrong_is_noticed(tmp_path: Path) -> None:
    failing, unreachable = "curl localhost:8710/v1/topics/none", "curl localhost:1/"
    with run_node(tmp_path / "data") as node:
        shell = Shell(node.port, tmp_path)
        for page in (FALSE, f"```\n{failing}\n```", f"```\n{unreachable}\n```"):
            [[command]] = blocks_of(page)
            with pytest.raises(AssertionError):
                shell.paste(command)


@pytest.mark.parametrize(
    ("expected", "printed", "found"),
    [
        ('{"a":1,\n "b":…}', '{"a":1,"b":2}', True),
        ('{"a":1,…}', '{"a":2,"b":2}', False),
        ("HTTP/1.1 200 OK\n…\nmq-a: b", "HTTP/1.1 200 OK\r\nx: y\r\nmq-a: b\r\n", True),
        ("one\ntwo", "two\none", False),
    ],
)
def test_what_counts_as_printed(expected: str, printed: str, found: bool) -> None:
    assert is_printed(expected, printed) is found
