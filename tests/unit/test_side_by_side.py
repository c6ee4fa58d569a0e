"""What is handed out together, and from which end. The tests' files are read, not run."""

import ast
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support import side_by_side
from tests.support.nodes.node import ROOT
from tests.support.side_by_side import (
    APART,
    LONGEST_FIRST,
    OF_THE_SPARK_SESSION,
    WHY_MAX,
    failure_line,
    unit_of,
)

MODULES = sorted((ROOT / side_by_side.SPARK).glob("test_*.py"))


def functions(text: str) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def asks_for_the_session(text: str) -> bool:
    return any(argument.arg == "spark" for each in functions(text) for argument in each.args.args)


def shares_a_fixture(text: str) -> bool:
    """Whether one is made that lives longer than a test."""
    decorators = [ast.unparse(each) for made in functions(text) for each in made.decorator_list]
    return any("fixture" in each and "scope=" in each for each in decorators)


@pytest.mark.parametrize("name", [*LONGEST_FIRST, *APART])
def test_what_is_named_exists(name: str) -> None:
    assert (ROOT / name).is_file()


def test_all_who_use_the_spark_session_are_named() -> None:
    found = [path for path in MODULES if asks_for_the_session(path.read_text())]
    assert tuple(str(path.relative_to(ROOT)) for path in found) == OF_THE_SPARK_SESSION


@pytest.mark.parametrize("name", APART)
def test_what_is_handed_out_test_by_test_shares_no_fixture(name: str) -> None:
    assert not shares_a_fixture((ROOT / name).read_text())


def test_a_shared_fixture_would_be_noticed() -> None:
    assert shares_a_fixture('@pytest.fixture(scope="module")\ndef node():\n    pass\n')
    assert not shares_a_fixture("@pytest.fixture\ndef node():\n    pass\n")


def test_a_file_is_whole_unless_it_is_named() -> None:
    spark, other, *_ = OF_THE_SPARK_SESSION
    assert unit_of("tests/unit/test_a.py::test_b[x::y]") == "tests/unit/test_a.py"
    assert unit_of(f"{APART[0]}::test_b[1]") == f"{APART[0]}::test_b[1]"
    assert unit_of(f"{spark}::test_b") == unit_of(f"{other}::test_c")


class Process:
    """What the scheduler sees of a process of pytest."""

    def __init__(self, number: int) -> None:
        self.gateway = SimpleNamespace(id=f"gw{number}")
        self.shutting_down = False
        self.given: list[int] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        self.given += indices

    def shutdown(self) -> None:
        self.shutting_down = True


def handed_out(row: list[str], finishing: Iterator[int]) -> tuple[list[str], list[str]]:
    """What each of two processes got of `row`, when they finish tests in this order."""
    option = SimpleNamespace(loadscopereorder=True)
    config: Any = SimpleNamespace(option=option, getvalue={"tx": ["popen"] * 2}.__getitem__)
    log: Any = SimpleNamespace(loadscopesched=lambda *_: None)
    scheduler = side_by_side.pytest_xdist_make_scheduler(config, log)
    processes: Any = [Process(0), Process(1)]
    for process in processes:
        scheduler.add_node(process)
        scheduler.add_node_collection(process, row)
    scheduler.schedule()
    done = [0, 0]
    for number in finishing:
        given = processes[number].given
        if done[number] < len(given):
            scheduler.mark_test_complete(processes[number], given[done[number]])
            done[number] += 1
    assert all(process.shutting_down for process in processes)
    first, second = ([row[index] for index in process.given] for process in processes)
    return first, second


def files(*names: str) -> list[str]:
    """Their tests; each file has one more than the one before it in the alphabet."""
    return [f"tests/{name}.py::test_{n}" for name in names for n in range(ord(name) - ord("a") + 4)]


@pytest.mark.parametrize(
    ("finishing", "first", "second"),
    [
        ([0, 1] * 40, "abcd", "fe"),
        ([1] * 40 + [0] * 40, "a", "fedcb"),
        ([0] * 40 + [1] * 40, "abcde", "f"),
    ],
)
def test_two_processes_begin_at_both_ends(finishing: list[int], first: str, second: str) -> None:
    found = handed_out(files(*"abcdef"), iter(finishing))
    assert found == (files(*first), files(*second))


@pytest.mark.parametrize("is_divided", [True, False])
def test_what_takes_longest_stands_in_front_when_tests_are_divided(is_divided: bool) -> None:
    config: Any = SimpleNamespace(**({"workerinput": {}} if is_divided else {}))
    as_collected = ["tests/unit/test_a.py::test_b", *(f"{name}::test_c" for name in LONGEST_FIRST)]
    row: Any = [SimpleNamespace(nodeid=nodeid) for nodeid in as_collected]
    side_by_side.pytest_collection_modifyitems(config, row)
    in_order = [*as_collected[1:], as_collected[0]] if is_divided else as_collected
    assert [item.nodeid for item in row] == in_order


def test_a_failure_is_named_with_its_cause() -> None:
    cause = "no space left on device\n" + "more\n"
    failed = pytest.TestReport("tests/a.py::test_b", ("a", 1, "b"), {}, "failed", cause, "setup")
    assert failure_line(failed) == "FAILED at setup: tests/a.py::test_b: no space left on device"


def test_the_cause_of_an_exception_is_its_message_and_bounded() -> None:
    with pytest.raises(ValueError, match="x") as caught:
        raise ValueError("x" * (WHY_MAX + 1))
    failed = pytest.TestReport(
        "tests/a.py::test_b", ("a", 1, "b"), {}, "failed", caught.getrepr(), "call"
    )
    expected = f"ValueError: {'x' * WHY_MAX}"[:WHY_MAX]
    assert failure_line(failed) == f"FAILED at call: tests/a.py::test_b: {expected}"
