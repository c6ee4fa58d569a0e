"""The OpenAPI document with everything in its usual place, to hold a node to all of it."""

import copy
from typing import Any

from app.api.operations.operation import WHEN_ASKED

Json = dict[str, Any]


def with_all_answers(document: Json) -> Json:
    """A copy in which what is answered only when it is asked for stands beside the other answers;
    two shapes of one media type are alternatives."""
    whole = copy.deepcopy(document)
    for methods in whole["paths"].values():
        for operation in methods.values():
            operation["responses"] |= operation.pop(WHEN_ASKED, {})
            for answer in operation["responses"].values():
                content = answer.setdefault("content", {}) if WHEN_ASKED in answer else {}
                for kind, described in answer.pop(WHEN_ASKED, {}).items():
                    shapes = [each["schema"] for each in (content.get(kind), described) if each]
                    schema = shapes[0] if len(shapes) == 1 else {"anyOf": shapes}
                    content[kind] = {**described, "schema": schema}
    return whole
