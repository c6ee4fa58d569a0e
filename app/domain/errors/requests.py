"""Requests that can never succeed as they are: names, values and bodies that are not valid."""

from app.domain.errors.error import CurlewError


class InvalidRequest(CurlewError):
    """The request can never succeed as it is."""

    code = "BAD_REQUEST"
    title = "The request is not valid"


class IllegalTopic(InvalidRequest):
    """A topic name that clients may not use."""

    code = "ILLEGAL_TOPIC"
    title = "The topic name is not allowed"


class IllegalGroup(InvalidRequest):
    """A group name that clients may not use."""

    code = "ILLEGAL_CONSUMER_GROUP"
    title = "The group name is not allowed"


class IllegalTag(InvalidRequest):
    """A tag that is too long or has forbidden characters."""

    code = "ILLEGAL_MESSAGE_TAG"
    title = "The tag is not allowed"


class IllegalKey(InvalidRequest):
    """Keys that are too many, empty, or have forbidden characters."""

    code = "ILLEGAL_MESSAGE_KEY"
    title = "A message key is not allowed"


class IllegalProperty(InvalidRequest):
    """A property whose name is reserved or whose text cannot be stored."""

    code = "ILLEGAL_MESSAGE_PROPERTY_KEY"
    title = "A message property is not allowed"


class IllegalMessageId(InvalidRequest):
    """A producer's id of a message that cannot be stored, or that another of the batch has."""

    code = "ILLEGAL_MESSAGE_ID"
    title = "The unique id is not allowed"


class IllegalOffset(InvalidRequest):
    """An offset that is negative or not a number."""

    code = "ILLEGAL_OFFSET"
    title = "The offset is not valid"


class IllegalInvisibleTime(InvalidRequest):
    """An invisible time outside the limits."""

    code = "ILLEGAL_INVISIBLE_TIME"
    title = "The invisible time is outside the limits"


class IllegalWait(InvalidRequest):
    """A long-poll time outside the limits."""

    code = "ILLEGAL_POLLING_TIME"
    title = "The waiting time is outside the limits"


class IllegalFilter(InvalidRequest):
    """A filter expression that cannot be parsed; `fields["position"]` says where."""

    code = "ILLEGAL_FILTER_EXPRESSION"
    title = "The filter expression is not valid"


class IllegalSetting(InvalidRequest):
    """A setting of a topic or group outside its range; `pointer` says which."""

    code = "ILLEGAL_SETTING"
    title = "A setting is not allowed"


class IllegalMember(InvalidRequest):
    """What a member of a group says of itself does not make sense; `pointer` says where."""

    code = "ILLEGAL_MEMBER"
    title = "The member's particulars are not valid"


class IllegalPage(InvalidRequest):
    """A page size outside the limits, or a page token that this service did not issue."""

    code = "ILLEGAL_PAGE"
    title = "The page asked for is not valid"


class InvalidReceiptHandle(InvalidRequest):
    """A receipt handle that this cluster did not issue."""

    code = "INVALID_RECEIPT_HANDLE"
    title = "The receipt handle is not valid"


class IllegalDeliveryTime(InvalidRequest):
    """A delay or delivery time that cannot be read or is beyond the limit."""

    code = "ILLEGAL_DELIVERY_TIME"
    title = "The delivery time is not allowed"


class InvalidRecallHandle(InvalidRequest):
    """A recall handle that this cluster did not issue."""

    code = "INVALID_RECALL_HANDLE"
    title = "The recall handle is not valid"


class MalformedBody(InvalidRequest):
    """A body that does not parse, or has unknown or missing fields."""

    code = "MALFORMED_BODY"
    title = "The request body is not what is expected here"


class MalformedFrame(InvalidRequest):
    """A batch frame that does not check out; `fields["index"]` names the first bad record."""

    code = "MALFORMED_FRAME"
    title = "The batch frame is damaged"


class UnsupportedContentType(InvalidRequest):
    """A content type that the operation does not take."""

    code = "UNSUPPORTED_MEDIA_TYPE"
    title = "The content type is not supported here"


class BodyTooLarge(InvalidRequest):
    """A message body over the limit."""

    code = "MESSAGE_BODY_TOO_LARGE"
    title = "The message body is too large"


class BatchTooLarge(InvalidRequest):
    """A batch with too many messages or bytes."""

    code = "PAYLOAD_TOO_LARGE"
    title = "The batch is too large"


class PropertiesTooLarge(InvalidRequest):
    """Properties over the limit in number or bytes."""

    code = "MESSAGE_PROPERTIES_TOO_LARGE"
    title = "The message properties are too large"


class IdempotencyKeyReused(InvalidRequest):
    """The key came with another request before."""

    code = "IDEMPOTENCY_KEY_REUSED"
    title = "The idempotency key belongs to another request"
