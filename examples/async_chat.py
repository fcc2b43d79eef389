"""The async face: many chats at once, none of them in the way of the others.

Every method of `Memory` and `Thread` that does work is a coroutine here; the work itself is done in threads.
"""

import asyncio

import backscroll

USERS = {"alice": "a fleet of 12 vans", "bob": "a bakery with 3 ovens", "chloé": "a school with 40 classrooms"}


async def chat(memory: backscroll.AsyncMemory, user: str, keeps: str) -> str:
    """Tell in one thread, ask in another."""
    first = memory.thread("first", user=user)
    await first.append({"role": "user", "content": f"I look after {keeps}."})
    context = await memory.thread("second", user=user).context("What do I look after?", max_tokens=300)
    [source] = context.sources
    lines = await first.lines()
    return f"{user}: recalled {source.thread}:{source.position} of {source.user}: {lines[source.position].message.text}"


async def main() -> None:
    """Hold three chats at the same time."""
    async with backscroll.open_async(":memory:", embedder="hashing") as memory:
        told = await asyncio.gather(*(chat(memory, user, keeps) for user, keeps in USERS.items()))
        print(*told, sep="\n")
        threads = await memory.threads()
        print(f"{len(threads)} threads of {len({thread.user for thread in threads})} users")


if __name__ == "__main__":
    asyncio.run(main())
