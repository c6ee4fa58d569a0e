"""Promise and history: values of the machine on one side, documents of files on the other. Pure."""

from app.cluster.replication.terms import Member, Promise, Term, TermStart
from app.store.formats.files.replica_files import (
    KeptHistory,
    KeptMember,
    KeptPromise,
    KeptTerm,
    KeptTermStart,
)


def promise_document(promise: Promise) -> KeptPromise:
    """What is written of a promise."""
    members = tuple(KeptMember(*member) for member in sorted(promise.in_sync))
    return KeptPromise(KeptTerm(*promise.term), promise.in_sync_version, members)


def promise_of(kept: KeptPromise | None) -> Promise:
    """The promise that was kept; without one, that of a replica which has heard of nothing."""
    if kept is None:
        return Promise()
    members = frozenset(Member(each.node, each.incarnation) for each in kept.in_sync)
    return Promise(Term(kept.term.epoch, kept.term.grant), kept.in_sync_version, members)


def history_document(history: tuple[TermStart, ...]) -> KeptHistory:
    """What is written of a history."""
    return KeptHistory(tuple(KeptTermStart(*each.term, each.start) for each in history))


def history_of(kept: KeptHistory | None) -> tuple[TermStart, ...]:
    """The history that was kept; without one, that of an empty log."""
    starts = () if kept is None else kept.starts
    return tuple(TermStart(Term(each.epoch, each.grant), each.start) for each in starts)
