"""Group settings that have no column type of their own, as text and back. Pure.

retry_policy    {"customized": [10000, 30000]}
                {"exponential": {"initial_ms": 5000, "multiplier": 2.0, "max_ms": 7200000}}
start_position  earliest | latest | epoch milliseconds in decimal
"""

import json

from app.domain.settings import CustomizedRetry, ExponentialRetry, RetryPolicy, StartPosition


def policy_to_json(policy: RetryPolicy) -> str:
    """One text for one policy: keys are sorted."""
    if isinstance(policy, CustomizedRetry):
        value: dict[str, object] = {"customized": policy.delays_ms}
    else:
        value = {
            "exponential": {
                "initial_ms": policy.initial_ms,
                "multiplier": policy.multiplier,
                "max_ms": policy.max_ms,
            }
        }
    return json.dumps(value, sort_keys=True)


def policy_from_json(text: str) -> RetryPolicy:
    """Invert `policy_to_json`."""
    value = json.loads(text)
    if "customized" in value:
        return CustomizedRetry(tuple(value["customized"]))
    return ExponentialRetry(**value["exponential"])


def start_to_text(start: StartPosition) -> str:
    """As an operator would write it."""
    return str(start)


def start_from_text(text: str) -> StartPosition:
    """Invert `start_to_text`."""
    match text:
        case "earliest" | "latest":
            return text
        case _:
            return int(text)
