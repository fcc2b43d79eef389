"""A store against a slow, obvious model: lists of lines, forked by copying."""

from dataclasses import dataclass, field

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from backscroll.stores import InMemoryStore
from backscroll.terms import terms
from backscroll.types import Message, Scope, Summary, ThreadKey

WORDS = ("red", "blue", "boat", "hull", "storm")


@dataclass
class Path:
    """What reading one thread gives: (position, text) in order; summaries as (first, last)."""

    parent: str | None
    fork_position: int
    lines: list[tuple[int, str, str]] = field(default_factory=list)  # position, id, text
    next_position: int = 0
    summaries: set[tuple[int, int]] = field(default_factory=set)


class StoreAgainstModel(RuleBasedStateMachine):
    """One user, one family; every branch is a copy of its parent below the fork."""

    @initialize()
    def open(self) -> None:
        self.store = InMemoryStore(lambda message: len(message.text) + 1)
        self.key = ThreadKey("alice", "boat")
        self.paths: dict[str, Path] = {}
        self.head = "boat"
        self.made = 0

    def names(self, data) -> str:
        """A branch's name, or the root's, which stands for the head."""
        return data.draw(st.sampled_from(sorted(self.paths)), label="name")

    def meant(self, name: str) -> str:
        return self.head if name == "boat" else name

    def own_of(self, name: str) -> int:
        """Where the thread's own lines begin."""
        return self.paths[name].fork_position

    @rule(words=st.lists(st.lists(st.sampled_from(WORDS), max_size=4), max_size=4), data=st.data())
    def append(self, words, data) -> None:
        name = self.names(data) if self.paths else "boat"
        if not words:
            return
        path = self.paths.setdefault("boat", Path(None, 0)) if not self.paths else self.paths[self.meant(name)]
        known = {line_id for _, line_id, _ in path.lines}
        messages = []
        for one in words:
            text = " ".join(one)
            line_id = data.draw(st.sampled_from(["i1", "i2", "i3", None]), label="id")
            messages.append(Message("user", {"role": "user", "content": text}, text, id=line_id))
            if line_id is None or line_id not in known:
                path.lines.append((path.next_position, line_id, text))
                path.next_position += 1
                known |= {line_id}
        self.store.append(ThreadKey("alice", name), messages)

    @precondition(lambda self: self.paths)
    @rule(data=st.data())
    def fork(self, data) -> None:
        name = self.names(data)
        parent = self.paths[self.meant(name)]
        position = data.draw(st.integers(0, parent.next_position), label="position")
        branch = self.store.fork(ThreadKey("alice", name), position)
        assert branch.thread not in self.paths
        self.paths[branch.thread] = Path(
            self.meant(name),
            position,
            [line for line in parent.lines if line[0] < position],
            position,
            {one for one in parent.summaries if one[1] < position},
        )
        self.head = branch.thread

    @precondition(lambda self: self.paths)
    @rule(data=st.data())
    def switch(self, data) -> None:
        self.head = self.names(data)
        self.store.switch(self.key, self.head)

    @precondition(lambda self: any(path.lines for path in self.paths.values()))
    @rule(data=st.data())
    def summarize(self, data) -> None:
        name = self.names(data)
        path = self.paths[self.meant(name)]
        if not path.next_position:
            return
        last = data.draw(st.integers(0, path.next_position - 1), label="last")
        first = data.draw(st.integers(0, last), label="first")
        noon = np.datetime64("2026-05-01T12:00:00").item().astimezone()
        self.store.add_summary(Summary("alice", name, first, last, ("x",), "extractive-1", noon))
        owner = self.owner(self.meant(name), last)
        for other, one in self.paths.items():
            if last < one.next_position and self.owner(other, last) == owner:
                one.summaries.add((first, last))

    def owner(self, name: str, position: int) -> str:
        """The thread whose own line stands at a position of a path."""
        path = self.paths[name]
        return name if path.parent is None or position >= path.fork_position else self.owner(path.parent, position)

    @precondition(lambda self: any(path.lines for path in self.paths.values()))
    @rule(data=st.data())
    def delete_line(self, data) -> None:
        name = self.names(data)
        path = self.paths[self.meant(name)]
        if not path.lines:
            return
        position = data.draw(st.sampled_from([line[0] for line in path.lines]), label="position")
        owner = self.owner(self.meant(name), position)
        assert self.store.delete("alice", name, position) == 1
        for other, one in self.paths.items():
            if position < one.next_position and self.owner(other, position) == owner:
                one.lines = [line for line in one.lines if line[0] != position]
            one.summaries = {(first, last) for first, last in one.summaries if not first <= position <= last}

    @precondition(lambda self: len(self.paths) > 1)
    @rule(data=st.data())
    def delete_branch(self, data) -> None:
        name = data.draw(st.sampled_from(sorted(set(self.paths) - {"boat"})), label="branch")
        going = {name}
        for _ in self.paths:
            going |= {other for other, path in self.paths.items() if path.parent in going}
        own = sum(line[0] >= self.own_of(one) for one in going for line in self.paths[one].lines)
        assert self.store.delete("alice", name) == own
        if self.head in going:
            self.head = str(self.paths[name].parent)
        self.paths = {other: path for other, path in self.paths.items() if other not in going}

    @invariant()
    def reads_are_the_models(self) -> None:
        for name in self.paths:
            path = self.paths[self.meant(name)]
            lines = self.store.read(ThreadKey("alice", name), 0, 10_000)
            assert [(line.position, line.message.text) for line in lines] == [(p, text) for p, _, text in path.lines]
            assert lines == self.store.tail(ThreadKey("alice", name), 10_000)
            kept = {(one.first, one.last) for one in self.store.summaries(ThreadKey("alice", name))}
            assert kept == path.summaries

    @invariant()
    def searches_are_the_models(self) -> None:
        for name in self.paths:
            path = self.paths[self.meant(name)]
            found = self.store.search(Scope("alice", name), None, terms("boat storm"), 10_000, 0)
            assert found.position.tolist() == [line[0] for line in path.lines]
            hit = [bool({"boat", "storm"} & set(text.split())) for _, _, text in path.lines]
            assert (found.lexical > 0).tolist() == hit

    @invariant()
    def listings_are_the_models(self) -> None:
        listed = {info.thread: info for info in self.store.threads("alice")}
        assert set(listed) == set(self.paths)
        for name, info in listed.items():
            assert info.lines == len(self.paths[self.meant(name)].lines)
            assert info.head == self.meant(name)

    @invariant()
    def checks_are_clean(self) -> None:
        assert {finding.problem for finding in self.store.check()} <= {"lines are not embedded yet"}

    def teardown(self) -> None:
        self.store.close()


TestStoreAgainstModel = StoreAgainstModel.TestCase
TestStoreAgainstModel.settings = settings(
    max_examples=40, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
