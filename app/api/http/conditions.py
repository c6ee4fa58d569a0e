"""Conditions and terms of a change, from headers and query: `If-Match`, `If-None-Match`, `dry_run`.

Read as RFC 9110, sections 13.1.1 and 13.1.2, has them: lists of entity tags, or `*`; strong
comparison for the first, weak for the second. Our tags are versions, as `etag_of` writes them.
"""

import re
from typing import Annotated, Final

from fastapi import Depends, Header, Query, Request

from app.domain.changes.conditions import Conditions, Terms, Versions
from app.domain.errors import InvalidRequest

_TAG: Final = r'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"'
_LIST: Final = re.compile(rf"[ \t,]*{_TAG}[ \t]*(?:,[ \t]*(?:{_TAG}[ \t]*)?)*")
_TAGS: Final = re.compile(r'(W/)?"([^"]*)"')
_VERSION_DIGITS_MAX: Final = 19
_PATTERN: Final = r'^(\*|(W/)?"[!#-~]*")$'
"""In the document: one tag; a list is taken, too."""


def etag_of(version: int) -> str:
    """The strong validator of a version."""
    return f'"{version}"'


async def conditions_of(
    request: Request,
    if_match: Annotated[
        str | None,
        Header(
            alias="If-Match",
            description="only when the version is this one, as ETag gave it; `*`: any",
            json_schema_extra={"pattern": _PATTERN},
        ),
    ] = None,
    if_none_match: Annotated[
        str | None,
        Header(
            alias="If-None-Match",
            description="only when the version is another one; `*`: when there is none",
            json_schema_extra={"pattern": _PATTERN},
        ),
    ] = None,
) -> Conditions:
    """What the headers ask for."""
    del if_match, if_none_match  # declared for the document; a list may come in several lines
    return Conditions(
        _versions_of(request, "If-Match", is_weak_taken=False),
        _versions_of(request, "If-None-Match", is_weak_taken=True),
    )


def _versions_of(request: Request, name: str, *, is_weak_taken: bool) -> Versions | None:
    lines = request.headers.getlist(name)
    if not lines:
        return None
    text = ",".join(lines).strip(" \t")
    if text == "*":
        return "*"
    if _LIST.fullmatch(text) is None:
        raise InvalidRequest(
            f"{name} is {text[:100]!r}; it must be * or one or more ETags as they were given",
            hint=f'an ETag has quotation marks: {name}: "3"',
            fields={"header": name},
        )
    tags = _TAGS.findall(text)
    return frozenset(
        int(tag) for weak, tag in tags if _is_ours(tag) and (is_weak_taken or not weak)
    )


def _is_ours(tag: str) -> bool:
    is_number = tag.isascii() and tag.isdigit() and len(tag) <= _VERSION_DIGITS_MAX
    return is_number and not tag.startswith("0")


WithDryRun = Annotated[
    bool | None,
    Query(
        alias="dry_run",
        description="true: check everything and answer what would be; change nothing",
    ),
]


def is_dry_run(query: bool | None, member: bool | None = None) -> bool:
    """What the query and the member of the body say; `InvalidRequest` when they differ."""
    if query is not None and member is not None and query != member:
        raise InvalidRequest(
            "dry_run is given in the query and in the body, and they differ",
            hint="say it in one place",
            fields={"parameter": "dry_run"},
            pointer="/dry_run",
        )
    return bool(query or member)


async def terms_of(
    conditions: Annotated[Conditions, Depends(conditions_of)], dry_run: WithDryRun = None
) -> Terms:
    """Of a `PUT` or `DELETE`."""
    return Terms(conditions, is_dry_run=is_dry_run(dry_run))


async def patch_terms_of(terms: Annotated[Terms, Depends(terms_of)]) -> Terms:
    """Of a `PATCH`: it makes nothing."""
    return Terms(terms.conditions, must_exist=True, is_dry_run=terms.is_dry_run)


WithTerms = Annotated[Terms, Depends(terms_of)]
WithPatchTerms = Annotated[Terms, Depends(patch_terms_of)]
