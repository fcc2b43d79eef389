"""Prune a list of messages that the caller keeps: nothing is stored.

The preset `pruning` sends the newest turn, the two older messages that are nearest to the prompt, and the prompt.
Needs the local model (`make setup` installs it).
"""

import json
from pathlib import Path

import backscroll


def main() -> None:
    """Prune the eight messages of `pruning.json` for one prompt, then fit them into ever less room."""
    history = json.loads((Path(__file__).parent / "pruning.json").read_text("utf-8"))
    context = backscroll.prune(history, "Can we return to fleet calculations?", max_tokens=1000)
    for message in context:
        print(f"{message['role']:>9}: {message['content']}")
    print(f"\n{len(context)} of {len(history) + 1} messages, {context.tokens} tokens\n")

    for max_tokens in (100, 60, 40, 20, 10):
        try:
            fitted = backscroll.prune(history, "Can we return to fleet calculations?", max_tokens=max_tokens)
            print(f"max_tokens={max_tokens:>3}: {fitted.tokens:>2} tokens in {len(fitted)} of the messages")
        except backscroll.BudgetError as error:
            print(f"max_tokens={max_tokens:>3}: {error}")


if __name__ == "__main__":
    main()
