"""What is allowed and does not look intended is said: patterns, prefixes and namespaces."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from typing_extensions import override

from app.domain.access.actions import Action
from app.domain.access.evaluator import Principal
from app.domain.access.policies import (
    EVERY_NAMESPACE,
    Effect,
    Policy,
    Subject,
    SubjectKind,
    read_pattern,
)
from app.domain.access.policy_warnings import AccessFacts

SHOP = Subject(SubjectKind.PRINCIPAL, "shop")
BETA = Principal("beta", ("producer",), patterns=(read_pattern("topic:team-b-*"),))


def facts(
    principals: Sequence[Principal] = (BETA,), policies: Sequence[Policy] = ()
) -> AccessFacts:
    topics = ("team-a-in", "team-b-in", "eu%team-a-in")
    return AccessFacts(topics, ("team-a",), ("eu",), principals, policies)


def said(text: str, known: AccessFacts, namespace: str = "", subject: Subject = SHOP) -> list[str]:
    return known.warnings_of([read_pattern(text)], namespace, subject)


@pytest.mark.parametrize(
    "text", ["topic:team*", "topic:team-*", "topic:team-b*", "topic:tea*", "topic:t*"]
)
def test_a_prefix_that_begins_the_names_of_another_is_told(text: str) -> None:
    assert said(text, facts()) == [f"{text} also begins topic:team-b-* of principal:beta"]


@pytest.mark.parametrize(
    "text", ["topic:team-b-*", "topic:team-b-in", "topic:team-a-*", "group:team*", "topic:*"]
)
def test_what_is_shared_by_name_is_not(text: str) -> None:
    assert said(text, facts()) == []


def test_one_name_of_another_counts_too() -> None:
    one = Principal("gamma", ("producer",), patterns=(read_pattern("topic:team-a-in"),))
    told = ["topic:team-a-* also begins topic:team-a-in of principal:gamma"]
    assert said("topic:team-a-*", facts((one,))) == told


def test_so_do_names_that_a_policy_gives() -> None:
    gives = (read_pattern("topic:team-b-in"),)
    theirs = Subject(SubjectKind.PRINCIPAL, "gamma")
    allow = Policy("lent", theirs, Effect.ALLOW, frozenset({Action.PUB}), gives)
    told = ["topic:team-* also begins topic:team-b-in of principal:gamma"]
    assert said("topic:team-*", facts((), (allow,))) == told
    assert said("topic:team-*", facts((), (allow._replace(effect=Effect.DENY),))) == []
    assert said("topic:team-*", facts((), (allow._replace(subject=SHOP),))) == []


def test_prefixes_meet_within_a_namespace() -> None:
    assert said("topic:team-*", facts(), "eu") == []
    assert said("topic:team-*", facts(), EVERY_NAMESPACE) != []
    abroad = BETA._replace(namespace="eu")
    assert said("topic:team-*", facts((abroad,)), "eu") != []
    assert said("topic:team-*", facts((abroad,))) == []


def test_a_role_takes_nothing_from_those_that_have_it() -> None:
    assert said("topic:team-*", facts(), subject=Subject(SubjectKind.ROLE, "producer")) == []
    assert said("topic:team-*", facts(), subject=Subject(SubjectKind.ROLE, "viewer")) != []


def test_what_is_denied_takes_nothing_from_others() -> None:
    patterns = [read_pattern("topic:team-*"), read_pattern("topic:none-*")]
    told = ["topic:none-* matches nothing that there is now"]
    assert facts().warnings_of(patterns, "", SHOP, denies=True) == told


def test_a_pattern_that_matches_nothing_is_told() -> None:
    assert said("topic:none", facts()) == ["topic:none matches nothing that there is now"]
    assert said("group:team-b", facts()) == ["group:team-b matches nothing that there is now"]
    assert said("producer:any", facts()) == []
    assert said("topic:team-b-in", facts(), "eu") == [
        "topic:team-b-in matches nothing that there is now"
    ]


def test_a_namespace_that_is_not_there_is_told() -> None:
    assert said("producer:any", facts(), "us") == ["there is no namespace 'us'"]
    assert said("producer:any", facts(), "eu") == []


def test_a_role_that_allows_nothing_is_told() -> None:
    of_role = Policy("p", Subject(SubjectKind.ROLE, "pager"), Effect.ALLOW, frozenset(), ())
    known = facts((), (of_role,))
    assert known.of_roles(["admin", "pager", "piper"]) == ["role 'piper' is named by no policy"]


class Counted(tuple[Any, ...]):
    """What is looked through, and how often."""

    times = 0

    @override
    def __iter__(self) -> Iterator[Any]:
        self.times += 1
        return super().__iter__()


def test_all_that_others_have_is_looked_through_once_for_all_patterns() -> None:
    topics = Counted(f"team-{number}-in" for number in range(20))
    owners = Counted(
        Principal(f"p{number}", (), patterns=(read_pattern(f"topic:team-{number}-*"),))
        for number in range(20)
    )
    known = AccessFacts(topics, (), (), owners, ())
    exact = [read_pattern(f"topic:team-{number}-in") for number in range(20)]
    assert known.warnings_of([*exact, read_pattern("topic:*")], "", SHOP) == []
    assert (topics.times, owners.times) == (1, 0), "only a prefix can begin names of others"
    prefixes = [read_pattern(f"topic:team-{number}*") for number in range(2, 20)]
    assert known.warnings_of(prefixes, "", SHOP) == [
        f"topic:team-{number}* also begins topic:team-{number}-* of principal:p{number}"
        for number in range(2, 20)
    ]
    assert (topics.times, owners.times) == (2, 1)


def test_the_very_pattern_of_another_hides_none_behind_it() -> None:
    one = BETA._replace(patterns=(read_pattern("topic:team-*"), read_pattern("topic:team-b-in")))
    told = ["topic:team-* also begins topic:team-b-in of principal:beta"]
    assert said("topic:team-*", facts((one,))) == told
