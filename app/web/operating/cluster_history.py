"""What happened to nodes and shards, as sentences in the reader's language. Pure.

An event has the replicas in sync in its `detail`, as a list of nodes; who came and who left is told
by the event of the shard before it.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from app.web.rendering.values import UNKNOWN
from app.web.serving.api import Document

_IN_SYNC: Final = re.compile(r"in sync: ([^;]*)(?:; asked for by (.+))?")
_STARTED: Final = re.compile(r"(.+), version (\S+)")
_MADE: Final = re.compile(r"for (\d+) replicas")
NOBODY: Final = "somebody without a key"
"""Who has asked, where no name was asked for."""
_ALARMING: Final = frozenset(
    {"node_fenced", "shard_elected_after_loss", "shard_elected_unclean", "metadata_regressed"}
    | {"replica_gave_up"}
)

Gettext = Callable[[str], str]
"""`Page.gettext`."""


class Happened(NamedTuple):
    """An event to show."""

    at_ms: int
    shard: str | None
    epoch: int | None
    text: str
    detail: str
    """What the sentence does not say; it is not translated."""
    is_bad: bool


def happened(events: Sequence[Document], gettext: Gettext) -> list[Happened]:
    """The newest first, as they come from the API."""
    found: list[Happened] = []
    sets: dict[str | None, frozenset[str]] = {}
    for event in reversed(events):
        shard, kind = event["shard"], event["kind"]
        text, detail = _told(event, sets.get(shard), gettext)
        if _IN_SYNC.fullmatch(event["detail"]):
            sets[shard] = _nodes_of(event)
        is_bad = kind in _ALARMING
        found.append(Happened(event["at_ms"], shard, event["epoch"], text or kind, detail, is_bad))
    return found[::-1]


def _nodes_of(event: Document) -> frozenset[str]:
    said = _IN_SYNC.fullmatch(event["detail"])
    return frozenset() if said is None else frozenset(filter(None, said[1].split(", ")))


def _told(event: Document, before: frozenset[str] | None, gettext: Gettext) -> tuple[str, str]:
    """The sentence, empty for a kind that a newer node has written, and what is left to say."""
    kind, detail = event["kind"], event["detail"]
    named = {"node": event["node_id"] or UNKNOWN, "names": ", ".join(sorted(_nodes_of(event)))}
    if said := _IN_SYNC.fullmatch(detail):
        if kind == "in_sync_changed" and before is not None:
            return _changed_set(event, before, gettext), ""
        if kind == "shard_handed_over" and said[2]:
            text = gettext("The shard is handed over to %(node)s, as %(by)s has asked.")
            by = gettext("somebody without a key") if said[2] == NOBODY else said[2]
            return text % {**named, "by": by}, ""
    elif kind == "node_registered" and (said := _STARTED.fullmatch(detail)):
        text = gettext("The node %(node)s started, with version %(version)s.")
        return text % {**named, "version": said[2]}, said[1]
    elif kind == "shard_made" and (said := _MADE.fullmatch(detail)):
        text = gettext("The node %(node)s made the shard, for %(count)s replicas.")
        return text % {**named, "count": said[1]}, ""
    text = _texts(gettext).get(kind, "") % named
    return text, "" if text and _nodes_of(event) else detail


def _changed_set(event: Document, before: frozenset[str], gettext: Gettext) -> str:
    now = _nodes_of(event)
    parts = []
    if gone := ", ".join(sorted(before - now)):
        parts.append(gettext("No longer in sync: %(names)s.") % {"names": gone})
    if come := ", ".join(sorted(now - before)):
        parts.append(gettext("In sync now: %(names)s.") % {"names": come})
    parts.append(gettext("Sends wait for: %(names)s.") % {"names": ", ".join(sorted(now))})
    return " ".join(parts)


def _texts(gettext: Gettext) -> Mapping[str, str]:
    return {
        "node_registered": gettext("The node %(node)s started."),
        "shard_made": gettext("The node %(node)s made the shard."),
        "shard_claimed": gettext("The node %(node)s opened the store of the shard."),
        "shard_led": gettext("The node %(node)s leads the shard."),
        "shard_left": gettext("The node %(node)s stopped in order."),
        "shard_released": gettext("The shard is released: another store may take its name."),
        "shard_drains": gettext(
            "The shard drains: messages without a key go to other shards, those of keys still come."
        ),
        "shard_keys_moved": gettext(
            "The shard drains, and its keys have moved: nothing new comes any more."
        ),
        "shard_takes_all": gettext("The shard takes messages again."),
        "node_fenced": gettext(
            "The node %(node)s takes no writes any more: another one leads its shard."
        ),
        "replica_joined": gettext("The node %(node)s joined with a replica."),
        "replica_moved": gettext("The node %(node)s has another address."),
        "replica_removed": gettext("The node %(node)s was taken out of the replicas."),
        "replica_reset": gettext(
            "The replica of the node %(node)s begins anew: its data is thrown away and copied from"
            " the leader."
        ),
        "replica_cut": gettext(
            "The node %(node)s cut off the end of its log, which the leader does not have and"
            " nothing had confirmed."
        ),
        "replica_gave_up": gettext(
            "The node %(node)s came back with more than the leader has, and gave it up, as had been"
            " decided: messages may be missing."
        ),
        "shard_elected": gettext("The node %(node)s was elected and leads the shard."),
        "shard_elected_after_loss": gettext(
            "The node %(node)s leads the shard after all replicas had lost what proves that they"
            " are whole: messages may be missing."
        ),
        "shard_elected_unclean": gettext(
            "The node %(node)s leads the shard, as an operator has decided, without those that were"
            " in sync: messages may be missing."
        ),
        "in_sync_changed": gettext("Sends wait for: %(names)s."),
        "shard_handed_over": gettext("The shard is handed over to %(node)s."),
        "metadata_regressed": gettext("The database is an older copy: nobody is elected."),
        "shard_written_back": gettext("The leader wrote back what the database had forgotten."),
    }
