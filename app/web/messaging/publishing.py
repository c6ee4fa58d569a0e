"""Sending a message by hand, or a copy of one that is there.

A form that is sent twice sends one message: it has an idempotency key of its own. A copy has the
body of its original, byte by byte, unless it is replaced: a browser would change its line ends.
"""

import base64
from typing import Any, Final

from app.web.messaging.message_bodies import shown_body
from app.web.serving.api import Document, Refused, address
from app.web.serving.families import Family
from app.web.serving.page import Moved, Outcome, Page

family: Final = Family("topics")

ENVELOPE: Final = "application/vnd.curlew+json"
_FIELDS: Final = ("tag", "keys", "sharding_key", "properties", "delay", "body")


@family.page("/topics/{topic}/publish")
async def publish_form(page: Page) -> Outcome:
    """A blank one, or one filled with the message `copy`."""
    topic, copied = page.name("topic"), page.query("copy")
    await page.get("topics", topic)
    fields = dict.fromkeys(_FIELDS, "")
    if copied:
        original = await page.get(
            "topics", page.query("from") or topic, "messages", copied, body="base64"
        )
        fields |= _fields_of(original)
    return await _form(page, fields, copied, page.query("from") or topic, page.token, None)


@family.act("/topics/{topic}/publish")
async def publish(page: Page) -> Outcome:
    """Send it, and show the message."""
    topic, form = page.name("topic"), page.form
    copied, origin = form.get("copy", ""), form.get("from", topic)
    fields = {name: form.get(name, "") for name in _FIELDS}
    token = form.get("token", "") or page.token
    try:
        envelope = _envelope(page, fields)
        if copied and form.get("which") != "typed":
            original = await page.get("topics", origin, "messages", copied, body="base64")
            envelope["body_base64"] = original.get("body_base64", "")
            if "content_type" in original:
                envelope["content_type"] = original["content_type"]
        else:
            envelope["text"] = fields["body"].replace("\r\n", "\n")
        sent = await _send(page, topic, envelope, token)
    except Refused as error:
        if error.status in {401, 403}:
            raise
        return await _form(page, fields, copied, origin, token, error.problem, error.status)
    if "message_id" not in sent:  # delayed: it is no message yet
        return Moved(f"topics/{topic}", page.gettext("The message is accepted for later."))
    where = f"topics/{topic}/messages/{sent['message_id']}"
    return Moved(where, page.gettext("The message is sent: this is it."))


async def _send(page: Page, topic: str, envelope: dict[str, Any], token: str) -> Document:
    headers = {"Content-Type": ENVELOPE, "Idempotency-Key": token}
    answer = await page.api.ask(
        "POST", address("topics", topic, "messages"), json=envelope, headers=headers
    )
    return answer.json()


def _envelope(page: Page, fields: dict[str, str]) -> dict[str, Any]:
    """What the form says beside the body. Raises `Refused` for a property without a value."""
    envelope: dict[str, Any] = {}
    for name in ("tag", "sharding_key", "delay"):
        if fields[name].strip():
            envelope[name] = fields[name].strip()
    if keys := fields["keys"].split():
        envelope["keys"] = keys
    properties: dict[str, str] = {}
    for line in fields["properties"].splitlines():
        name, separator, value = line.partition("=")
        if not line.strip():
            continue
        if not separator or not name.strip():
            detail = page.gettext("Each property is a line with name=value; this is none: %s")
            raise Refused(422, {"detail": detail % line})
        properties[name.strip()] = value
    if properties:
        envelope["properties"] = properties
    return envelope


def _fields_of(original: dict[str, Any]) -> dict[str, str]:
    properties = original.get("properties", {})
    body = base64.b64decode(original.get("body_base64", ""))
    return {
        "tag": original.get("tag") or "",
        "keys": " ".join(original.get("keys", [])),
        "sharding_key": original.get("sharding_key") or "",
        "properties": "\n".join(f"{name}={value}" for name, value in properties.items()),
        "body": shown_body(body, "text").text,
    }


async def _form(
    page: Page,
    fields: dict[str, str],
    copied: str,
    origin: str,
    token: str,
    problem: dict[str, Any] | None,
    status: int = 200,
) -> Outcome:
    return page.show(
        "messaging/publish.html",
        status=status,
        topic=page.name("topic"),
        may_publish=await page.may("PUB", topic=page.name("topic")),
        tab="publish",
        copied=copied,
        origin_topic=origin,
        token=token,
        problem=problem,
        fields=fields,
    )
