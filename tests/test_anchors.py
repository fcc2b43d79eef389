"""What stands first in every context."""

from hypothesis import given
from hypothesis import strategies as st

from backscroll.anchors import REPLACES_SYSTEM, anchors, leading_system, system_prompt
from backscroll.types import Line
from chats import assistant, calls, chats, lines_of, result, system, user

CHAT = [system("a"), {"role": "developer", "content": "b"}, user("c"), assistant("d"), user("e"), assistant("f")]


def replacing(line: Line, times: int) -> Line:
    """The line as a system prompt that was sent anew."""
    message = line.message._replace(metadata={REPLACES_SYSTEM: times})
    return line._replace(message=message, pinned=True)


def texts(lines) -> list[str]:
    return [line.message.text for line in lines]


def test_the_system_prompt_is_what_stands_before_anyone_speaks():
    lines = lines_of(CHAT)
    assert leading_system([line.message for line in lines]) == 2
    assert texts(anchors(lines, [], 0)) == ["a", "b"]
    assert anchors(lines[2:], [], 0) == []


def test_the_sink_is_the_first_messages_after_the_system_prompt():
    lines = lines_of(CHAT)
    assert texts(anchors(lines, [], 1)) == ["a", "b", "c"]
    assert texts(anchors(lines, [], 3)) == ["a", "b", "c", "d", "e"]


def test_pins_stand_with_the_sink_in_the_order_of_the_thread_and_once():
    lines = lines_of(CHAT)
    assert texts(anchors(lines, [lines[2], lines[5]], 2)) == ["a", "b", "c", "d", "f"]
    assert texts(anchors(lines, [lines[0]], 0)) == ["a", "b"]


def test_a_sink_that_cuts_a_call_from_its_result_leaves_it_out():
    lines = lines_of([user("a"), calls("c1"), result("c1", "d")])
    assert texts(anchors(lines, [], 2)) == ["a"]
    assert len(anchors(lines, [], 3)) == 3


def test_the_system_prompt_that_was_sent_anew_last_is_in_force():
    lines = lines_of([*CHAT, system("new"), system("newer"), system("and more")])
    pinned = [replacing(lines[6], 1), replacing(lines[7], 2), replacing(lines[8], 2)]
    assert texts(system_prompt(lines, pinned)) == ["newer", "and more"]
    assert texts(anchors(lines[:6], pinned, 1)) == ["newer", "and more", "c"]


@given(chats(), st.integers(0, 4), st.data())
def test_no_line_is_an_anchor_twice(chat, sink_messages, data):
    lines = lines_of(chat)
    pinned = [line for line in lines if data.draw(st.booleans())]
    found = anchors(lines[:16], pinned, sink_messages)
    assert len({line.row for line in found}) == len(found)
