"""The hook stands round every stage, in the order of the stages, and nowhere else."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import backscroll

STAGES = ["read", "window", "summarize", "recall", "assemble", "remember", "explain"]
OF_RECALL = ["contextualize", "embed lines", "embed query", "search", "gather"]


class Tree:
    """A hook that keeps which stage stood in which."""

    def __init__(self) -> None:
        self.path: list[str] = []
        self.seen: list[tuple[str, ...]] = []

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        self.path.append(stage)
        self.seen.append(tuple(self.path))
        yield
        self.path.pop()


@pytest.fixture
def memory() -> Iterator[backscroll.Memory]:
    with backscroll.open(":memory:", embedder="hashing") as memory:
        yield memory


def test_a_hook_sees_every_stage_of_a_context_inside_the_one_that_it_is_part_of(memory):
    thread = memory.thread("boat")
    with backscroll.trace(Tree()) as tree:
        thread.append({"role": "user", "content": "The boat is red."})
        thread.context("Which color has the boat?", max_tokens=500)
    append, context = ("append",), ("context",)
    expected = [append, (*append, "embed lines"), context]
    for stage in STAGES:
        expected.append((*context, stage))
        expected.extend((*context, "recall", part) for part in (OF_RECALL if stage == "recall" else []))
    assert tree.seen == expected


def test_a_hook_sees_what_is_awaited():
    async def seen() -> list[tuple[str, ...]]:
        memory = backscroll.open_async(":memory:", embedder="hashing")
        with backscroll.trace(Tree()) as tree:
            await memory.thread("boat").context("Hello?", max_tokens=500)
        await memory.close()
        return tree.seen

    assert ("context", "recall", "search") in asyncio.run(seen())


def test_outside_of_it_and_in_other_threads_no_hook_is_called(memory):
    with backscroll.trace(Tree()) as tree:
        pass
    memory.thread("boat").context("Hello?", max_tokens=500)
    assert tree.seen == []


def test_a_stopwatch_keeps_each_call_also_of_a_stage_that_failed(memory):
    thread = memory.thread("boat")
    with backscroll.trace(backscroll.Stopwatch()) as watch:
        thread.context("Hello?", max_tokens=500)
        with pytest.raises(backscroll.BudgetError):
            thread.context("Hello?", max_tokens=1)
    assert len(watch.seconds["context"]) == 2
    assert len(watch.seconds["search"]) == 1
    assert watch.total("context") >= watch.total("recall") >= watch.total("search") > 0 == watch.total("reply")
