"""Which tags a message can have that a condition is true for, so that a store can skip by tag."""

from app.broker.filters.sql.syntax import And, Equal, In, Literal, Node, Or, Property

_TAG = Property("TAGS")


def tags_of(node: Node) -> frozenset[str] | None:
    """The only tags under which `node` can be true; None when that does not follow from it."""
    match node:
        case Equal(Property(_TAG.name), Literal(str(tag))):
            return frozenset({tag})
        case In(Property(_TAG.name), texts, False):
            return texts
        case And(terms):
            found = [tags for term in terms if (tags := tags_of(term)) is not None]
            return frozenset.intersection(*found) if found else None
        case Or(terms):
            each = [tags_of(term) for term in terms]
            known = [tags for tags in each if tags is not None]
            return frozenset.union(*known) if len(known) == len(each) else None
    return None
