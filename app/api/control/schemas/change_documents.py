"""Answers to changes of settings: the document, what of it has changed, and what that does."""

from collections.abc import Sequence
from typing import Final, Self

from fastapi import Response
from pydantic import Field, JsonValue

from app.api.control.schemas.schemas import AnswerModel, DryRunMember, GroupDocument, TopicDocument
from app.api.http.json_line import JsonLine
from app.api.operations.operation import Answer
from app.broker.ports import Group, Topic
from app.domain.changes.effects import Effect, EffectCode, SettingsChange
from app.domain.consumers.consumption import ConsumptionState

_NO_SETTINGS: Final = frozenset(
    {"name", "created_ms", "updated_ms", "version", "next_due_times_ms"}
)


class EffectDocument(AnswerModel):
    """What a change does to those who are at work. `count`: of what `detail` names; null: not
    known."""

    code: EffectCode
    detail: str
    count: int | None


class ChangeMembers(DryRunMember):
    """What answers to changes have beside the document."""

    changed: dict[str, list[JsonValue]] = Field(
        description="each member of the document that has changed: before and after; empty when "
        "nothing has, and when it was made"
    )
    effects: list[EffectDocument]


# Of two parents the members of the second come first.


class TopicChangeDocument(ChangeMembers, TopicDocument):
    """A topic after a change; with `dry_run`, as it would be."""

    @classmethod
    def of_change(cls, change: SettingsChange[Topic]) -> Self:
        before = None if change.before is None else TopicDocument.of(change.before)
        after = TopicDocument.of(change.after)
        return cls.model_validate(
            with_changes(before, after, change.effects, is_dry_run=change.is_dry_run)
        )


class GroupChangeDocument(ChangeMembers, GroupDocument):
    """A consumer group after a change; with `dry_run`, as it would be."""

    @classmethod
    def of_change(
        cls, change: SettingsChange[Group], subscriptions: Sequence[ConsumptionState]
    ) -> Self:
        """`subscriptions`: how the group consumes its topics, which no setting changes."""
        before = None if change.before is None else GroupDocument.of(change.before, subscriptions)
        after = GroupDocument.of(change.after, subscriptions)
        return cls.model_validate(
            with_changes(before, after, change.effects, is_dry_run=change.is_dry_run)
        )


def with_changes(
    before: AnswerModel | None, after: AnswerModel, effects: Sequence[Effect], *, is_dry_run: bool
) -> dict[str, object]:
    """The members of `after`, and those of `ChangeMembers`."""
    document: dict[str, object] = after.model_dump(mode="json")
    was = document if before is None else before.model_dump(mode="json")
    return {
        **document,
        "changed": {
            name: [was[name], value]
            for name, value in document.items()
            if name not in _NO_SETTINGS and was[name] != value
        },
        "effects": [
            {"code": each.code, "detail": each.detail, "count": each.count} for each in effects
        ],
        "dry_run": is_dry_run,
    }


def dry_run_answer(model: type[AnswerModel]) -> Answer:
    """The answer 200 of an operation that otherwise answers 204."""
    return Answer("With dry_run: what would be", model)


def deleted(document: DryRunMember) -> Response:
    """The answer to a deletion: nothing, or with `dry_run` what would be deleted."""
    if not document.dry_run:
        return Response(status_code=204)
    return JsonLine(document.model_dump(mode="json"))
