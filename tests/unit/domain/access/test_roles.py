"""What each role may do: the table of the design, cell by cell."""

import pytest

from app.domain.access.actions import CLUSTER, Action, Kind, Target
from app.domain.access.evaluator import Evaluator, Principal
from app.domain.access.policies import Pattern, Subject, SubjectKind, read_pattern
from app.domain.access.roles import Role, policies_of

BODIES = {Action.PUB, Action.SUB}
TARGETS = {kind: Target(kind, "orders") for kind in Kind} | {Kind.CLUSTER: CLUSTER}
LETTERS = {
    "P": Action.PUB,
    "S": Action.SUB,
    "C": Action.CREATE,
    "U": Action.UPDATE,
    "D": Action.DELETE,
    "G": Action.GET,
    "L": Action.LIST,
    "A": Action.ADMIN,
}
ALLOWED = {
    Role.ADMIN: ("PSCUDGLA", "PSCUDGLA", "PSCUDGLA", "PSCUDGLA"),
    Role.OPERATOR: ("CUDGL", "CUDGL", "CUDGL", "CUDGL"),
    Role.PRODUCER: ("PG", "", "PG", ""),
    Role.CONSUMER: ("SG", "SGC", "", ""),
    Role.VIEWER: ("GL", "GL", "GL", "GL"),
}
"""Of topics, groups, producers and the cluster."""


def allowed(role: Role, target: Target, *given: str) -> set[Action]:
    names: list[Pattern] = [read_pattern(each) for each in given]
    subject = Subject(SubjectKind.PRINCIPAL, "ann")
    evaluator = Evaluator(policies_of(role, subject, names))
    return {each for each in Action if evaluator.decide(Principal("ann"), each, target).is_allowed}


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("place", range(4), ids=list(Kind))
def test_a_role_allows_what_the_table_says(role: Role, place: int) -> None:
    target = TARGETS[list(Kind)[place]]
    assert allowed(role, target) == {LETTERS[letter] for letter in ALLOWED[role][place]}


def test_only_the_administrator_is_one() -> None:
    assert {role for role in Role if Action.ADMIN in allowed(role, CLUSTER)} == {Role.ADMIN}


@pytest.mark.parametrize("role", [Role.OPERATOR, Role.VIEWER])
def test_who_runs_and_who_looks_reads_no_bodies(role: Role) -> None:
    assert all(not BODIES & allowed(role, target) for target in TARGETS.values())


def test_names_keep_a_role_to_them() -> None:
    given = "topic:orders", "topic:pay-*"
    assert allowed(Role.PRODUCER, Target(Kind.TOPIC, "orders"), *given) == {Action.PUB, Action.GET}
    assert allowed(Role.PRODUCER, Target(Kind.TOPIC, "pay-in"), *given)
    assert not allowed(Role.PRODUCER, Target(Kind.TOPIC, "orders2"), *given)
    assert not allowed(Role.PRODUCER, Target(Kind.TOPIC, "pay"), *given)


def test_a_kind_that_no_name_was_given_for_is_denied() -> None:
    assert not allowed(Role.PRODUCER, Target(Kind.PRODUCER, "of-another-team"), "topic:orders")
    assert not allowed(Role.OPERATOR, CLUSTER, "topic:orders")


def test_a_subject_gets_nothing_of_another() -> None:
    found = policies_of(Role.ADMIN, Subject(SubjectKind.PRINCIPAL, "ann"))
    asked = Evaluator(found).decide(Principal("bob"), Action.GET, CLUSTER)
    assert not asked.is_allowed
