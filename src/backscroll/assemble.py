"""All parts -> a context within the budget, valid for a provider.

The order, from what changes least to what changes most, so that a provider's prefix cache serves the front of it:

    anchors            system prompt, sink, pins, pinned facts
    summary            what scrolled away, in few words; only appended to
    window             the newest exchanges; its start moves in steps
    recalled + prompt  one user's message: the old lines that matter now, fenced, and behind them the prompt

What must be in (anchors, tools, prompt) is counted first, then the window, the summary, and what is left goes to the
recalled lines, best first, each counted as it will stand there. This module alone does the arithmetic of the budget.
It asks nobody: it is handed values and a counter.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from backscroll.errors import BudgetError
from backscroll.exchanges import atoms, sendable
from backscroll.protocols import TokenCounter
from backscroll.quoting import QuoteCosts, Quotes, quoted_block, quoted_facts, quoted_summary
from backscroll.repair import repair
from backscroll.settings import Settings
from backscroll.tokens import message_tokens, tools_tokens
from backscroll.tracing import stage
from backscroll.types import Block, Line, Message, Summary

_IN_PROGRESS_SHARE = 0.75  # of max_tokens: the most that an exchange in progress takes before its oldest calls go
_ROOMY_TOKENS = 8_000  # from here on longer steps cost recall .004 and save a tenth of the front: docs/LOG.md
_LEAST_TOKENS = 8  # no line with its speaker costs less
_SPARE_TOKENS = 4  # where two texts meet, their tokens may come out differently than apart


@dataclass(frozen=True, slots=True)
class Shares:
    """How max_tokens is divided, in tokens.

    Attributes:
        space: what is left for window, summary and recalled beside the parts that must be in.
        window, window_min, window_step: the most and the least the window takes, and its step.
        summary: the most that the summary takes.
    """

    space: int
    window: int
    window_min: int
    window_step: int
    summary: int


@dataclass(frozen=True, slots=True)
class Parts:
    """What a context is made of.

    Attributes:
        anchors: in the order of sending.
        summary: oldest first.
        window: in the order of the thread.
        recalled: best first.
        prompt: the messages that come last; where they hold no user's message, the recalled block gets one.
    """

    anchors: Sequence[Line] = ()
    summary: Sequence[Summary] = ()
    window: Sequence[Line] = ()
    recalled: Sequence[Block] = ()
    prompt: Sequence[Message] = ()


@dataclass(frozen=True, slots=True)
class Assembled:
    """What came out of assembling: the messages, their cost, and which of the parts are in them."""

    messages: list[dict[str, Any]]
    tokens: int
    parts: Parts
    quotes: Quotes = field(default_factory=Quotes)


@dataclass(frozen=True, slots=True)
class Frame:
    """What assembling is told beside the parts.

    Attributes:
        max_tokens: the whole budget, tools and the opening of the reply counted.
        tools: schemas that will be sent along.
        counter: of the model's tokens.
        settings: reply_tokens, recalled_as, merge_roles and shares are read here.
        today: a date that is told in front of the recalled lines; empty for none.
        asking_thread: (user, thread) that is asked in.
        facts: pinned facts, which are in as the anchors are.
    """

    max_tokens: int
    counter: TokenCounter
    settings: Settings
    tools: Sequence[Mapping[str, Any]] = ()
    today: str = ""
    asking_thread: tuple[str, str] = ("", "")
    facts: Sequence[Line] = ()


def divide(anchors: Sequence[Line], prompt: Sequence[Message], frame: Frame) -> Shares:
    """Divide the budget among the parts.

    Raises: BudgetError when anchors, tools and prompt alone pass max_tokens.
    """
    settings = frame.settings
    fixed = _cost(_fixed_messages(anchors, prompt, frame), frame)
    budget = _budget(frame)
    if fixed > budget:
        raise _too_large(fixed, frame)
    space = budget - fixed
    least, step = _window_shares(settings, frame.max_tokens)
    window = min(int(frame.max_tokens * (least + step)), space)
    if settings.window_tokens is not None:
        window = min(window, settings.window_tokens)
    return Shares(
        space=space,
        window=window,
        window_min=min(int(frame.max_tokens * least), space) if step else 0,
        window_step=int(frame.max_tokens * step),
        summary=min(int(frame.max_tokens * settings.summary_share), space),
    )


def _window_shares(settings: Settings, max_tokens: int) -> tuple[float, float]:
    """What the window holds at least, and by how much it grows until it slides; by less where room is scarce."""
    step = settings.window_step_share
    least = settings.window_share - step
    return least, step if max_tokens >= _ROOMY_TOKENS or least == 0 else min(step, least)


def fit_prompt(anchors: Sequence[Line], prompt: Sequence[Message], frame: Frame) -> list[int]:
    """Which messages of an exchange in progress are sent: its question, its newest results, and what fits between.

    A long run of calls may pass the budget by itself; its oldest calls and results then go, each pair whole.

    Returns: places in `prompt`, ascending.
    Raises: BudgetError when the question and the newest results alone do not fit.
    """
    places = sendable([message.payload for message in prompt])
    payloads = [prompt[place].payload for place in places]
    units = [[places[i] for i in unit] for unit in atoms(payloads)]
    if len(units) <= 2:
        return places
    kept = [*units[0], *units[-1]]
    budget = _budget(frame)
    budget -= _cost(_fixed_messages(anchors, [prompt[place] for place in kept], frame), frame)
    left = min(budget, int(frame.max_tokens * _IN_PROGRESS_SHARE))
    for unit in reversed(units[1:-1]):
        left -= sum(message_tokens(prompt[place].payload, frame.counter) for place in unit)
        if left < 0:
            break
        kept.extend(unit)
    return sorted(kept)


@stage("assemble")
def assemble(parts: Parts, shares: Shares, frame: Frame) -> Assembled:
    """Put the parts together, as much of them as fits.

    Args:
        parts: anchors and prompt are all in; of the others as much as the budget holds.
        shares: from `divide` for the same anchors and prompt.

    Returns: messages of at most max_tokens tokens, counted as they are returned, and the parts that are in them.
    Raises: BudgetError when anchors, tools and prompt alone pass max_tokens.
    """
    summary = _fit_summary(parts.summary, shares.summary, frame)
    without_recalled = replace(parts, summary=summary, recalled=())
    quotes = _pack(without_recalled, parts.recalled, frame)
    return _trimmed(without_recalled, quotes, frame)


def _fit_summary(summaries: Sequence[Summary], max_tokens: int, frame: Frame) -> list[Summary]:
    """The oldest summaries that fit: they tell the most lines in a word, and stand in front of what is appended.

    A model's is longer than one of sentences: where not even the first has room, its beginning is taken.
    """
    fitting: list[Summary] = []
    for summary in (one for one in summaries if one.sentences):
        whole = len(summary.sentences)
        least = 0 if summary.made_at and not fitting else whole - 1
        shorter = [replace(summary, sentences=summary.sentences[:length]) for length in range(whole, least, -1)]
        found = next((one for one in shorter if _summary_cost([*fitting, one], frame) <= max_tokens), None)
        if found is None:
            break
        fitting.append(found)
    return fitting


def _summary_cost(summaries: Sequence[Summary], frame: Frame) -> int:
    return frame.counter.count(quoted_summary(summaries)) + frame.counter.tokens_per_message


def _pack(parts: Parts, blocks: Sequence[Block], frame: Frame) -> Quotes:
    """Choose recalled lines, best first, while each one's own cost still fits."""
    taken = {line.row for line in (*parts.anchors, *frame.facts, *parts.window)}
    own_thread = frame.asking_thread if frame.settings.recalled_as == "messages" else None
    quotes = Quotes((), own_thread, frame.asking_thread[0], frame.today)
    costs = QuoteCosts(quotes, frame.counter)
    left = _budget(frame) - _cost(_messages(parts, quotes, frame), frame)
    left -= _SPARE_TOKENS
    chosen: list[Block] = []
    for block in blocks:
        if left < _LEAST_TOKENS:
            break
        fresh = _quotable(block, taken, quotes.is_said(block))
        fitting, cost = _fitting(fresh, left, costs)
        if fitting is not None:
            left -= cost
            costs.choose(fitting)
            chosen.append(fitting)
            taken.update(line.row for line in fitting.lines)
    return replace(quotes, blocks=tuple(chosen))


