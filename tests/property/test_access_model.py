"""The evaluator against a naive one: every policy is asked, and a deny wins over every allow.

Positive controls: an evaluator in which an allow wins, one that lets a prefix reach into another
namespace, and one that forgets roles; each must differ from the naive one within the examples.
"""

from collections.abc import Callable, Sequence

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from app.domain.access.actions import CLUSTER, Action, Kind, Target
from app.domain.access.evaluator import Decision, Evaluator, Principal
from app.domain.access.policies import (
    Effect,
    Matching,
    Pattern,
    Policy,
    Subject,
    SubjectKind,
)

Decide = Callable[[Sequence[Policy], Principal, Action, Target], bool]
Case = tuple[list[Policy], Principal, Action, Target]

NAMES = ("a", "aa", "ab", "b", "a:b")
PRINCIPALS = ("ann", "bob")
ROLES = ("reader", "writer")
NAMESPACES = ("", "n")
ACTIONS = (Action.PUB, Action.SUB, Action.ADMIN)

named = st.sampled_from(NAMES)
kinds = st.sampled_from((Kind.TOPIC, Kind.GROUP, Kind.PRODUCER))
patterns = st.one_of(
    st.builds(Pattern, kinds, st.sampled_from((Matching.LITERAL, Matching.PREFIX)), named),
    st.builds(Pattern, st.sampled_from(Kind), st.just(Matching.ANY)),
)
subjects = st.one_of(
    st.builds(Subject, st.just(SubjectKind.PRINCIPAL), st.sampled_from(PRINCIPALS)),
    st.builds(Subject, st.just(SubjectKind.ROLE), st.sampled_from(ROLES)),
)
policies = st.builds(
    Policy,
    st.sampled_from("xyz"),
    subjects,
    st.sampled_from(Effect),
    st.frozensets(st.sampled_from(ACTIONS), min_size=1),
    st.lists(patterns, min_size=1, max_size=3).map(tuple),
    st.sampled_from(NAMESPACES),
)
principals = st.builds(
    Principal,
    st.sampled_from(PRINCIPALS),
    st.lists(st.sampled_from(ROLES), unique=True).map(tuple),
)
targets = st.one_of(st.builds(Target, kinds, named, st.sampled_from(NAMESPACES)), st.just(CLUSTER))
cases: st.SearchStrategy[Case] = st.tuples(
    st.lists(policies, max_size=8), principals, st.sampled_from(ACTIONS), targets
)


def is_about(policy: Policy, principal: Principal, action: Action, target: Target) -> bool:
    """Word for word, without the code under test."""
    kind, name = policy.subject
    is_subject = name == principal.name if kind == "principal" else name in principal.roles
    if not is_subject or action not in policy.actions or policy.namespace != target.namespace:
        return False
    for pattern in policy.patterns:
        if pattern.kind == target.kind and (
            pattern.matching == "any"
            or (pattern.matching == "prefix" and target.name[: len(pattern.name)] == pattern.name)
            or (pattern.matching == "literal" and target.name == pattern.name)
        ):
            return True
    return False


def naive(found: Sequence[Policy], principal: Principal, action: Action, target: Target) -> bool:
    effects = {each.effect for each in found if is_about(each, principal, action, target)}
    return effects == {Effect.ALLOW}


def ours(found: Sequence[Policy], principal: Principal, action: Action, target: Target) -> bool:
    return Evaluator(found).decide(principal, action, target).is_allowed


def allow_wins(
    found: Sequence[Policy], principal: Principal, action: Action, target: Target
) -> bool:
    allowing = [each for each in found if each.effect is Effect.ALLOW]
    return ours(allowing, principal, action, target)


def crosses_namespaces(
    found: Sequence[Policy], principal: Principal, action: Action, target: Target
) -> bool:
    everywhere = [each._replace(namespace=target.namespace) for each in found]
    return ours(everywhere, principal, action, target)


def forgets_roles(
    found: Sequence[Policy], principal: Principal, action: Action, target: Target
) -> bool:
    return ours(found, principal._replace(roles=()), action, target)


def check(decide: Decide, examples: int) -> None:
    """Raise `AssertionError` for a case that `decide` decides otherwise than the naive one."""

    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
    )
    @given(cases)
    def compare(case: Case) -> None:
        assert decide(*case) is naive(*case)

    compare()


def test_it_decides_as_the_naive_one() -> None:
    check(ours, 2_000)


@pytest.mark.parametrize("broken", [allow_wins, crosses_namespaces, forgets_roles])
def test_a_broken_evaluator_is_noticed(broken: Decide) -> None:
    with pytest.raises(AssertionError):
        check(broken, 2_000)


@settings(max_examples=500, deadline=None)
@given(cases)
def test_the_policy_that_is_named_says_so(case: Case) -> None:
    found, principal, action, target = case
    decision = Evaluator(found).decide(principal, action, target)
    about = [each for each in found if is_about(each, principal, action, target)]
    if decision.policy is None:
        assert about == []
        assert decision == Decision(is_allowed=False, policy=None)
    else:
        assert decision.policy in about
        assert (decision.policy.effect is Effect.ALLOW) is decision.is_allowed
