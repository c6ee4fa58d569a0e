"""What a node does from time to time beside its pulse, whether it leads its shard or not: it minds
keys, the audit and certificates. Without the database all of it waits. Event loop only."""

import logging
from typing import Final

from app.broker.health import NodeState
from app.cluster import Metadata
from app.config import Config
from app.domain.errors import CurlewError
from app.runtime.closed_marker import remember_closed, remember_version
from app.runtime.secure.tls_files import TlsFiles
from app.runtime.secure.tokens import TokenVerifier
from app.runtime.service import Service

_LOG: Final = logging.getLogger(__name__)

KEYS_SECONDS: Final = 1.0
"""How late, with what the look-up takes, a key that was made or revoked elsewhere is known."""

LAST_USE_SECONDS: Final = 60.0
"""How exactly the last use of a key is known."""

DENIALS_SECONDS: Final = 10.0

AUDIT_SECONDS: Final = 3_600.0
"""How often old entries of the audit go."""

AUDIT_HEADS_SECONDS: Final = 86_400.0
"""How often the heads of the audit's chains are in the log."""

CERTIFICATE_SECONDS: Final = 5.0
"""How late a certificate that was replaced is used."""


class Housekeeping:
    """One per node."""

    def __init__(
        self,
        config: Config,
        metadata: Metadata,
        state: NodeState,
        tls: tuple[TlsFiles | None, ...],
        tokens: TokenVerifier | None,
    ) -> None:
        self._config = config
        self._metadata = metadata
        self._state = state
        self._tls = tls
        self._tokens = tokens

    def services(self) -> list[Service]:
        """Anew, none of them started."""
        return [
            Service("certificate", CERTIFICATE_SECONDS, self.refresh_files),
            Service("age of keys", KEYS_SECONDS, self._look_at_age),
            Service("last use of keys", LAST_USE_SECONDS, self._write_last_use),
            Service("denials", DENIALS_SECONDS, self._write_denials),
            Service("audit", AUDIT_SECONDS, self._expire_audit),
            Service("audit heads", AUDIT_HEADS_SECONDS, self._log_audit_heads),
        ]

    async def refresh_keys(self) -> None:
        """Hear of new and revoked keys. Without the database those that are known go on."""
        principals = self._metadata.principals
        before = principals.keyring
        try:
            await principals.refresh()
        except CurlewError as error:
            _LOG.warning("the keys are not refreshed: %s", error.detail)
            return
        self._state.policy_problem = (
            None
            if principals.regressed_to is None
            else "the metadata database is an older copy: its keys and policies are not taken over"
        )
        now = principals.keyring
        if now.is_closed and not before.is_closed:
            remember_closed(self._config.data_dir)
        if now is not before:
            # Not the first again: `curlew security open` took it back while this node runs.
            remember_version(self._config.data_dir, now.version)

    async def _look_at_age(self) -> None:
        """Apart from asking the database, which may take as long as it likes."""
        self._metadata.principals.look_at_age()

    async def _write_last_use(self) -> None:
        """Note which keys were shown. Without the database it is not known, and nothing else."""
        try:
            await self._metadata.principals.write_last_use()
        except CurlewError as error:
            _LOG.warning("the last uses of keys are not written: %s", error.detail)

    async def _write_denials(self) -> None:
        """Without the database they are lost, as they are where there are too many."""
        try:
            await self._metadata.audit.flush()
        except CurlewError as error:
            _LOG.warning("denials are not in the audit: %s", error.detail)

    async def _expire_audit(self) -> None:
        try:
            await self._metadata.audit.expire(self._config.audit_days * 86_400_000)
        except CurlewError as error:
            _LOG.warning("old entries of the audit stay for now: %s", error.detail)

    async def _log_audit_heads(self) -> None:
        try:
            for head in await self._metadata.audit.heads():
                _LOG.info("audit head %s:%d:%s", head.node, head.seq, head.link.hex())
        except CurlewError as error:
            _LOG.warning("the heads of the audit are not known: %s", error.detail)

    async def refresh_files(self) -> None:
        """Use certificates and keys of tokens that were replaced."""
        for tls in self._tls:
            if tls is not None:
                tls.refresh()
        if self._tokens is not None and self._tokens.refresh():
            self._metadata.principals.tell_waiting()  # of those whose key was taken out