def _quotable(block: Block, taken: set[int], is_said: bool) -> Block:
    """The block without lines that are in the context already, or could not stand in it."""
    lines = [line for line in block.lines if line.row not in taken]
    if is_said:
        lines = [lines[place] for place in sendable([line.message.payload for line in lines])]
    else:
        lines = [line for line in lines if line.message.text.strip()]
    return block if len(lines) == len(block.lines) else block._replace(lines=tuple(lines))


def _fitting(block: Block, left: int, costs: QuoteCosts) -> tuple[Block | None, int]:
    """The block where it fits, else the best passage of its one long line where that fits; and what it costs."""
    if block.lines:
        whole = block if costs.least(block) <= left else None
        for one in (whole, _excerpt(block)):
            cost = costs.of(one) if one is not None else 0
            if one is not None and cost <= left:
                return one, cost
    return None, 0


def _excerpt(block: Block) -> Block | None:
    """The best passage of a block's one long line, for where the whole line does not fit."""
    if block.passage is None or len(block.lines) != 1 or block.is_excerpt:
        return None
    start, end = block.passage
    is_part = end - start < len(block.lines[0].message.text)
    return block._replace(is_excerpt=True) if is_part else None


def _trimmed(parts: Parts, quotes: Quotes, frame: Frame) -> Assembled:
    """Count the whole as it will be sent, and let go of what matters least until it fits."""
    budget = _budget(frame)
    while True:
        messages = _messages(parts, quotes, frame)
        tokens = _cost(messages, frame)
        if tokens <= budget:
            return Assembled(messages, tokens, replace(parts, recalled=quotes.blocks), quotes)
        if quotes.blocks:
            quotes = quotes.without_last()
        elif parts.summary:
            parts = replace(parts, summary=parts.summary[:-1])
        elif parts.window:
            oldest = atoms([line.message.payload for line in parts.window])[0]
            parts = replace(parts, window=parts.window[oldest.stop :])
        else:
            raise _too_large(tokens, frame)


