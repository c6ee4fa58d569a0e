"""Work that outlives its request: started, watched, cancelled. Event loop only.

The API calls a job an operation. It lives in memory: one that a stop or a crash ends is gone, and
what it had done by then stays done, since each step of it is whole in the log. The client that
started it starts it again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from app.broker.context import Context
from app.domain.errors import CurlewError, OperationNotFound, TooManyRequests
from app.domain.names import DEFAULT_NAMESPACE, namespace_of
from app.domain.quotas.quota import Quota
from app.runtime.service import end

_LOG: Final = logging.getLogger(__name__)


class OperationState(StrEnum):
    """Where an operation is."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(slots=True)
class Job:
    """One job and how far it is. `total` is an estimate until it has ended."""

    operation_id: str
    kind: str
    started_ms: int
    namespace: str = DEFAULT_NAMESPACE
    """Of what it works on."""
    owner: str | None = None
    """The principal that started it; None: nobody was asked for a name."""
    group: str | None = None
    """The group that it works on."""
    total: int = 0
    done: int = 0
    skipped: int = 0
    state: OperationState = OperationState.RUNNING
    ended_ms: int | None = None
    problem: str | None = None
    _cancelled: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_cancelled(self) -> bool:
        """Somebody wants it to stop; the work looks at this between its steps."""
        return self._cancelled.is_set()

    def cancel(self) -> None:
        """Ask it to stop after the step in progress."""
        self._cancelled.set()

    async def pause(self, seconds: float) -> None:
        """Wait, but not when the job is cancelled."""
        try:
            async with asyncio.timeout(seconds):
                await self._cancelled.wait()
        except TimeoutError:
            return


Work = Callable[[Job], Awaitable[None]]


class Jobs:
    """The jobs of one node: those that run, and the last that have ended."""

    def __init__(self, context: Context) -> None:
        self._clock = context.clock
        self._limits = context.limits
        self._jobs: dict[str, Job] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._number = 0

    def start(
        self,
        kind: str,
        total: int,
        work: Work,
        *,
        owner: str | None = None,
        group: str | None = None,
        name: str | None = None,
    ) -> Job:
        """Run `work` beside the request, under this name, else under a new one. Raises
        `TooManyRequests`."""
        self.check_room(owner)
        self._number += 1
        now_ms = self._clock.now_ms()
        namespace = DEFAULT_NAMESPACE if group is None else namespace_of(group)
        job_id = f"{kind}-{now_ms:x}-{self._number}" if name is None else f"{kind}-{name}"
        job = Job(job_id, kind, now_ms, namespace, owner, group, total)
        self._forget_oldest()
        self._jobs[job.operation_id] = job
        task = asyncio.get_running_loop().create_task(self._run(job, work), name=job.operation_id)
        self._tasks[job.operation_id] = task
        return job

    def check_room(self, owner: str | None) -> None:
        """Raise `TooManyRequests` when as many run as may, in all or of this principal."""
        most, own_most = (
            self._limits.operations_running_max,
            self._limits.operations_per_principal_max,
        )
        running = [self._jobs[each].owner for each in self._tasks]
        if len(running) >= most:
            raise _too_many(f"{len(running)} operations run already", "operations", most)
        own = running.count(owner)
        if owner is not None and own >= own_most:
            detail = f"principal {owner!r} has {own} operations running already"
            raise _too_many(detail, "principal-operations", own_most)

    def find(self, operation_id: str, namespace: str = DEFAULT_NAMESPACE) -> Job:
        """The job of the namespace, or `OperationNotFound`."""
        job = self._jobs.get(operation_id)
        if job is None or job.namespace != namespace:
            raise self.missing(operation_id)
        return job

    @staticmethod
    def missing(operation_id: str) -> OperationNotFound:
        """What is said of one that is not there, or that the caller must not know of."""
        return OperationNotFound(
            f"there is no operation {operation_id!r} on this node",
            hint="operations are kept in memory: a restart forgets them, not their effects",
        )

    def newest_first(self, namespace: str = DEFAULT_NAMESPACE) -> list[Job]:
        """Those of the namespace."""
        return [each for each in reversed(self._jobs.values()) if each.namespace == namespace]

    async def stop(self) -> None:
        """Cancel what runs and wait until it has ended."""
        for operation_id in self._tasks:
            self._jobs[operation_id].cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()))

    async def cut_off(self) -> None:
        """End what a `stop` that was cut off has waited for."""
        for task in list(self._tasks.values()):
            await end(task)

    async def _run(self, job: Job, work: Work) -> None:
        try:
            await work(job)
            ended = OperationState.CANCELLED if job.is_cancelled else OperationState.SUCCEEDED
        except CurlewError as error:
            job.problem, ended = error.detail, OperationState.FAILED
        except Exception:  # noqa: BLE001  # the operation says so; nobody else waits for it
            _LOG.exception("operation %s failed", job.operation_id)
            job.problem, ended = "unexpected failure; see the log", OperationState.FAILED
        job.state = ended
        job.ended_ms = self._clock.now_ms()
        del self._tasks[job.operation_id]

    def _forget_oldest(self) -> None:
        ended = [name for name in self._jobs if name not in self._tasks]
        for name in ended[: max(len(ended) - self._limits.operations_kept_max + 1, 0)]:
            del self._jobs[name]


def _too_many(detail: str, of: str, limit: int) -> TooManyRequests:
    return TooManyRequests(
        detail,
        hint="wait for one to end, or cancel one: GET /v1/operations",
        fields={"limit": limit},
        quota=Quota(of, limit, "concurrent-requests", 0),
        retry_after_s=1,
    )
