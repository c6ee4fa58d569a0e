"""Servers by name, in one file of the user's: `contexts.json` in `curlew` below XDG_CONFIG_HOME or
~/.config, or what CURLEW_CONTEXTS names.

The file has API keys, so it is made for its owner alone, written beside and put in place in one
step; one that others can read is refused.
"""

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from curlew_client.command.words import NotSo

FILE_VARIABLE = "CURLEW_CONTEXTS"
NAME_VARIABLE = "CURLEW_CONTEXT"

Context = dict[str, str]
"""`url`, and what else was given: `key`, `namespace`, `ca_file`."""


class Contexts:
    """What is in the file."""

    def __init__(self, path: Path, contexts: dict[str, Context], current: str | None) -> None:
        self.path = path
        self.contexts = contexts
        self.current = current

    @classmethod
    def read(cls) -> "Contexts":
        """Those of the user; none when there is no file."""
        path = place()
        try:
            text = path.read_text("utf-8")
            mode = path.stat().st_mode
        except FileNotFoundError:
            return cls(path, {}, None)
        except (OSError, UnicodeDecodeError) as error:
            raise NotSo(f"the file of contexts {path} cannot be read: {error}") from None
        if mode & 0o077:
            raise NotSo(f"others can read {path}, and there may be keys in it: chmod 600 {path}")
        try:
            shown: dict[str, Any] = json.loads(text)
            contexts = {str(name): dict(each) for name, each in shown["contexts"].items()}
            return cls(path, contexts, shown.get("current"))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise NotSo(
                f"the file of contexts {path} is not as `curlew context add` writes it; "
                "mend it or move it away"
            ) from None

    def named(self, name: str) -> Context:
        """One of them."""
        if name in self.contexts:
            return self.contexts[name]
        from difflib import get_close_matches

        near = get_close_matches(name, self.contexts, 1)
        hint = f"did you mean {near[0]!r}?" if near else "`curlew context list` shows all"
        raise NotSo(f"there is no context {name!r}; {hint}")

    def write(self) -> None:
        """Put them into the file, whole or not at all."""
        shown = {"current": self.current, "contexts": self.contexts}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            import tempfile  # here: few commands write the file

            number, name = tempfile.mkstemp(dir=self.path.parent, prefix=".contexts-")  # 0600
            try:
                with os.fdopen(number, "w", encoding="utf-8") as file:
                    file.write(json.dumps(shown, indent=2, ensure_ascii=False) + "\n")
                    file.flush()
                    os.fsync(file.fileno())
                Path(name).replace(self.path)
            except BaseException:
                with suppress(OSError):
                    Path(name).unlink()
                raise
        except OSError as error:
            raise NotSo(f"the file of contexts {self.path} cannot be written: {error}") from None


def place() -> Path:
    """Where the file is."""
    named = os.environ.get(FILE_VARIABLE)
    if named:
        return Path(named)
    home = os.environ.get("XDG_CONFIG_HOME")
    return (Path(home) if home else Path.home() / ".config") / "curlew" / "contexts.json"
