"""Bodies that name settings → what is named."""

import pytest
from pydantic import ValidationError

from app.api.control.schemas.setting_bodies import RetryBody, TopicBody
from app.domain.changes.merging import DEFAULT
from app.domain.settings import CustomizedRetry, ExponentialRetry, TraceMode


def test_what_is_left_out_is_not_named_and_null_is_the_default() -> None:
    assert TopicBody.model_validate({}).named() == {}
    assert TopicBody.model_validate({"queues": 4, "max_rate": None}).named() == {
        "queues": 4,
        "max_rate": DEFAULT,
    }


def test_a_duration_is_named_in_milliseconds() -> None:
    assert TopicBody.model_validate({"retention": "2h"}).named() == {"retention_ms": 7_200_000}
    with pytest.raises(ValidationError, match="retention and retention_ms are both given"):
        TopicBody.model_validate({"retention": "2h", "retention_ms": 7})


@pytest.mark.parametrize(("given", "mode"), [(True, TraceMode.ON), (False, TraceMode.OFF)])
def test_trace_may_be_yes_or_no(given: bool, mode: TraceMode) -> None:
    assert TopicBody.model_validate({"trace": given}).named() == {"trace": mode}


def test_a_retry_policy_is_of_one_kind() -> None:
    assert RetryBody.model_validate({"customized": ["1s", "1m"]}).policy() == CustomizedRetry(
        (1_000, 60_000)
    )
    exponential = {"exponential": {"initial": "1s", "multiplier": 3, "max": "1h"}}
    assert RetryBody.model_validate(exponential).policy() == ExponentialRetry(1_000, 3, 3_600_000)
    for wrong in ({}, {"customized": ["1s"], **exponential}):
        with pytest.raises(ValidationError, match="one of customized and exponential"):
            RetryBody.model_validate(wrong)


def test_the_document_shows_no_defaults_which_generated_clients_would_send() -> None:
    schema = TopicBody.model_json_schema()
    assert [name for name, each in schema["properties"].items() if "default" in each] == []
