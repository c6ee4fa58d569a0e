"""Work that outlives its request: see how far it is, cancel it."""

from typing import Self

from fastapi import APIRouter

from app.api.control.dependencies import WithServices
from app.api.control.documentation import problem_responses
from app.api.control.schemas.schemas import AnswerModel, DryRunMember
from app.api.http.conditions import WithDryRun, is_dry_run
from app.broker.jobs import Operation, OperationState

router = APIRouter(tags=["operations"])


class OperationDocument(AnswerModel):
    """One operation. `total` is an estimate while it runs; `skipped` could not be done."""

    operation_id: str
    kind: str
    state: OperationState
    total: int
    done: int
    skipped: int
    started_ms: int
    ended_ms: int | None
    problem: str | None

    @classmethod
    def of(cls, operation: Operation) -> Self:
        return cls(
            operation_id=operation.operation_id,
            kind=operation.kind,
            state=operation.state,
            total=operation.total,
            done=operation.done,
            skipped=operation.skipped,
            started_ms=operation.started_ms,
            ended_ms=operation.ended_ms,
            problem=operation.problem,
        )


class CancelDocument(DryRunMember, OperationDocument):
    """An operation that was asked to stop, or would be."""


class OperationList(AnswerModel):
    """The operations that this node remembers, the newest first."""

    operations: list[OperationDocument]


@router.get(
    "/v1/operations",
    operation_id="list_operations",
    summary="List operations",
    responses=problem_responses(),
)
async def list_operations(services: WithServices) -> OperationList:
    """Those that run and the last that ended. A restart forgets them, not their effects."""
    found = services.broker.jobs.newest_first()
    return OperationList(operations=[OperationDocument.of(each) for each in found])


@router.get(
    "/v1/operations/{operation_id}",
    operation_id="get_operation",
    summary="How far an operation is",
    responses=problem_responses(404),
)
async def get_operation(operation_id: str, services: WithServices) -> OperationDocument:
    """The operation."""
    return OperationDocument.of(services.broker.jobs.find(operation_id))


@router.post(
    "/v1/operations/{operation_id}:cancel",
    operation_id="cancel_operation",
    summary="Stop an operation",
    responses=problem_responses(404),
)
async def cancel_operation(
    operation_id: str, services: WithServices, dry_run: WithDryRun = None
) -> CancelDocument:
    """Stop after the step in progress; what is done stays done. Cancelling twice is fine."""
    tries = is_dry_run(dry_run)
    operation = services.broker.jobs.find(operation_id)
    if not tries:
        operation.cancel()
    return CancelDocument(**OperationDocument.of(operation).model_dump(), dry_run=tries)
