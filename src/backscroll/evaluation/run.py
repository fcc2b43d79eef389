"""A run over all questions: conversation by conversation, resumed where it was interrupted."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from backscroll.evaluation.datasets import Conversation, Question, Questions, read_conversations, read_questions
from backscroll.evaluation.replay import Plan, Replay, small_talk
from backscroll.evaluation.results import QuestionKey, Result, Results, code_digest, file_digest
from backscroll.evaluation.vector_cache import CachedEmbedder

Advance = Callable[[int], None]  # told how many questions are done


@dataclass(frozen=True, slots=True)
class Data:
    """What is asked of what.

    Attributes:
        by_conversation: the questions and the small talk, conversations in the order of their first question.
        left_out: how many questions are not asked, by the reason.
    """

    conversations: Mapping[str, Conversation]
    by_conversation: Mapping[str, Sequence[Question]]
    left_out: Mapping[str, int]

    def keys(self) -> list[QuestionKey]:
        """Every question's."""
        return [(one.conversation, one.id) for questions in self.by_conversation.values() for one in questions]


def read_data(lines: Path, questions: Path, max_questions: int | None = None) -> Data:
    """Read both files; small talk is added to each conversation. Raises: ImportFileError."""
    conversations = read_conversations(lines)
    found: Questions = read_questions(questions, conversations)
    grouped: dict[str, list[Question]] = {}
    for question in found.asked[:max_questions]:
        grouped.setdefault(question.conversation, []).append(question)
    asked = {name: [*group, *small_talk(name)] for name, group in grouped.items()}
    return Data({name: conversations[name] for name in asked}, asked, found.left_out)


def identity(lines: Path, questions: Path, plan: Plan, embedder: str) -> dict[str, Any]:
    """What names a run: with the same values it gives the same results, times aside."""
    return {
        "lines": file_digest(lines),
        "questions": file_digest(questions),
        "presets": {preset: asdict(plan.settings(preset)) for preset in plan.presets},
        "max_tokens": list(plan.max_tokens),
        "same_thread": plan.same_thread,
        "embedder": embedder,
        "code": code_digest(),
    }


def run(data: Data, plan: Plan, embedder: CachedEmbedder, results: Results, advance: Advance) -> list[Result]:
    """Ask every question that has no result yet.

    Returns: the results of all questions, in their order.
    Raises: EmbedderError, MessageError; what was measured before it is kept.
    """
    for name, questions in data.by_conversation.items():
        open_ones = [one for one in questions if (one.conversation, one.id) not in results]
        advance(len(questions) - len(open_ones))
        if not open_ones:
            continue
        with Replay(data.conversations[name], embedder, plan) as replay:
            for question in open_ones:
                results.add(replay.ask(question))
                advance(1)
    return [results[key] for key in data.keys()]  # noqa: SIM118 - in the order of the questions
