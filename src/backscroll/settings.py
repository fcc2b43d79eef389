"""One frozen dataclass of settings, and the presets: the known systems as settings of the same stages.

The one dial is `max_tokens`, given with each call: shares here are shares of it, fixed sizes are caps under it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isfinite
from types import MappingProxyType
from typing import Any, Literal, get_args, get_type_hints

from backscroll.errors import MessageError, NotFoundError

ContextualizerName = Literal["none", "blend", "trained", "rewrite", "multi", "hyde"]
BY_MODEL: tuple[str, ...] = ("rewrite", "multi", "hyde")  # they ask a language model
CONTEXTUALIZER_NAMES: tuple[ContextualizerName, ...] = get_args(ContextualizerName)
Percentile = Literal["p90", "p95", "p99", "p99.9"]
PERCENTILES: tuple[Percentile, ...] = get_args(Percentile)


@dataclass(frozen=True, slots=True)
class Settings:
    """What the stages do.

    Attributes:
        sink_messages: how many of the thread's first messages after the system prompt are in every context.
        window_share: the most of max_tokens that the window takes.
        window_step_share: by how much of max_tokens the window slides at once. It keeps at least window_share less
            this, where the thread has it, also just after it slid; below 8,000 tokens it slides by no more than that.
            0 slides with every message and keeps what fits.
        window_tokens: a cap on the window in tokens.
        window_messages: the window is just this many newest messages.
        window_unit: whole exchanges, or single messages (a call always with its results).
        skip_oversized: whether older, smaller messages are tried after one that does not fit.
        reply_tokens: kept free under max_tokens for the reply, but no more than a quarter of it.
        summary_share: the most of max_tokens that the summary takes; 0 makes none.
        summary_trigger_tokens: the thread's length from which on it has a summary.
        recall_lines: how many best lines are recalled; None takes as many as fit; 0 recalls nothing.
        contextualizer: how a prompt that leans on the lines before it is made a query that stands alone: ``none``,
            ``blend``, or ``trained``; by a language model ``rewrite``, ``multi`` or ``hyde``. See
            `backscroll.contextualize`.
        min_similarity: cosine below which a line is not recalled; or which percentile of the similarity between
            unrelated lines, as calibrated for the embedder: ``p90``, ``p95``, ``p99`` or ``p99.9``.
        recall_unit: recalls single messages, or each with its whole exchange.
        recall_roles: whose lines are recalled: ``both`` speakers', the ``user``'s or the ``assistant``'s.
        fusion: ``hybrid`` ranks by meaning and by words, ``dense`` by meaning alone.
        neighbors: how many lines before and after a recalled one come along.
        buffer_blocks: how many recalled blocks stay for the next turns, first in, first out; 0 keeps none.
        recalled_as: one fenced ``block`` in the prompt's message, a ``preface`` in front of the window, or
            ``messages`` with their own roles.
        merge_roles: whether neighbors of the same role become one message, as strict chat templates want it.
    """

    sink_messages: int = 0
    window_share: float = 0.625
    window_step_share: float = 0.375
    window_tokens: int | None = None
    window_messages: int | None = None
    window_unit: Literal["exchange", "message"] = "exchange"
    skip_oversized: bool = False
    reply_tokens: int = 0
    summary_share: float = 0.08
    summary_trigger_tokens: int = 2000
    recall_lines: int | None = None
    contextualizer: ContextualizerName = "trained"
    min_similarity: float | Percentile = "p95"
    recall_unit: Literal["message", "exchange"] = "message"
    recall_roles: Literal["both", "user", "assistant"] = "both"
    fusion: Literal["hybrid", "dense"] = "hybrid"
    neighbors: tuple[int, int] = (0, 0)
    buffer_blocks: int = 10
    recalled_as: Literal["block", "preface", "messages"] = "block"
    merge_roles: bool = True

    def __post_init__(self) -> None:
        """Refuse what no stage could work with; a pair may come as a list, as JSON has it."""
        if isinstance(self.neighbors, list) and _is_pair(tuple(self.neighbors)):
            object.__setattr__(self, "neighbors", tuple(self.neighbors))
        for name, (wanted, holds) in _WANTED.items():
            value = getattr(self, name)
            if not holds(value):
                raise MessageError(f"{name} is {wanted}, not {value!r}")
        if self.window_step_share > self.window_share:
            shares = f"{self.window_step_share!r} is above {self.window_share!r}"
            raise MessageError(f"window_step_share is not above window_share, as {shares}")


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_number(value: object) -> bool:
    """Whether it is one that can be compared: nan and inf are not."""
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def _is_share(value: Any) -> bool:
    return _is_number(value) and 0 <= value <= 1


def _is_pair(value: object) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and all(map(_is_count, value))


_Kind = tuple[str, Callable[[Any], bool]]  # what a value is, in words, and whether one is that
_KINDS: Mapping[Any, _Kind] = {
    bool: ("True or False", lambda value: isinstance(value, bool)),
    int: ("a whole number not below 0", _is_count),
    int | None: ("a whole number not below 0, or None", lambda value: value is None or _is_count(value)),
    float: ("a share, between 0 and 1", _is_share),
    float | Percentile: (
        f"a cosine, or one of {', '.join(PERCENTILES)}",
        lambda value: _is_number(value) or value in PERCENTILES,
    ),
    tuple[int, int]: ("a pair of whole numbers not below 0", _is_pair),
}


def _kind(annotation: Any) -> _Kind:
    """The kind of a setting; what is not named above is one of a few words."""
    known = get_args(annotation)
    return _KINDS.get(annotation) or (f"one of {', '.join(known)}", known.__contains__)


_WANTED: Mapping[str, _Kind] = {name: _kind(annotation) for name, annotation in get_type_hints(Settings).items()}

PRESETS: Mapping[str, Settings] = MappingProxyType(
    {
        "backscroll": Settings(),
        "pruning": Settings(
            window_share=1.0,
            window_step_share=0.0,
            window_messages=2,
            window_unit="message",
            summary_share=0.0,
            recall_lines=2,
            contextualizer="none",
            min_similarity=-1.0,
            fusion="dense",
            buffer_blocks=0,
            recalled_as="messages",
            merge_roles=False,
        ),
        "membot": Settings(
            window_share=0.5,
            window_step_share=0.0,
            summary_share=0.0,
            recall_lines=3,
            contextualizer="none",
            min_similarity="p99",
            fusion="dense",
            neighbors=(3, 3),
            buffer_blocks=10,
            recalled_as="preface",
            merge_roles=False,
        ),
        "sliding_window": Settings(
            window_share=1.0,
            window_step_share=0.0,
            window_unit="message",
            reply_tokens=500,
            summary_share=0.0,
            recall_lines=0,
            contextualizer="none",
            buffer_blocks=0,
            merge_roles=False,
        ),
        "sink_summary_window": Settings(
            sink_messages=1,
            window_share=0.5,
            window_step_share=0.0,
            window_tokens=1000,
            window_unit="message",
            summary_share=0.5,
            summary_trigger_tokens=2000,
            recall_lines=0,
            contextualizer="none",
            buffer_blocks=0,
            merge_roles=False,
        ),
        "contextualized": Settings(
            window_share=0.5,
            window_step_share=0.0,
            window_unit="message",
            contextualizer="rewrite",
            fusion="dense",
            buffer_blocks=0,
        ),
    }
)


def open_preset(name: str) -> Settings:
    """The settings of a preset. Raises: NotFoundError, which lists the known ones."""
    if not isinstance(name, str) or name not in PRESETS:
        raise NotFoundError(f"no preset {name!r}: there are {', '.join(PRESETS)}")
    return PRESETS[name]


def name_of(settings: Settings) -> str:
    """The name of the preset that the settings are, or ``custom``."""
    return next((name for name, preset in PRESETS.items() if preset == settings), "custom")
