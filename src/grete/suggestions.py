"""What a name that is not there may have meant, for errors: a name nearest to it, or those that there are."""

from __future__ import annotations

import re
from collections.abc import Iterable

_MOST_NAMED = 10
_MOST_LETTERS = 200_000
"""Of all names that are compared: a short one takes 10 us, one of 75 letters 150, and jobs may have 100,000 tasks."""
_NUMBER = re.compile(r"\d+")


def nearest(given: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known name that a misspelt one may have meant, whatever its case; None when none is near.

    `cutoff` is that of `difflib.get_close_matches`: 1 takes the name itself alone, 0 any.
    """
    from difflib import get_close_matches  # of an error alone

    letters = 0
    by_folded = {}
    for name in known:
        by_folded[name.casefold()] = name
        letters += len(name)
        if letters > _MOST_LETTERS:
            break
    close = get_close_matches(given.casefold(), by_folded, n=1, cutoff=cutoff)
    return by_folded[close[0]] if close else None


def did_you_mean(given: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """The end of an error of a name that is not there: `; did you mean X?`, nothing when none is near."""
    meant = nearest(given, known, cutoff)
    return hint(None if meant == given else meant)


def hint(meant: str | None) -> str:
    """The end of an error that asks whether this was meant; nothing of None."""
    return "" if meant is None else f"; did you mean {meant}?"


def or_one_of(given: str, known: Iterable[str], there: str = "it has") -> str:
    """As `did_you_mean`, or else what there is. A name that another number tells apart is no slip of the hand."""
    names = sorted(known)
    numbers, text = _NUMBER.findall(given), _NUMBER.sub("", given).casefold()
    others = (
        name for name in names if _NUMBER.findall(name) == numbers or _NUMBER.sub("", name).casefold() != text
    )
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return did_you_mean(given, others) or f"; {there} {', '.join(names[:_MOST_NAMED]) or 'none'}{more}"
