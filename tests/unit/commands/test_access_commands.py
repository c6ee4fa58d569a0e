"""`curlew init` and `curlew key`: a key that was made is out before anything else can fail."""

from pathlib import Path

import pytest

from app.commands import access_commands
from app.commands.server_words import parser_of
from app.config import Config

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("is_in_a_file", [False, True])
async def test_a_key_that_was_made_is_out_whatever_fails_then(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    is_in_a_file: bool,
) -> None:
    config = Config(data_dir=tmp_path / "data")
    file = tmp_path / "key"

    async def run(*words: str) -> str:
        return await access_commands.run(parser_of().parse_args(words), config)

    def fails(*_: object) -> list[str]:
        raise RuntimeError("no warnings")

    assert await run("init") == ""
    assert capsys.readouterr().out.startswith("curlew_")
    monkeypatch.setattr(access_commands, "_warnings", fails)
    more = ("--key-file", str(file)) if is_in_a_file else ()
    with pytest.raises(RuntimeError, match="no warnings"):
        await run("key", "create", "ci", "--role", "producer", "--topic", "none", *more)
    said = capsys.readouterr().out
    assert (file.read_text() if is_in_a_file else said).startswith("curlew_")
    assert ("is in" in said) == is_in_a_file
