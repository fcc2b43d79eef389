"""A peer's lines, best first -> a context, packed as Backscroll packs its own -> what of the evidence is in it.

The same fence, heads, counter and rule: each line that fits is taken, in the order of the ranking, and what does not
fit is passed over. The evidence is looked for in the text of the messages, as `backscroll evaluate` does.
"""

from collections.abc import Mapping, Sequence

from backscroll.assemble import Assembled, Frame, Parts, assemble, divide
from backscroll.evaluation.datasets import Question
from backscroll.evaluation.metrics.answer_in_context import answer_in_context, occurs
from backscroll.evaluation.rendered import holds, rendered_lines
from backscroll.evaluation.replay import Plan
from backscroll.evaluation.results import Outcome
from backscroll.messages import parse_message, parse_time
from backscroll.quoting import rendered_line
from backscroll.tokens import DEFAULT_VOCABULARY, open_counter
from backscroll.types import Block, Line, Span

TOKENS_PER_LINE = 16  # so many lines are asked for that the budget and not their number is the limit


def lines_for(max_tokens: int) -> int:
    """How many lines a peer is asked for.

    >>> lines_for(2000)
    125
    """
    return max(1, max_tokens // TOKENS_PER_LINE)


def packed(question: Question, lines: Sequence[Line], max_tokens: int) -> Assembled:
    """Put lines into the budget, best first, in front of the question."""
    prompt = [parse_message({"role": "user", "content": question.text})]
    today = parse_time(question.asked_at)
    frame = Frame(
        max_tokens=max_tokens,
        counter=open_counter(DEFAULT_VOCABULARY),
        settings=Plan((), ()).settings("backscroll"),
        today=f"{today:%Y-%m-%d}" if today else "",
        asking_thread=(question.conversation, f"asking {question.id}"),
    )
    blocks = [_block(line, -place) for place, line in enumerate(lines)]
    return assemble(Parts(recalled=blocks, prompt=prompt), divide((), prompt, frame), frame)


def outcome(
    name: str, question: Question, ranked: Sequence[Line], lines: Mapping[str, Line], max_tokens: int
) -> Outcome:
    """What of a question's evidence is in the context of the lines that a system found.

    Args:
        ranked: what it found, best first.
        lines: all lines by their ids in the data.
        max_tokens: the budget.
    """
    context = packed(question, ranked, max_tokens)
    rendered = rendered_lines(context.messages, question.text)
    evidence = [lines[one].message.text for one in question.evidence]
    is_verbatim = any(occurs(question.answer, text) for text in evidence)
    return Outcome(
        preset=name,
        max_tokens=max_tokens,
        tokens=context.tokens,
        found=tuple(holds(rendered, text) for text in evidence),
        answered=answer_in_context(question.answer, rendered) if is_verbatim else None,
        recalled=len(context.parts.recalled),
    )


def cost(line: Line) -> int:
    """The tokens of a line where it is quoted."""
    return open_counter(DEFAULT_VOCABULARY).count(rendered_line(line, _block(line, 0)) + "\n")


def _block(line: Line, score: float) -> Block:
    span = Span(line.user, line.family, line.position, line.position, score, 0.0, 0)
    return Block(span, (line,))
