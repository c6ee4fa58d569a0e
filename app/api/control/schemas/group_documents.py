"""Documents of consumer groups: their settings, and how they consume the topics that the caller may
know of."""

from collections.abc import Sequence

from app.api.control.dependencies import Services
from app.api.control.schemas.schemas import GroupDocument
from app.broker.ports import Group
from app.domain.access.standing import Standing
from app.domain.consumers.consumption import ConsumptionState


def consumption_states(services: Services, access: Standing, group: str) -> list[ConsumptionState]:
    """How one group consumes its topics, by name."""
    return _seen(access, services.broker.consumptions.states([group])[group])


def group_documents(
    services: Services, access: Standing, groups: Sequence[Group]
) -> list[GroupDocument]:
    """One for each of the groups."""
    states = services.broker.consumptions.states([group.name for group in groups])
    return [GroupDocument.of(group, _seen(access, states[group.name])) for group in groups]


def group_document(services: Services, access: Standing, group: Group) -> GroupDocument:
    """Of one group."""
    return GroupDocument.of(group, consumption_states(services, access, group.name))


def _seen(access: Standing, states: Sequence[ConsumptionState]) -> list[ConsumptionState]:
    return [each for each in states if access.sees_topic(each.topic)]
