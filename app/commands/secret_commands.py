"""`curlew secret-key accept`: another secret key for a cluster, when the one before is lost; and
`curlew audit verify`: whether the audit, which it signs, is as it was written."""

import argparse
import re
from collections.abc import Sequence
from typing import Final

from app.cluster import ClusterConfig, Head, Metadata
from app.config import Config
from app.domain.errors import InvalidRequest
from app.runtime.secure.secret_key import SecretKey
from app.runtime.system_clock import SystemClock

COMMANDS: Final = frozenset({"audit", "secret-key"})
_HEAD: Final = re.compile(r"([^:]+):([0-9]{1,18}):([0-9a-f]{64})")


async def run(options: argparse.Namespace, config: Config) -> tuple[str, bool]:
    """Carry the command out: what to print, and whether all is well."""
    if options.command == "audit":
        return await _verify(options.head, config)
    return await _accept(config), True


async def _verify(given: Sequence[str], config: Config) -> tuple[str, bool]:
    kept = [_head_in(text) for text in given]
    metadata = await Metadata.open(ClusterConfig(config.database, config.flush), SystemClock())
    try:
        metadata.audit.write_as(None, SecretKey.of(config.secret_key_file))
        count, findings = await metadata.audit.verify(kept)
        heads = await metadata.audit.heads()
    finally:
        await metadata.close()
    lines = [f"{each.node} {each.seq}: {each.what}" for each in findings]
    lines.append(f"{count} entries, {len(findings)} findings. Keep these heads elsewhere:")
    lines += [f"  --head {each.node}:{each.seq}:{each.link.hex()}" for each in heads]
    return "\n".join(lines) + "\n", not findings


def _head_in(text: str) -> Head:
    found = _HEAD.fullmatch(text)
    if found is None:
        raise InvalidRequest(
            f"{text!r} is no head",
            hint="write node:number:link, as `curlew audit verify` prints it",
        )
    return Head(found[1], int(found[2]), bytes.fromhex(found[3]))


async def _accept(config: Config) -> str:
    key = SecretKey.of(config.secret_key_file)
    metadata = await Metadata.open(ClusterConfig(config.database, config.flush), SystemClock())
    try:
        await metadata.accept_secret_key(key)
    finally:
        await metadata.close()
    if key is None:
        return "The cluster has no secret key any more.\n"
    return f"The cluster has the secret key {key.fingerprint} from now on; restart its nodes.\n"
