"""Work that outlives its request: see how far it is, cancel it."""

from app.api.aims import merges
from app.api.aims.across import InEach, Together
from app.api.control.dependencies import Services, WithAccess, WithServices
from app.api.control.log_changes import WithBeginning
from app.api.control.operation_router import OperationRouter
from app.api.control.schemas.schemas import DryRunMember, MergedModel
from app.api.http.conditions import WithDryRun, is_dry_run
from app.api.naming.request_namespace import current_namespace
from app.api.operations.operation import Action, Answer
from app.broker.jobs import Job, OperationState
from app.domain.access.actions import Kind

router = OperationRouter("operations")


class OperationDocument(MergedModel):
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
    namespace: str


class CancelDocument(DryRunMember, OperationDocument):
    """An operation that was asked to stop, or would be."""


class OperationList(MergedModel):
    """The operations that the nodes remember, the newest first."""

    operations: list[OperationDocument]


@router.serve(
    "GET /v1/operations",
    "List operations",
    needs={"operation": Action.LIST},
    across=Together(merges.operations),
)
async def list_operations(services: WithServices, access: WithAccess) -> OperationList:
    """The caller's own, and those on groups that it may know of: those that run and the last that
    ended. A restart forgets them, not their effects."""
    access.for_anybody()
    found = [
        each
        for each in services.broker.jobs.newest_first(current_namespace())
        if _may(access, Action.GET, each)
    ]
    return OperationList(operations=[OperationDocument.model_validate(each) for each in found])


@router.serve(
    "GET /v1/operations/{operation_id}",
    "How far an operation is",
    needs={"operation": Action.GET},
    across=Together(merges.operation, is_everywhere=True),
)
async def get_operation(
    operation_id: str, services: WithServices, access: WithAccess
) -> OperationDocument:
    """The operation."""
    return OperationDocument.model_validate(_find(services, access, Action.GET, operation_id))


def _may(access: WithAccess, action: Action, job: Job) -> bool:
    """Whether it is the caller's own, or works on what the caller may do that to."""
    access.for_anybody()
    if job.owner is not None and job.owner == access.caller.name:
        return True
    if job.group is not None:
        return access.may(action, Kind.GROUP, job.group)
    return access.may_run(action)


def _find(services: Services, access: WithAccess, action: Action, operation_id: str) -> Job:
    """Looked up first: without the right it is not there."""
    access.for_anybody()
    job = services.broker.jobs.find(operation_id, current_namespace())
    if not _may(access, action, job):
        raise services.broker.jobs.missing(operation_id)
    return job


@router.serve(
    "POST /v1/operations/{operation_id}:cancel",
    "Stop an operation",
    needs={"operation": Action.UPDATE},
    answers={207: Answer("Not in all shards: `partial` names the others", CancelDocument)},
    across=InEach(merges.work),
)
async def cancel_operation(
    operation_id: str,
    services: WithServices,
    access: WithAccess,
    begins: WithBeginning,
    dry_run: WithDryRun = None,
) -> CancelDocument:
    """Stop after the step in progress; what is done stays done. Cancelling twice is fine."""
    tries = is_dry_run(dry_run)
    operation = _find(services, access, Action.UPDATE, operation_id)
    if not tries:
        await begins()
        operation.cancel()
    return CancelDocument(**OperationDocument.model_validate(operation).model_dump(), dry_run=tries)
