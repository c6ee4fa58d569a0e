"""From words to the call of a function; and how little is loaded for it."""

import inspect
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import pytest
from curlew_client.command import output
from curlew_client.command.catalog import COMMANDS
from curlew_client.command.parsing.declared import App, Parameter
from curlew_client.command.parsing.help import help_of
from curlew_client.command.parsing.reading import call_of
from curlew_client.command.parsing.signatures import KINDS, NO, REQUIRED, Taken, signature_of
from curlew_client.command.running import app_of
from curlew_client.command.words import NotSo
from hypothesis import given
from hypothesis import strategies as st

from tests.client.command.conftest import Run


class Given(NamedTuple):
    tag: str | None = None
    key: tuple[str, ...] = ()


GIVEN = Given()

app = App("sample", "Everything that a command can take.")
nested = app.command(App("nested", "Commands below it."), name="nested")


@app.command(name="all")
def all_(
    first: str,
    second: int = 7,
    /,
    *more: float,
    then: Literal["ack", "dead-letter"] = "ack",
    file: Annotated[Path | None, Parameter(name=("--file", "-f"))] = None,
    count: Annotated[int, Parameter(name=("--count", "-n"), help="So many.")] = 1,
    queue: tuple[int, ...] = (),
    from_: str = "",
    is_on: bool = False,
    disabled: bool | None = None,
    given: Given = GIVEN,
) -> dict[str, Any]:
    """All kinds.

    More of it,
    on two lines.

    Parameters
    ----------
    second
        A number, said
        on two lines.
    queue
        A queue.
    """
    return {name: value for name, value in locals().items() if value != DEFAULTS.get(name)}


DEFAULTS = {
    "second": 7,
    "more": (),
    "then": "ack",
    "file": None,
    "count": 1,
    "queue": (),
    "from_": "",
    "is_on": False,
    "disabled": None,
    "given": GIVEN,
}


@nested.command
def one(*, group: Annotated[str, Parameter(name=("--group", "-g"))]) -> str:
    """One of them."""
    return group


def read(*words: str) -> Any:
    return call_of(app, words)()


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["a"], {}),
        (["a", "8"], {"second": 8}),
        (["a", "-8", "0.5", "-1"], {"second": -8, "more": (0.5, -1.0)}),
        (["-"], {"first": "-"}),
        (["--then", "dead-letter", "a"], {"then": "dead-letter"}),
        (["a", "--then=ACK"], {}),
        (["a", "-f", "-"], {"file": Path("-")}),
        (["a", "-f~/x"], {"file": Path("~/x")}),
        (["a", "-n5"], {"count": 5}),
        (["a", "-n", "-5"], {"count": -5}),
        (["a", "--queue", "1", "--queue=2"], {"queue": (1, 2)}),
        (["a", "--from", "x=y"], {"from_": "x=y"}),
        (["a", "--from="], {}),
        (["a", "--from=--tag"], {"from_": "--tag"}),
        (["a", "--is-on"], {"is_on": True}),
        (["a", "--disabled"], {"disabled": True}),
        (["a", "--no-disabled"], {"disabled": False}),
        (["a", "--key", "k", "--tag", "t"], {"given": Given("t", ("k",))}),
        (["--tag", "t", "--", "--help"], {"first": "--help", "given": Given("t")}),
    ],
    ids=str,
)
def test_words_are_values_and_options(words: list[str], found: dict[str, Any]) -> None:
    assert read("all", *words) == {"first": "a", **found}


