"""Questions that only make sense behind the one before them, made by rule of questions that stand alone.

    python benchmarks/followups.py ../shared/data/locomo.questions.jsonl.gz build/locomo.followups.jsonl
    backscroll evaluate recall --lines … --questions build/locomo.followups.jsonl --contextualizer none

Each answerable question becomes a `history` of two turns, the question and its answer, and is asked on by one of the
follow-ups below, in turns. The evidence stays: what holds the answer is what more can be told of. Where a question
asks about somebody by name or about the asker, the follow-up says no more than it must.
"""

import argparse
import gzip
import json
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

FOLLOW_UPS = (
    "Can you tell me more about that?",
    "When was that again?",
    "What exactly was said about it?",
    "Who else was part of it?",
    "What happened after that?",
    "Nice! And why?",
    "Nice!",
    "What about the other one?",
)


def follow_ups(questions: Path) -> Iterator[dict[str, Any]]:
    """A follow-up to each answerable question with evidence, in the form of the questions file."""
    turns = cycle(FOLLOW_UPS)
    opened = gzip.open if questions.suffix == ".gz" else open
    with opened(questions, "rt", encoding="utf-8") as file:
        for line in file:
            asked = json.loads(line)
            if asked.get("unanswerable") or not (asked.get("audit_evidence") or asked.get("evidence")):
                continue
            said = [{"role": "user", "text": asked["question"]}, {"role": "assistant", "text": str(asked["answer"])}]
            text = next(turns)
            yield {**asked, "id": f"{asked['id']}/then", "category": text, "history": said, "question": text}


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("questions", type=Path)
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    made = list(follow_ups(given.questions))
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text("".join(json.dumps(one, ensure_ascii=False) + "\n" for one in made), encoding="utf-8")
    print(f"{len(made):,} follow-ups in {given.out}")


if __name__ == "__main__":
    main()
