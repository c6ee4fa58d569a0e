"""Runs a command of this package: from its words to its function; and says in one sentence what
went wrong."""

import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from curlew_client.command.catalog import COMMANDS
from curlew_client.command.entry import Exit
from curlew_client.command.parsing.declared import App
from curlew_client.command.parsing.reading import call_of
from curlew_client.command.service import close_all
from curlew_client.command.words import NotSo
from curlew_client.errors import (
    ConnectionFailed,
    CurlewError,
    NotAllowed,
    NotCurlew,
    NotFound,
    ServiceError,
    TimedOut,
    TopicNotFound,
)

_MAKES_TOPIC: Final = "make it with PUT /v1/topics/"
_HERE: Final = str(Path(__file__).parent)


def app_of(name: str) -> App:
    """The app of a command of this package, imported now."""
    module, attribute, _ = COMMANDS[name]
    found: App = getattr(import_module(module), attribute)
    return found


def run(app: App, words: list[str]) -> int:
    """Run it; the exit status. A command gives one, or None when all went well."""
    try:
        status = call_of(app, words)()
    except (NotSo, ValueError, TypeError) as error:
        if not isinstance(error, NotSo) and not _is_of_the_words(error):
            raise
        return _failed(str(error), Exit.USAGE, words, error)
    except CurlewError as error:
        return _failed(_text_of(error), status_of(error), words, error)
    finally:
        close_all()
    return status if isinstance(status, int) else Exit.DONE


def _is_of_the_words(error: BaseException) -> bool:
    """Whether the client refused an option: an error of its own modules, not of a command's."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    file = "" if trace is None else trace.tb_frame.f_code.co_filename
    return "curlew_client" in file and not file.startswith(_HERE)


def _text_of(error: CurlewError) -> str:
    text = str(error)
    if isinstance(error, TopicNotFound) and (error.hint or "").startswith(_MAKES_TOPIC):
        name = (error.hint or "").removeprefix(_MAKES_TOPIC)
        text = f"{error.detail}; `curlew topic create {name}` makes it"
    outcome = getattr(error, "outcome", None)
    if outcome == "unknown":
        return f"{text}; whether it was done is not known"
    return text


def status_of(error: CurlewError) -> int:
    """The exit status of an error."""
    if isinstance(error, NotAllowed):
        return Exit.NOT_ALLOWED
    if isinstance(error, NotFound):
        return Exit.NOT_FOUND
    if isinstance(error, ConnectionFailed | TimedOut | NotCurlew):
        return Exit.UNREACHABLE
    return Exit.REFUSED


def _failed(
    text: str, status: int, words: Sequence[str], error: BaseException | None = None
) -> int:
    notes = getattr(error, "__notes__", ())
    text = "; ".join([text, *notes])
    if "--json" in words:
        import json

        shown: dict[str, Any] = {"detail": text, "exit_status": status}
        if isinstance(error, ServiceError):
            shown |= {
                "code": error.code,
                "status": error.status,
                "hint": error.hint,
                "retryable": error.retryable,
                **error.fields,
            }
        if isinstance(error, CurlewError) and error.outcome is not None:
            shown["outcome"] = error.outcome
        sys.stderr.write(f"{json.dumps({'error': shown})}\n")
    else:
        sys.stderr.write(f"curlew: {text}\n")
    return status
