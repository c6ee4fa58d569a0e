"""What people write into fields. Pure."""

import re
from datetime import UTC, datetime


def moment_ms_of(text: str) -> int | None:
    """Epoch milliseconds, or what a browser's field of a time gives, which is UTC here; None: it is
    neither."""
    if re.fullmatch(r"[0-9]{1,18}", text):
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1_000)
