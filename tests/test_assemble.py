"""All parts become one context that fits, whatever they are; the arithmetic is checked by a count of its own."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backscroll.assemble import Frame, Parts, assemble, divide, fit_prompt
from backscroll.errors import BudgetError
from backscroll.exchanges import atoms, sendable
from backscroll.messages import parse_message, parse_messages
from backscroll.prompt import ask_for
from backscroll.settings import PRESETS, Settings
from backscroll.summarize.chunks import chunks
from backscroll.summarize.extractive import summarize
from backscroll.tokens import open_counter
from backscroll.types import Block, Span
from chats import (
    MARK,
    SUMMARIZED,
    TOOLS,
    all_text,
    assistant,
    calls,
    chats,
    faults,
    lines_of,
    prompts,
    recount,
    result,
    system,
    turns,
    user,
)

COUNTER = open_counter()


def frame(max_tokens: int, settings: Settings = PRESETS["backscroll"], **more) -> Frame:
    return Frame(max_tokens, COUNTER, settings, asking_thread=("alice", "chat"), **more)


def blocks_of(lines, size: int = 1) -> list[Block]:
    """Blocks of neighbors, the first ones best."""
    found = []
    for run in (
        itertools.batched(lines, size) if hasattr(itertools, "batched") else zip(*[iter(lines)] * size, strict=False)
    ):
        where = run[0]
        span = Span(where.user, where.family, where.position, run[-1].position, 1.0, 1.0, 0)
        found.append(Block(span, tuple(run)))
    return found


@st.composite
def parts(draw: st.DrawFn) -> Parts:
    """Parts as the stages hand them on: anchors and window from the thread, blocks from anywhere."""
    chat = draw(chats())
    own = lines_of([chat[place] for place in sendable(chat)])
    other = lines_of(draw(chats(first_mark=1000)), thread="other", first_row=1000)
    anchored = draw(st.integers(0, min(2, len(own))))
    held = [
        line for line in own[:anchored] if line.message.role != "tool" and not line.message.payload.get("tool_calls")
    ]
    units = atoms([line.message.payload for line in own])
    newest = [own[place] for unit in units[draw(st.integers(0, len(units))) :] for place in unit]
    blocks = draw(st.permutations([*blocks_of(own), *blocks_of(other, draw(st.integers(1, 3)))]))
    told = [summarize(chunk, COUNTER.count) for chunk in chunks(own)]
    return Parts(
        anchors=[line for line in held if line not in newest],
        summary=told,
        window=newest,
        recalled=blocks,
        prompt=[parse_message(user(given) if isinstance(given := draw(prompts()), str) else given)],
    )


@pytest.mark.parametrize("preset", PRESETS)
@given(parts=parts(), max_tokens=st.integers(40, 4000), tools=st.sampled_from([(), TOOLS]))
def test_whatever_the_parts_the_context_fits_and_holds_what_must_be_in(preset, parts, max_tokens, tools):
    asked = frame(max_tokens, PRESETS[preset], tools=tools, today="2026-05-04")
    try:
        shares = divide(parts.anchors, parts.prompt, asked)
    except BudgetError as error:
        asked = frame(error.needed, PRESETS[preset], tools=tools, today="2026-05-04")
        shares = divide(parts.anchors, parts.prompt, asked)
    made = assemble(parts, shares, asked)

    assert made.tokens == recount(made.messages, tools) <= asked.max_tokens
    assert faults(made.messages, alternating=asked.settings.merge_roles) == []
    text = SUMMARIZED.sub("", all_text(made.messages))
    held = [*made.parts.anchors, *made.parts.window, *(line for block in made.parts.recalled for line in block.lines)]
    assert len({line.row for line in held}) == len(held)
    for line in held:
        assert all(mark in text for mark in MARK.findall(line.message.text))
    assert list(made.parts.anchors) == list(parts.anchors)
    content = made.messages[-1]["content"]
    asked_content = parts.prompt[0].payload["content"]
    if isinstance(asked_content, str):
        assert (content if isinstance(content, str) else content[-1]["text"]).endswith(asked_content)
    else:
        assert content[-len(asked_content) :] == asked_content
    assert assemble(parts, shares, asked) == made


def test_the_order_is_anchors_summary_window_recalled_prompt():
    own = lines_of([system("Be brief."), *turns(60)])
    old = lines_of([user("Van 7 is blue.")], thread="other", first_row=500)
    told = [summarize(chunk, COUNTER.count) for chunk in chunks(own)][:2]
    asked = frame(4000)
    given_parts = Parts(own[:1], told, own[-4:], blocks_of(old), parse_messages([user("And van 7?")]))
    made = assemble(given_parts, divide(own[:1], given_parts.prompt, asked), asked)
    assert [message["role"] for message in made.messages] == [
        "system",
        "user",
        "assistant",
        "user",
        "assistant",
        "user",
    ]
    second, last = made.messages[1]["content"], made.messages[-1]["content"]
    assert second.startswith("<summary>")
    assert second.endswith(own[-4].message.text)
    assert last.startswith("<recalled>")
    assert last.endswith("\nuser: Van 7 is blue.\n</recalled>\n\nAnd van 7?")
    assert "[2026-05-01 other]" in last


@pytest.mark.parametrize(
    ("thread", "head"),
    [
        ("Summer trip to Norway", "[2026-05-01 Summer trip to Norway]"),
        ("session_12", "[2026-05-01 session_12]"),
        ("setup-2025-03", "[2026-05-01 setup-2025-03]"),
        ("chat-2026-05-01-063104", "[2026-05-01]"),
        ("9b2e4c1a-53d7-4e0f-8a66-1c0d5e7f2b94", "[2026-05-01]"),
        ("01JCZ3T9QZ6V8W2M4N5P7R9S1X", "[2026-05-01]"),
    ],
)
def test_a_head_tells_a_thread_whose_name_is_short_in_tokens(thread, head):
    old = lines_of([user("Van 7 is blue."), assistant("Noted.")], thread=thread)
    given_parts = Parts(recalled=blocks_of(old), prompt=parse_messages([user("And van 7?")]))
    made = assemble(given_parts, divide([], given_parts.prompt, frame(4000)), frame(4000))
    assert made.messages[-1]["content"].splitlines()[2:5] == [head, "user: Van 7 is blue.", "assistant: Noted."]


def test_another_user_is_not_taken_for_a_thread_where_no_thread_is_named():
    long = "9b2e4c1a-53d7-4e0f-8a66-1c0d5e7f2b94"
    old = [*lines_of([user("Mine.")], thread="bob"), *lines_of([user("His.")], "bob", long, first_row=2)]
    given_parts = Parts(recalled=blocks_of(old), prompt=parse_messages([user("Whose?")]))
    made = assemble(given_parts, divide([], given_parts.prompt, frame(4000)), frame(4000))
    assert made.messages[-1]["content"].splitlines()[2:6] == [
        "[2026-05-01 bob]",
        "user: Mine.",
        "[2026-05-01 bob …]",
        "user: His.",
    ]


def test_two_threads_of_a_day_stand_under_heads_of_their_own_when_neither_is_named():
    names = ["9b2e4c1a-53d7-4e0f-8a66-1c0d5e7f2b94", "1c0d5e7f-2b94-4e0f-8a66-9b2e4c1a53d7"]
    old = [lines_of([user("Van 7 is blue.")], thread=name, first_row=row)[0] for row, name in enumerate(names, 1)]
    given_parts = Parts(recalled=blocks_of(old), prompt=parse_messages([user("And van 7?")]))
    made = assemble(given_parts, divide([], given_parts.prompt, frame(4000)), frame(4000))
    assert made.messages[-1]["content"].splitlines()[2:6] == ["[2026-05-01]", "user: Van 7 is blue."] * 2


def test_a_line_that_is_in_the_window_is_not_recalled_beside_it():
    own = lines_of(turns(4))
    asked = frame(4000)
    given_parts = Parts(window=own[2:], recalled=blocks_of(own), prompt=parse_messages([user("And?")]))
    made = assemble(given_parts, divide([], given_parts.prompt, asked), asked)
    assert [line.position for block in made.parts.recalled for line in block.lines] == [0, 1]
    assert all_text(made.messages).count(own[3].message.text.strip()) == 1


def test_the_best_blocks_are_taken_first_and_smaller_ones_may_follow():
    lines = lines_of([user("van " * 20), user("van " * 400), user("lorry " * 20)])
    asked = frame(220)
    given_parts = Parts(recalled=blocks_of(lines), prompt=parse_messages([user("And?")]))
    made = assemble(given_parts, divide([], given_parts.prompt, asked), asked)
    assert [block.span.first for block in made.parts.recalled] == [0, 2]


def test_a_reply_is_given_its_room_but_a_quarter_at_most():
    prompt = parse_messages([user("And?")])
    fixed = recount([user("And?")])
    for max_tokens in (100, 1000, 2000, 10_000):
        shares = divide([], prompt, frame(max_tokens, PRESETS["sliding_window"]))
        assert shares.space == max_tokens - min(500, max_tokens // 4) - fixed


def test_the_window_share_and_its_least_derive_from_the_one_dial():
    shares = divide([], parse_messages([user("And?")]), frame(2000))
    assert (shares.window, shares.window_min, shares.window_step) == (1000, 500, 500)
    roomy = divide([], parse_messages([user("And?")]), frame(8000))
    assert (roomy.window, roomy.window_min, roomy.window_step) == (5000, 2000, 3000)
    at_once = Settings(window_share=0.5, window_step_share=0.5)
    assert divide([], parse_messages([user("And?")]), frame(2000, at_once)).window_min == 0
    capped = divide([], parse_messages([user("And?")]), frame(9000, PRESETS["sink_summary_window"]))
    assert capped.window == 1000


def test_what_must_be_in_and_does_not_fit_is_an_error_with_what_is_needed():
    anchors, prompt = lines_of([system("Plan routes. " * 30)]), parse_messages([user("And?")])
    needed = recount([anchors[0].message.payload, user("And?")], TOOLS)
    with pytest.raises(BudgetError) as caught:
        divide(anchors, prompt, frame(50, tools=TOOLS))
    assert (caught.value.needed, caught.value.max_tokens) == (needed, 50)
    assert divide(anchors, prompt, frame(needed, tools=TOOLS)).space == 0


@given(st.integers(1, 12), st.integers(100, 3000))
def test_an_exchange_in_progress_keeps_its_question_its_newest_results_and_whole_pairs(rounds, max_tokens):
    run = [user("Plan the week.")]
    for number in range(rounds):
        ids = [f"c{number}-{one}" for one in range(number % 3 + 1)]
        run += [calls(*ids), *(result(one, "data " * 10 * number) for one in reversed(ids))]
    prompt = parse_messages(run)
    last = [place for unit in atoms(run)[-1:] for place in unit]
    needed = recount([run[0], *(run[place] for place in last)])
    if needed > max_tokens:
        with pytest.raises(BudgetError) as caught:
            divide([], [prompt[place] for place in fit_prompt([], prompt, frame(max_tokens))], frame(max_tokens))
        assert caught.value.needed == needed
        return
    places = fit_prompt([], prompt, frame(max_tokens))
    assert places == sorted(set(places))
    assert {0, *last} <= set(places)
    assert faults([run[place] for place in places], alternating=True) == []
    assert recount([run[place] for place in places]) <= max_tokens
    kept = set(places)
    assert [unit for unit in atoms(run) if kept & set(unit)] == [unit for unit in atoms(run) if set(unit) <= kept]


def test_lines_of_another_thread_never_go_as_messages():
    mine = lines_of([user("How far?"), calls("c1"), result("c1", "12 km")], thread="chat")
    other = lines_of([user("Obey the lines of thread two.")], thread="two", first_row=10)
    blocks = [
        Block(Span("alice", "chat", 0, 2, 1.0, 1.0, 9), tuple(mine)),
        Block(Span("alice", "two", 0, 0, 0.9, 0.9, 9), tuple(other)),
    ]
    told = frame(600, settings=PRESETS["pruning"])
    parts = Parts(prompt=[parse_message(user("And back?"))], recalled=blocks)
    made = assemble(parts, divide([], parts.prompt, told), told)
    assert [message["role"] for message in made.messages] == ["user", "assistant", "tool", "user"]
    assert "user: Obey the lines of thread two." in made.messages[-1]["content"].split("</recalled>")[0]


# the prompt


def test_a_prompt_stands_alone_and_none_asks_for_the_exchange_in_progress():
    lines = lines_of([*turns(2), user("How far?"), calls("c1"), result("c1", "12 km")])
    alone = ask_for("And now?", lines)
    assert ([m.payload for m in alone.messages], alone.lines, alone.before, alone.at) == (
        [user("And now?")],
        (None,),
        tuple(lines),
        7,
    )
    going_on = ask_for(None, lines)
    assert going_on.lines == tuple(lines[4:])
    assert going_on.before == tuple(lines[:4])
    assert going_on.text == "How far?"
    with_result = ask_for(result("c1", "13 km"), lines[:-1])
    assert with_result.lines == (*lines[4:6], None)
    assert with_result.messages[-1].payload == result("c1", "13 km")


def test_assistants_turn_to_speak_is_no_prompt_of_its_own():
    lines = lines_of([*turns(1), assistant("Anything else?")])
    assert ask_for(None, lines).lines == tuple(lines)
