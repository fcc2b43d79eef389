"""How often to ask a server again, and how long to wait before it. Knows nothing about what is asked."""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass

TRANSIENT = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})  # 529: overloaded, at Anthropic and gateways


@dataclass(frozen=True)
class Retry:
    """How often to ask again, and how long to wait. The waits are fixed: no chance is in them.

    Attributes:
        attempts: requests in all, the first one included.
        first_wait_seconds: before the second request; doubles from there on.
        max_wait_seconds: the longest wait; also caps what a server asks for with Retry-After.
        sleep: what waits.
    """

    attempts: int = 4
    first_wait_seconds: float = 0.5
    max_wait_seconds: float = 20.0
    sleep: Callable[[float], None] = time.sleep

    def wait_seconds(self, attempt: int, asked: str | None) -> float:
        """How long to wait after the given attempt, from 1.

        >>> [Retry().wait_seconds(attempt, None) for attempt in (1, 2, 3)]
        [0.5, 1.0, 2.0]
        >>> Retry().wait_seconds(1, "7")
        7.0
        """
        wait = self.first_wait_seconds * 2 ** (attempt - 1)
        if asked and re.fullmatch(r"\d+(\.\d+)?", asked):  # Retry-After may also be a date: then our own wait serves
            wait = max(wait, float(asked))
        return float(min(wait, self.max_wait_seconds))

    def wait(self, attempt: int, asked: str | None = None) -> None:
        """Wait as long as `wait_seconds` says."""
        self.sleep(self.wait_seconds(attempt, asked))


DEFAULT_RETRY = Retry()