def test_a_command_below_another_is_found_behind_options_of_every_command() -> None:
    assert read("nested", "one", "-g", "x") == "x"
    with pytest.raises(NotSo, match=r"there is no option --url"):
        read("--url", "http://a", "nested", "one", "-g", "x")  # found, and it has none


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("lst", "curlew sample has no command 'lst'; it has all, nested"),
        ("al", "did you mean `curlew sample all`?"),
        ("nested onne", "curlew sample nested has no command 'onne'; did you mean `curlew sample "),
        ("nested one", "--group is missing; usage: curlew sample nested one --group TEXT"),
        ("nested one x -g y", "'x' is a word too many; usage: curlew sample nested one"),
        ("all", "FIRST is missing; usage: curlew sample all FIRST [SECOND] [MORE …] [options]"),
        ("all a b", "SECOND is 'b'; it is a whole number"),
        ("all a 1_0", "SECOND is '1_0'; it is a whole number"),
        ("all a ٣", "SECOND is '٣'; it is a whole number"),
        ("all a 1 nan", "MORE is 'nan'; it is a number such as 5 or 0.5"),
        ("all a --then eat", "--then is 'eat'; it is ack or dead-letter"),
        ("all a --is-on=true", "--is-on takes no value"),
        ("all a --is-on --is-on", "--is-on is given twice"),
        ("all a --tag x --tag y", "--tag is given twice"),
        ("all a --tag", "--tag needs a value behind it"),
        ("all a --tag --is-on", "one that begins with - is written --tag=--is-on"),
        ("all a --tga x", "there is no option --tga; did you mean --tag?"),
        ("all a -x", "there is no option -x; --help lists all"),
    ],
)
def test_what_is_wrong_is_said(words: str, said: str) -> None:
    with pytest.raises(NotSo) as error:
        read(*words.split())
    assert said in str(error.value)