def _budget(frame: Frame) -> int:
    """What may be sent: max_tokens less the reply's reserve, which is a cap, and no more than a quarter."""
    return frame.max_tokens - min(frame.settings.reply_tokens, frame.max_tokens // 4)


def _too_large(tokens: int, frame: Frame) -> BudgetError:
    """The error for parts that must be in; with what it says is needed they fit, reserve and all."""
    return BudgetError(tokens + min(frame.settings.reply_tokens, tokens // 3), frame.max_tokens)


def _cost(messages: Sequence[Mapping[str, Any]], frame: Frame) -> int:
    """Tokens of a whole request: messages, tools' schemas, the opening of the reply."""
    counter = frame.counter
    said = sum(message_tokens(message, counter) for message in messages)
    return said + tools_tokens(frame.tools, counter) + counter.tokens_per_reply


def _fixed_messages(anchors: Sequence[Line], prompt: Sequence[Message], frame: Frame) -> list[dict[str, Any]]:
    return _messages(Parts(anchors=anchors, prompt=prompt), Quotes(), frame)


def _messages(parts: Parts, quotes: Quotes, frame: Frame) -> list[dict[str, Any]]:
    """The messages in the order of sending, made valid for a provider."""
    front = [dict(line.message.payload) for line in parts.anchors]
    if frame.facts:
        front.append({"role": "user", "content": quoted_facts(frame.facts, frame.asking_thread[0])})
    if parts.summary:
        front.append({"role": "user", "content": quoted_summary(parts.summary)})
    window = parts.window
    prompt = [dict(message.payload) for message in parts.prompt]
    block = quoted_block(quotes)
    if block and frame.settings.recalled_as == "preface":
        front.append({"role": "user", "content": block})
    elif block:
        prompt = _in_front_of_prompt(block, prompt)
    middle = [dict(line.message.payload) for line in in_order(window, quotes.said())]
    return repair([*front, *middle, *prompt], frame.settings.merge_roles)


def in_order(window: Sequence[Line], said: Sequence[Line]) -> list[Line]:
    """The lines of the thread that go as messages, by position."""
    return sorted([*window, *said], key=lambda line: line.position)


def _in_front_of_prompt(block: str, prompt: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The last user's message with the recalled lines in front of its own content."""
    places = [place for place, message in enumerate(prompt) if message["role"] == "user"]
    if not places:
        return [{"role": "user", "content": block}, *prompt]
    asked = prompt[places[-1]]
    content = asked["content"]
    if isinstance(content, str):
        joined: Any = f"{block}\n\n{content}"
    else:
        joined = [{"type": "text", "text": block}, *content]
    return [*prompt[: places[-1]], {**asked, "content": joined}, *prompt[places[-1] + 1 :]]
