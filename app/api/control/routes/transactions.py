"""Transactions: decide, look, and ask producers for the decisions that they owe."""

from functools import partial
from typing import Annotated, Self

from fastapi import Query, Request, Response

from app.api.aims.across import Gathered, InOrder
from app.api.aims.of_names import A_TRANSACTION
from app.api.control.dependencies import Services, WithAccess, WithPageSize, WithServices
from app.api.control.operation_router import OperationRouter
from app.api.control.schemas.names import ProducerGroupName
from app.api.control.schemas.schemas import AnswerModel, DryRunMember, MergedModel
from app.api.dataplane.client_watch import unless_gone
from app.api.formats.rendering import view_of
from app.api.formats.wire import CheckList, CheckView, encode
from app.api.http.conditions import WithDryRun, is_dry_run
from app.api.http.parameters import wait_s_of
from app.api.http.request_context import ASKED
from app.api.naming.request_namespace import current_namespace
from app.api.operations.operation import Action, Answer
from app.broker.transactions.transaction_table import Transaction, TransactionState
from app.domain.access.actions import Kind
from app.domain.limits import CHECKS_UNLESS_SAID
from app.domain.names import namespace_of

router = OperationRouter("transactions")


class TransactionDocument(AnswerModel):
    """One transaction. `queue_offset` is that of the committed message.

    `reason` says why it was rolled back, when its producer did not: CHECKS_EXHAUSTED.
    """

    transaction_id: str
    message_id: str
    state: TransactionState
    producer_group: str
    topic: str
    queue_id: int
    queue_offset: int | None
    prepared_ms: int
    check_time_ms: int
    checks: int
    decided_ms: int | None
    reason: str | None
    namespace: str

    @classmethod
    def of(cls, transaction: Transaction) -> Self:
        is_asked = transaction.state is TransactionState.PREPARED
        first_ms = transaction.prepared_ms + transaction.check_after_ms
        return cls(
            transaction_id=transaction.transaction_id,
            message_id=transaction.transaction_id,
            state=transaction.state,
            producer_group=transaction.producer_group,
            namespace=namespace_of(transaction.topic),
            topic=transaction.topic,
            queue_id=transaction.queue_id,
            queue_offset=transaction.queue_offset,
            prepared_ms=transaction.prepared_ms,
            check_time_ms=transaction.next_check_ms if is_asked else first_ms,
            checks=transaction.checks,
            decided_ms=transaction.decided_ms,
            reason=transaction.reason,
        )


class DecisionDocument(DryRunMember, TransactionDocument):
    """A transaction after its decision; with `dry_run`, in the state that it would have."""


class TransactionList(MergedModel):
    """A page of transactions, the oldest first; `next_page_token` is null on the last page."""

    transactions: list[TransactionDocument]
    next_page_token: str | None


@router.serve(
    "GET /v1/transactions",
    "List transactions",
    needs={"transaction": Action.LIST},
    across=InOrder("transactions"),
)
async def list_transactions(
    services: WithServices,
    access: WithAccess,
    page_size: WithPageSize,
    state: TransactionState | None = None,
    producer_group: ProducerGroupName | None = None,
    page_token: str | None = None,
) -> TransactionList:
    """Those that wait for their decision, and the last decided ones, of topics and producer groups
    that the caller may send to and for."""
    access.for_anybody()
    found = services.broker.transactions.listed(
        state=state,
        producer_group=producer_group,
        after=page_token,
        count=page_size + 1,
        namespace=current_namespace(),
        visible=partial(_may_list, access),
    )
    page = [TransactionDocument.of(each) for each in found[:page_size]]
    following = page[-1].transaction_id if len(found) > page_size else None
    return TransactionList(transactions=page, next_page_token=following)


@router.serve(
    "GET /v1/transactions/{transaction_id}",
    "The state of a transaction",
    needs={"transaction": Action.PUB},
    aim=A_TRANSACTION,
)
async def get_transaction(
    transaction_id: str, services: WithServices, access: WithAccess
) -> TransactionDocument:
    """The transaction."""
    return TransactionDocument.of(_find(services, access, transaction_id))


