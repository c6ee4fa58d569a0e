"""The evaluator against a naive one: every policy is asked, and a deny wins over every allow.

Positive controls: an evaluator in which an allow wins, one that lets a prefix reach into another
namespace, one that forgets roles, one that lets a principal of a namespace run nodes, and one that
forgets the names that roles are kept to; each must differ from the naive one within the examples.
"""

from collections.abc import Callable, Sequence

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from app.domain.access.actions import CLUSTER, Action, Kind, Target
from app.domain.access.evaluator import Evaluator, Principal
from app.domain.access.policies import (
    EVERY_NAMESPACE,
    Effect,
    Matching,
    Pattern,
    Policy,
    Subject,
    SubjectKind,
    read_pattern,
)
from app.domain.access.roles import RIGHTS
from app.domain.access.roles import ROLES as ROLES_THERE

Decide = Callable[[Sequence[Policy], Principal, Action, Target], bool]
Case = tuple[list[Policy], Principal, Action, Target]

NAMES = ("a", "aa", "ab", "b", "a:b")
PRINCIPALS = ("ann", "bob")
ROLES = ("reader", "writer", "producer", "consumer", "admin")
"""Two that only policies know, and three that are there."""
NAMESPACES = ("", "n")
ACTIONS = (Action.PUB, Action.SUB, Action.ADMIN)

named = st.sampled_from(NAMES)
kinds = st.sampled_from((Kind.TOPIC, Kind.GROUP, Kind.PRODUCER))
patterns = st.one_of(
    st.builds(Pattern, kinds, st.sampled_from((Matching.LITERAL, Matching.PREFIX)), named),
    st.builds(Pattern, st.sampled_from(Kind), st.just(Matching.ANY), st.just("")),
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
    st.sampled_from((*NAMESPACES, EVERY_NAMESPACE)),
)
principals = st.builds(
    Principal,
    st.sampled_from(PRINCIPALS),
    st.lists(st.sampled_from(ROLES), unique=True, max_size=2).map(tuple),
    st.sampled_from(NAMESPACES),
    st.lists(patterns, max_size=2).map(tuple),
    st.sampled_from((False, False, False, True)),
)
targets = st.one_of(st.builds(Target, kinds, named, st.sampled_from(NAMESPACES)), st.just(CLUSTER))
cases: st.SearchStrategy[Case] = st.tuples(
    st.lists(policies, max_size=8), principals, st.sampled_from(ACTIONS), targets
)


def is_about(policy: Policy, principal: Principal, action: Action, target: Target) -> bool:
    """Word for word, without the code under test."""
    kind, name = policy.subject
    is_subject = name == principal.name if kind == "principal" else name in principal.roles
    if not is_subject or action not in policy.actions:
        return False
    if policy.namespace not in (target.namespace, "*"):
        return False
    return any(fits(pattern, target) for pattern in policy.patterns)


def fits(pattern: Pattern, target: Target) -> bool:
    return pattern.kind == target.kind and (
        pattern.matching == "any"
        or (pattern.matching == "prefix" and target.name[: len(pattern.name)] == pattern.name)
        or (pattern.matching == "literal" and target.name == pattern.name)
    )


def is_by_role(principal: Principal, action: Action, target: Target) -> bool:
    """Whether one of the roles that are there allows it."""
    if principal.patterns and target.namespace != principal.namespace:
        return False
    if principal.patterns and not any(fits(each, target) for each in principal.patterns):
        return False
    rights = [RIGHTS[ROLES_THERE[role]] for role in principal.roles if role in ROLES_THERE]
    return any(action in each.get(target.kind, ()) for each in rights)


def naive(found: Sequence[Policy], principal: Principal, action: Action, target: Target) -> bool:
    if principal.is_disabled:
        return False
    if principal.namespace and (
        target.kind is Kind.CLUSTER or target.namespace != principal.namespace
    ):
        return False
    effects = {each.effect for each in found if is_about(each, principal, action, target)}
    if is_by_role(principal, action, target):
        effects.add(Effect.ALLOW)
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


def runs_nodes_though_bound(
    found: Sequence[Policy], principal: Principal, action: Action, target: Target
) -> bool:
    if target.kind is Kind.CLUSTER:
        return ours(found, principal._replace(namespace=""), action, target)
    return ours(found, principal, action, target)


def forgets_what_it_is_kept_to(
    found: Sequence[Policy], principal: Principal, action: Action, target: Target
) -> bool:
    return ours(found, principal._replace(patterns=()), action, target)


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


@pytest.mark.parametrize(
    "broken",
    [
        allow_wins,
        crosses_namespaces,
        forgets_roles,
        runs_nodes_though_bound,
        forgets_what_it_is_kept_to,
    ],
)
def test_a_broken_evaluator_is_noticed(broken: Decide) -> None:
    with pytest.raises(AssertionError):
        check(broken, 2_000)


@settings(max_examples=500, deadline=None)
@given(cases)
def test_the_policy_that_is_named_says_so(case: Case) -> None:
    found, principal, action, target = case
    decision = Evaluator(found).decide(principal, action, target)
    by_role = [each for each in principal.by_role if is_about(each, principal, action, target)]
    about = [each for each in found if is_about(each, principal, action, target)] + by_role
    if decision.policy is None:
        assert not decision.is_allowed
    else:
        assert decision.policy in about
        assert (decision.policy.effect is Effect.ALLOW) is decision.is_allowed


@settings(max_examples=1_000, deadline=None)
@given(cases)
def test_who_may_a_family_may_each_of_its_names(case: Case) -> None:
    found, principal, action, target = case
    if Evaluator(found).covers(principal, action, target):
        for end in ("", "a", ":a", "b:a"):
            assert naive(found, principal, action, target._replace(name=target.name + end))


def test_a_family_is_covered_by_its_prefix_and_not_by_a_name_of_it() -> None:
    family = Target(Kind.PRODUCER, "job:")

    def covers(*texts: str, denied: str = "producer:other") -> bool:
        denial = Policy(
            "no",
            Subject(SubjectKind.PRINCIPAL, "ann"),
            Effect.DENY,
            frozenset({Action.PUB}),
            (read_pattern(denied),),
        )
        ann = Principal("ann", ("producer",), "", tuple(map(read_pattern, texts)))
        return Evaluator([denial]).covers(ann, Action.PUB, family)

    assert covers("producer:job*")
    assert covers("producer:job:*")
    assert covers("producer:*")
    assert not covers("producer:job")
    assert not covers("producer:job:1", "producer:job:2*")
    assert not covers("producer:*", denied="producer:job:7")
    assert not covers("producer:*", denied="producer:jo*")
    assert not covers("topic:*")
