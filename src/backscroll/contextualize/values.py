"""What goes into a contextualizer, and what comes out: frozen values, without behavior."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Said:
    """One of the recent lines.

    Attributes:
        role: system, developer, user, assistant or tool.
        text: what was said.
    """

    role: str
    text: str


@dataclass(frozen=True, slots=True)
class Part:
    """A text whose vector goes into the query's vector, and its share, above 0; the shares need not sum to 1."""

    text: str
    weight: float


@dataclass(frozen=True, slots=True)
class Contextualized:
    """A query that stands alone.

    Attributes:
        text: the likeliest text, which a reader is shown.
        parts: the texts to search for: by words those of all of them; by meaning the sum of their weighted vectors. The
            heaviest comes first.
        is_changed: whether it is anything but the message as it was.
        note: what was done, in words, for the report; empty where nothing was.
        is_separate: whether each part is searched for by itself, and the ranks are fused.
    """

    text: str
    parts: tuple[Part, ...]
    is_changed: bool
    note: str = ""
    is_separate: bool = False

    def queries(self) -> "tuple[Contextualized, ...]":
        """What is searched for one by one: mostly all of it at once."""
        return tuple(unchanged(part.text) for part in self.parts) if self.is_separate else (self,)


Contextualizer = Callable[[str, Sequence[Said]], Contextualized]


def unchanged(message: str, note: str = "") -> Contextualized:
    """The message as it is."""
    return Contextualized(message, (Part(message, 1.0),), False, note)
