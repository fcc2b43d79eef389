"""The same question, five presets: what each of them finds in a support chat of ten months.

Needs the local model (`make setup` installs it); embedding the 364 lines takes a second or two.
"""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import backscroll

HERE = Path(__file__).parent
MAX_TOKENS = 1000


def read(name: str) -> list[dict[str, Any]]:
    """The values of a JSONL file."""
    return [json.loads(line) for line in (HERE / name).read_text("utf-8").splitlines()]


def messages_by_thread() -> dict[tuple[str, str], list[dict[str, Any]]]:
    """The sample conversations as OpenAI-style messages, by user and thread."""
    threads = defaultdict(list)
    for line in read("support_chat.jsonl"):
        message = line.get("message") or {"role": line["role"], "content": line["text"], "name": line["speaker"]}
        told = {**message, "id": line["id"], "created_at": line["time"]}
        threads[line["conversation"], line["thread"]].append(told)
    return threads


def main() -> None:
    """Ask every question that has an answer, each in a new thread, by each preset."""
    questions = [question for question in read("support_chat.questions.jsonl") if not question["unanswerable"]]
    with backscroll.open(":memory:", embedder="local") as memory:
        for (user, name), messages in messages_by_thread().items():
            memory.thread(name, user=user).append(messages, embed=False)
        memory.embed()
        print(f"{len(questions)} questions, max_tokens={MAX_TOKENS}, each in a new thread\n")
        print(f"{'preset':<22}{'evidence in the context':>24}{'tokens':>8}")
        for preset in backscroll.PRESETS:
            shares, tokens = [], []
            for number, question in enumerate(questions):
                thread = memory.thread(f"question {number}", user=question["conversation"])
                context = thread.context(question["question"], max_tokens=MAX_TOKENS, preset=preset)
                inside = {source.id for source in context.sources}
                shares.append(sum(line in inside for line in question["evidence"]) / len(question["evidence"]))
                tokens.append(context.tokens)
            print(f"{preset:<22}{sum(shares) / len(shares):>24.2f}{sum(tokens) / len(tokens):>8.0f}")


if __name__ == "__main__":
    main()