def _find(services: Services, access: WithAccess, transaction_id: str) -> Transaction:
    """Looked up first: without the right it is not there."""
    access.for_anybody()
    found = services.broker.transactions.find(transaction_id, current_namespace())
    if not access.may(Action.PUB, Kind.TOPIC, found.topic):
        raise services.broker.transactions.missing(transaction_id)
    return found


def _may_list(access: WithAccess, transaction: Transaction) -> bool:
    return access.may(Action.PUB, Kind.TOPIC, transaction.topic) and access.may(
        Action.GET, Kind.PRODUCER, transaction.producer_group
    )


@router.serve(
    "POST /v1/transactions/{transaction_id}:commit",
    "Make the message of a transaction visible",
    needs={"transaction": Action.PUB},
    problems=(409, 429, 507),
    aim=A_TRANSACTION,
)
async def commit_transaction(
    transaction_id: str, services: WithServices, access: WithAccess, dry_run: WithDryRun = None
) -> DecisionDocument:
    """Repeating it gives the same answer; after a rollback it is a conflict."""
    return await _decide(services, access, transaction_id, TransactionState.COMMITTED, dry_run)


@router.serve(
    "POST /v1/transactions/{transaction_id}:rollback",
    "Drop the message of a transaction",
    needs={"transaction": Action.PUB},
    problems=(409, 429, 507),
    aim=A_TRANSACTION,
)
async def rollback_transaction(
    transaction_id: str, services: WithServices, access: WithAccess, dry_run: WithDryRun = None
) -> DecisionDocument:
    """Repeating it gives the same answer; after a commit it is a conflict."""
    return await _decide(services, access, transaction_id, TransactionState.ROLLED_BACK, dry_run)


async def _decide(
    services: Services,
    access: WithAccess,
    transaction_id: str,
    decision: TransactionState,
    dry_run: bool | None,
) -> DecisionDocument:
    found = _find(services, access, transaction_id)
    if not access.may(Action.PUB, Kind.PRODUCER, found.producer_group):
        raise services.broker.transactions.missing(transaction_id)
    transactions, tries = services.broker.transactions, is_dry_run(dry_run)
    decide = transactions.preview if tries else transactions.decide
    document = TransactionDocument.of(await decide(transaction_id, decision))
    return DecisionDocument(**{**document.model_dump(), "state": decision}, dry_run=tries)


@router.serve(
    "POST /v1/producer-groups/{producer_group}/transactions:receive",
    "Transactions that a producer group should decide",
    needs={"producer": Action.PUB},
    answers={200: Answer("Transactions to decide; none when the wait is over", CheckList)},
    problems=(429,),
    across=Gathered(),
)
async def receive_transactions(
    producer_group: str,
    services: WithServices,
    access: WithAccess,
    request: Request,
    max_transactions: Annotated[int, Query(ge=1)] = CHECKS_UNLESS_SAID,
    wait: Annotated[
        str | None, Query(description="how long to wait for some: 20, 0.5, 20s")
    ] = None,
) -> Response:
    """Those not decided in time. Each goes to one caller, until it is asked about again."""
    transactions = services.broker.transactions
    wait_s = 0.0 if wait is None else wait_s_of(wait, services.limits.wait_seconds_max)
    visible = partial(access.may, Action.PUB, Kind.TOPIC)
    if request.scope.get(ASKED):  # by a node that waits for all shards, and takes in turn
        await unless_gone(
            request.receive,
            access,
            lambda _: transactions.checks.wait(producer_group, wait_s, visible),
            lambda _: None,
        )
        return Response(encode(CheckList([])), media_type="application/json")
    checks = await unless_gone(
        request.receive,
        access,
        lambda gone: transactions.checks.receive(
            producer_group,
            max_checks=max_transactions,
            wait_s=wait_s,
            gone=gone,
            visible=visible,
        ),
        transactions.checks.give_back,
    )
    views = [
        CheckView(
            check.transaction.transaction_id,
            check.transaction.producer_group,
            check.transaction.checks,
            check.transaction.prepared_ms,
            view_of(check.message),
        )
        for check in checks
    ]
    return Response(encode(CheckList(views)), media_type="application/json")
