"""A bot that remembers another chat: yesterday's lines answer today's question.

`answer` stands in for a language model: it is handed the context and says the newest recalled line. Put your client
in its place; `context.messages` is what it takes.
"""

from typing import Any

import backscroll

YESTERDAY = [
    ("We opened a second depot today, in Chesapeake.", "Congratulations! What will you keep there?"),
    ("The three refrigerated vans. The gate code is 4471.", "Noted: three refrigerated vans in Chesapeake, gate 4471."),
    ("My daughter's team won their match, by the way.", "Lovely. Say well done from me."),
]
TODAY = ["Good morning!", "What is the gate code of the new depot?", "And which vans stand there?"]


def answer(messages: list[dict[str, Any]]) -> str:
    """What a language model would be asked; this one only repeats the last line that it was shown of the assistant."""
    shown = str(messages[-1]["content"]).split("</recalled>")[0].splitlines()
    remembered = [line.removeprefix("assistant: ") for line in shown if line.startswith("assistant: ")]
    return remembered[-1] if remembered else "Good morning! How can I help?"


def main() -> None:
    """Store one chat, then hold another one."""
    with backscroll.open(":memory:", embedder="hashing") as memory:
        yesterday = memory.thread("yesterday", user="alice")
        for asked, replied in YESTERDAY:
            yesterday.append([{"role": "user", "content": asked}, {"role": "assistant", "content": replied}])

        today = memory.thread("today", user="alice")
        for asked in TODAY:
            context = today.context(asked, max_tokens=400)
            reply = answer(context.messages)
            today.append([{"role": "user", "content": asked}, {"role": "assistant", "content": reply}])
            lines = ", ".join(f"{source.thread}:{source.position}" for source in context.sources) or "none"
            print(f"user: {asked}\nbot:  {reply}\n      {context.tokens} tokens, lines {lines}\n")


if __name__ == "__main__":
    main()
