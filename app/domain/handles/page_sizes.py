"""How many entries a page of a listing has. Pure; one sentence and one code for all listings."""

from app.domain.errors import IllegalPage
from app.domain.limits import DEFAULT_PAGE_SIZE


def usual_page_size(most: int, usual: int = DEFAULT_PAGE_SIZE) -> int:
    """Of a listing whose caller names no size: `usual`, or the most where that is lower."""
    return min(usual, most)


def check_page_size(page_size: int, most: int) -> None:
    """Raise `IllegalPage` for a number of entries that no page can have."""
    if not 1 <= page_size <= most:
        raise IllegalPage(
            f"page_size is {page_size}; it must be from 1 to {most}",
            fields={"parameter": "page_size", "min": 1, "max": most},
        )
