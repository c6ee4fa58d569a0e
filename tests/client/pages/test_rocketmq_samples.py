"""RocketMQ's sample programs, as the page rewrites them: each runs against a node, and prints what
the page says."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.nodes.node import run_node

PAGE = Path(__file__).parents[3] / "docs" / "rocketmq" / "python-samples.md"
TEXT = PAGE.read_text()
PROGRAMS = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", TEXT, re.DOTALL)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with run_node(tmp_path_factory.mktemp("samples") / "node") as running:
        yield running.url


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_a_program_prints_what_the_page_says(
    number: int, url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CURLEW_URL", url)
    program, printed = PROGRAMS[number]
    exec(compile(program, f"{PAGE.name}, program {number}", "exec"), {"__name__": "sample"})
    assert capsys.readouterr().out == printed


def test_every_program_says_what_it_prints() -> None:
    assert len(PROGRAMS) == TEXT.count("```python") > 10
