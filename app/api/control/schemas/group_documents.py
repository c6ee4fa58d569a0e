"""Documents of consumer groups: their settings, and how they consume their topics."""

from collections.abc import Sequence

from app.api.control.dependencies import Services
from app.api.control.schemas.schemas import GroupDocument
from app.broker.ports import Group
from app.domain.consumers.consumption import ConsumptionState


def consumption_states(services: Services, group: str) -> list[ConsumptionState]:
    """How one group consumes its topics, by name."""
    return services.broker.consumptions.states([group])[group]


def group_documents(services: Services, groups: Sequence[Group]) -> list[GroupDocument]:
    """One for each of the groups."""
    states = services.broker.consumptions.states([group.name for group in groups])
    return [GroupDocument.of(group, states[group.name]) for group in groups]


def group_document(services: Services, group: Group) -> GroupDocument:
    """Of one group."""
    return GroupDocument.of(group, consumption_states(services, group.name))
