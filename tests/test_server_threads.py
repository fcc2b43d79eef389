"""The threads of the server and its event loop: who waits for whom."""

import asyncio
import gc
import sys
import threading
import time
from contextlib import ExitStack

import pytest

import backscroll
from backscroll.server.gate import Pace
from backscroll.server.interpreter import COLLECTIONS, SWITCH_SECONDS, responsive
from backscroll.server.proxy import _embed
from backscroll.server.threads import Threads

WAIT_SECONDS = 20


def test_contexts_take_turns_in_the_order_of_asking():
    done = []

    async def ask() -> None:
        threads = Threads(1)
        await asyncio.gather(*(threads.context(lambda n=n: done.append(n), asks_others=False) for n in range(5)))

    asyncio.run(ask())
    assert done == list(range(5))


def test_what_waits_for_another_machine_takes_no_place_of_what_computes():
    may_answer = threading.Event()

    async def ask() -> bool:
        threads = Threads(1)
        slow = [
            asyncio.create_task(threads.context(lambda: may_answer.wait(WAIT_SECONDS), asks_others=True))
            for _ in range(3)
        ]
        await threads.context(may_answer.set, asks_others=False)
        return all(await asyncio.gather(*slow))

    assert asyncio.run(ask())


def test_a_slow_context_does_not_stop_the_next_however_many_workers_share_the_cores():
    may_answer = threading.Event()

    async def ask() -> bool:
        threads = Threads(4, workers=1000)
        slow = asyncio.create_task(threads.context(lambda: may_answer.wait(WAIT_SECONDS), asks_others=False))
        await threads.context(may_answer.set, asks_others=False)
        return await slow

    assert asyncio.run(ask())


def test_it_is_quiet_while_no_context_is_wanted_also_after_one_that_failed():
    threads = Threads(2)
    assert threads.quiet.is_set()

    def fail() -> None:
        was_quiet.append(threads.quiet.is_set())
        raise ValueError("no context")

    was_quiet: list[bool] = []
    with pytest.raises(ValueError, match="no context"):
        asyncio.run(threads.context(fail, asks_others=False))
    assert was_quiet == [False]
    assert threads.quiet.is_set()


def test_a_few_requests_begin_in_each_step_of_the_loop_in_the_order_of_coming():
    begun: list[int] = []
    steps: list[int] = []

    async def begin(pace: Pace, number: int) -> None:
        await pace.place()
        begun.append(number)

    async def count_steps() -> None:
        while len(begun) < 21:
            before = len(begun)
            await asyncio.sleep(0)
            steps.append(len(begun) - before)

    async def ask() -> None:
        pace = Pace(4)
        counting = asyncio.create_task(count_steps())
        going = [asyncio.create_task(begin(pace, number)) for number in range(20)]
        await asyncio.sleep(0)
        going[10].cancel()
        await asyncio.gather(*going, return_exceptions=True)
        await begin(pace, 20)
        await begin(pace, 21)
        await counting

    asyncio.run(ask())
    assert begun == [number for number in range(22) if number != 10]
    assert max(steps) <= 2 * 4  # those that waited, and those that came


def test_a_reply_is_embedded_when_nobody_waits_for_a_context_or_it_is_time():
    with backscroll.open(":memory:", embedder="hashing") as memory:
        thread, threads = memory.thread("chat"), Threads(1)

        def pending() -> int:
            return memory.store.unembedded_count(thread.key.user)

        threads.quiet.clear()
        thread.append({"role": "assistant", "content": "Noted."}, embed=False)
        waiting = threading.Thread(target=_embed, args=(thread, threads, time.monotonic() + WAIT_SECONDS))
        waiting.start()
        waiting.join(0.2)
        assert (waiting.is_alive(), pending()) == (True, 1)
        threads.quiet.set()
        waiting.join(WAIT_SECONDS)
        assert pending() == 0
        threads.quiet.clear()
        thread.append({"role": "assistant", "content": "And that."}, embed=False)
        _embed(thread, threads, time.monotonic())
        assert pending() == 0


@pytest.mark.parametrize("first_ends_first", [True, False])
def test_of_several_servers_in_a_process_the_last_puts_python_back(first_ends_first):
    before = sys.getswitchinterval(), gc.get_threshold(), gc.get_freeze_count()
    servers = ExitStack(), ExitStack()
    for server in servers:
        server.enter_context(responsive())
    first, last = servers if first_ends_first else servers[::-1]
    first.close()
    assert sys.getswitchinterval() == pytest.approx(SWITCH_SECONDS)
    assert gc.get_threshold()[2] == COLLECTIONS
    last.close()
    assert (sys.getswitchinterval(), gc.get_threshold(), gc.get_freeze_count()) == before
