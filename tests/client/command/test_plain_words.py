"""What is understood without cyclopts is understood as cyclopts would; and most words are."""

import inspect
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, is_dataclass
from functools import cache, partial
from typing import Any, get_args

import pydantic  # noqa: F401  # where it is loaded, cyclopts has it check what it has found
import pytest
from curlew_client.command import output
from curlew_client.command.catalog import COMMANDS
from curlew_client.command.parsing import plain
from curlew_client.command.parsing.declared import App
from curlew_client.command.parsing.full import full_app
from curlew_client.command.parsing.plain import call_of
from curlew_client.command.running import app_of
from hypothesis import given
from hypothesis import strategies as st

VALUES = (
    *("orders", "5", "0", "007", "1.5", "1e3", "0x10", "-3", "1_0", "٣", "True", "no", "none"),
    *(
        "Null",
        "a=b",
        "a,b",
        "[1]",
        "{}",
        "é",
        " ",
        "",
        "-",
        "--",
        "-x",
        "-n5",
        "--no-yes",
        "--help",
    ),
    *("--json=true", "--json=", "--timeout=", "--url=http://a:1/?b=c", "ack", "ACK"),
    *("dead-letter", "allow", "list", "status", "~/x", "../x", "$HOME", "@file"),
)


@cache
def whole() -> App:
    one = App("", "")
    for name in COMMANDS:
        one.command(app_of(name), name=name)
    return one


@cache
def by_cyclopts() -> Any:
    return full_app(whole())


def functions(app: App, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if app.main is not None:
        yield words, app.main
    for name, found in app.commands.items():
        if isinstance(found, App):
            yield from functions(found, (*words, name))
        else:
            yield (*words, name), found


COMMANDS_AND_FUNCTIONS = list(functions(whole()))


def options_of(function: Callable[..., Any]) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters.values()
    named = [each for each in parameters if each.kind is each.KEYWORD_ONLY]
    return {
        word: option
        for each in named
        for word, option in plain._options_of(each.name, each.annotation)
    }


def arguments(function: Callable[..., Any], *args: Any, **named: Any) -> dict[str, Any]:
    bound = inspect.signature(function).bind(*args, **named)
    bound.apply_defaults()
    return {
        name: asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
        for name, value in bound.arguments.items()
    }


def check(words: Sequence[str]) -> bool:
    """Whether the words are plain; if they are, cyclopts has to find the same in them."""
    call = call_of(whole(), words)
    if call is None:
        return False
    assert isinstance(call, partial)
    function, bound, ignored = by_cyclopts().parse_args(
        list(words), exit_on_error=False, print_error=False
    )
    assert function.__code__ is call.func.__code__
    assert not ignored
    expected = arguments(function, *bound.args, **bound.kwargs)
    assert arguments(call.func, *call.args, **call.keywords) == expected
    assert repr(arguments(call.func, *call.args, **call.keywords)) == repr(expected)  # 1, not 1.0
    return True


def value_for(annotation: Any) -> str:
    kind, _ = plain._bare(annotation)
    if isinstance(next(iter(get_args(kind)), None), str):
        return str(get_args(kind)[-1])
    return "5"


def required(function: Callable[..., Any]) -> list[str]:
    found: list[str] = []
    for each in inspect.signature(function).parameters.values():
        if each.default is not each.empty or each.kind is each.VAR_POSITIONAL:
            continue
        if each.kind is each.KEYWORD_ONLY:
            found += [next(iter(dict(plain._options_of(each.name, each.annotation))))]
        found.append(value_for(each.annotation))
    return found


@pytest.mark.parametrize(
    ("words", "function"),
    COMMANDS_AND_FUNCTIONS,
    ids=[" ".join(words) for words, _ in COMMANDS_AND_FUNCTIONS],
)
def test_each_command_is_plain_with_each_of_its_options(
    words: tuple[str, ...], function: Callable[..., Any]
) -> None:
    least = [*words, *required(function)]
    assert check(least)
    options = options_of(function)
    given = {options[word].path for word in least if word in options}
    for word, option in options.items():
        if option.path in given:
            continue
        if option.convert is None:
            assert check([*least, word])
            continue
        kind = getattr(option.convert, "args", ((),))[0]
        value = str(kind[0]) if isinstance(kind, tuple) and kind else "5"
        assert check([*least, word, value])
        if word.startswith("--"):
            assert check([*words, f"{word}={value}", *required(function)])
        assert check([*least, word, value, word, value]) == option.is_many
        assert not check([*least, word])
        assert not check([*least, word, "-5"])
    assert not check([*least, "--nonesuch"])
    assert not check([*least, "--help"])


@given(st.data())
def test_other_words_are_as_cyclopts_has_them_or_left_to_it(data: st.DataObject) -> None:
    words, function = data.draw(st.sampled_from(COMMANDS_AND_FUNCTIONS))
    known = st.sampled_from([*options_of(function), "--json"])
    values = st.sampled_from(VALUES)
    either = st.one_of(known, values, st.text(max_size=4), st.tuples(known, values).map("=".join))
    check([*words, *data.draw(st.lists(either, max_size=5))])


@pytest.mark.parametrize(
    "words",
    [
        ("topic", "list"),
        ("topic", "create", "orders", "--queues", "4", "--set", "retention=3d"),
        ("send", "orders", "x", "--tag=a", "-p", "k=v", "--delay", "5m"),
        ("receive", "orders", "-g", "billing", "-n", "5", "--then", "release"),
        ("lag", "billing", "--json"),
        ("offsets", "snapshot", "list", "billing"),
        ("cluster",),
    ],
    ids=" ".join,
)
def test_a_plain_command_starts_without_cyclopts(words: tuple[str, ...]) -> None:
    code = (
        "import sys; from curlew_client.command.entry import main; status = main(sys.argv[1:]);"
        "print(status, not {'cyclopts', 'rich', 'httpx', 'asyncio', 'attrs'} & {*sys.modules})"
    )
    given = [sys.executable, "-I", "-c", code, *words, "--url", "http://127.0.0.1:1"]
    done = subprocess.run(given, capture_output=True, text=True, check=True)
    assert done.stdout == "3 True\n", done.stderr


def run_without(library: str, *words: str) -> subprocess.CompletedProcess[str]:
    code = (
        f"import sys; sys.modules[{library!r}] = None;"
        "from curlew_client.command.entry import main;"
        "sys.exit(main(sys.argv[1:]))"
    )
    given = [sys.executable, "-I", "-c", code, *words, "--url", "http://127.0.0.1:1"]
    return subprocess.run(given, capture_output=True, text=True, check=False)


def test_plain_words_need_no_library() -> None:
    assert run_without("cyclopts", "topic", "list").returncode == 3


def test_other_words_say_which_library_they_need() -> None:
    done = run_without("cyclopts", "topic", "lst")
    assert done.returncode == 2
    assert "needs the library cyclopts; install curlew-client[cli]" in done.stderr


def test_a_table_on_a_terminal_is_plain_without_rich(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [each for each in sys.modules if each == "rich" or each.startswith("rich.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "rich", None)
    monkeypatch.setattr(output, "is_terminal", lambda: True)
    output.print_table(("topic", "queues"), [("orders", 4)])
    assert capsys.readouterr().out == "TOPIC   QUEUES\norders       4\n"


@pytest.mark.parametrize(
    "words", [("import", "t", "[1]"), ("import", "t", '["a","b"]'), ("send", "t", "--file=[]")]
)
def test_a_path_may_begin_with_a_bracket(words: tuple[str, ...]) -> None:
    assert check(words)