def test_help_is_made_of_signature_and_docstring() -> None:
    command = app.commands["all"]
    assert (
        help_of(command, "curlew sample all", 60)
        == """\
Usage: curlew sample all FIRST [SECOND] [MORE …] [options]

All kinds.

More of it, on two lines.

Arguments:
  SECOND  A number, said on two lines. [default: 7]

Options:
  --then CHOICE    [one of ack, dead-letter; default: ack]
  --file, -f FILE
  --count, -n N    So many. [default: 1]
  --queue N …      A queue.
  --from TEXT
  --is-on
  --disabled, --no-disabled
  --tag TEXT
  --key TEXT …
"""
    )


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ("--help", 0, "Usage: curlew sample COMMAND …\n\nEverything"),
        ("", 2, "Commands:\n  all     All kinds.\n  nested  Commands below it.\n"),
        ("help", 0, "Commands:\n"),
        ("nested -h", 0, "\n  one  One of them.\n"),
        ("nested one --group --help", 0, "  --group, -g TEXT  [required]\n"),
    ],
)
def test_help_is_there_for_whoever_asks(
    words: str, status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert read(*words.split()) == status
    assert said in capsys.readouterr().out


def test_help_is_as_wide_as_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.get_terminal_size", lambda: __import__("os").terminal_size((50, 9)))
    shown = help_of(app_of("topic"), "curlew topic")
    assert 40 < max(map(len, shown.splitlines())) <= 50


WHOLE = App("", "")
for _name in COMMANDS:
    WHOLE.command(app_of(_name), name=_name)


def functions(app: App, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if app.main is not None:
        yield words, app.main
    for name, found in app.commands.items():
        if isinstance(found, App):
            yield from functions(found, (*words, name))
        else:
            yield (*words, name), found


COMMANDS_AND_FUNCTIONS = list(functions(WHOLE))


def word_for(taken: Taken) -> str:
    return taken.kind[-1] if isinstance(taken.kind, tuple) else "5"


@pytest.mark.parametrize(
    ("words", "function"),
    COMMANDS_AND_FUNCTIONS,
    ids=[" ".join(words) for words, _ in COMMANDS_AND_FUNCTIONS],
)
def test_each_command_takes_each_of_its_options(
    words: tuple[str, ...], function: Callable[..., Any]
) -> None:
    signature = signature_of(function)
    needed = {option.names[0]: option for option in signature.options if option.default is REQUIRED}
    least = [*words, *(word_for(each) for each in signature.places if each.default is REQUIRED)]
    for word, option in needed.items():
        least += [word, word_for(option)]
    call_of(WHOLE, least)
    for option in signature.options:
        assert option.kind in KINDS or all(isinstance(each, str) for each in option.kind)
        for word in () if option.names[0] in needed else option.names:
            given = [word] if option.is_switch else [word, word_for(option)]
            call = call_of(WHOLE, [*least, *given])
            assert isinstance(call, partial)
            value = call.keywords[option.path[0]]
            value = getattr(value, option.path[1]) if len(option.path) == 2 else value
            assert value or word.startswith(NO)
            inspect.signature(function).bind(*call.args, **call.keywords)
    name = f"curlew {' '.join(words)}"
    assert f"Usage: {name}" in help_of(function, name)


@given(st.data())
def test_any_words_are_a_call_or_one_sentence(data: st.DataObject) -> None:
    words, function = data.draw(st.sampled_from(COMMANDS_AND_FUNCTIONS))
    names = [word for option in signature_of(function).options for word in option.names]
    known = st.sampled_from([*names, "--json"])
    values = st.sampled_from(["5", "-3", "-", "--", "", " ", "a=b", "é", "list", "-x", "--help"])
    either = st.one_of(known, values, st.text(max_size=4), st.tuples(known, values).map("=".join))
    try:
        call = call_of(WHOLE, [*words, *data.draw(st.lists(either, max_size=5))])
    except NotSo:
        return
    assert isinstance(call, partial)
    inspect.signature(call.func).bind(*call.args, **call.keywords)


SLOW_TO_IMPORT = {
    *("asyncio", "dataclasses", "email", "http", "httpx", "importlib.metadata", "inspect", "rich"),
    *("shutil", "ssl", "tempfile"),
}


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("topic list", 3),
        ("topic create orders --queues 4 --set retention=3d", 3),
        ("send orders x --tag=a -p k=v --delay 5m", 3),
        ("receive orders -g billing -n 5 --then release", 3),
        ("tail orders", 3),
        ("lag billing --json", 3),
        ("offsets snapshot list billing", 3),
        ("cluster", 3),
        ("bench orders", 3),
        ("--help", 0),
        ("topic --help", 0),
        ("send --help", 0),
        ("completion bash", 0),
        ("topik", 2),
        ("topic lst", 2),
        ("send orders x --tga a", 2),
        ("offsets show", 2),
    ],
)
def test_a_command_starts_at_once(words: str, status: int) -> None:
    code = (
        "import sys; from curlew_client.command.entry import main; status = main(sys.argv[1:]);"
        f"print(status, {SLOW_TO_IMPORT} & {{*sys.modules}}, file=sys.stderr)"
    )
    at = ["--url", "http://127.0.0.1:1"] if status == 3 else []
    given = [sys.executable, "-I", "-c", code, *words.split(), *at]
    done = subprocess.run(given, capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == f"{status} set()", done.stderr


def run_without_rich(*words: str) -> subprocess.CompletedProcess[str]:
    code = (
        "import sys; sys.modules['rich'] = None; from curlew_client.command.entry import main;"
        "sys.exit(main(sys.argv[1:]))"
    )
    given = [sys.executable, "-I", "-c", code, *words, "--url", "http://127.0.0.1:1"]
    return subprocess.run(given, capture_output=True, text=True, check=False)


def test_commands_need_no_library() -> None:
    assert run_without_rich("topic", "list").returncode == 3


def test_what_needs_a_library_says_which(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("curlew_client.command.resources.lags.is_terminal", lambda: True)
    monkeypatch.setitem(sys.modules, "rich.box", None)
    monkeypatch.setitem(sys.modules, "rich", None)
    done = run("lag", "billing", "--watch")
    assert (done.status, done.err.count("\n")) == (2, 1)
    assert "needs the library rich; install curlew-client[cli]" in done.err


def test_a_table_on_a_terminal_is_plain_without_rich(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [each for each in sys.modules if each == "rich" or each.startswith("rich.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "rich", None)
    monkeypatch.setattr(output, "is_terminal", lambda: True)
    output.print_table(("topic", "queues"), [("orders", 4)])
    assert capsys.readouterr().out == "TOPIC   QUEUES\norders       4\n"
