"""Which messages belong together."""

from hypothesis import given

from backscroll.exchanges import atoms, call_ids, exchanges, is_whole, sendable
from chats import assistant, calls, chats, result, system, user

RUN = [user("How far?"), calls("c1", "c2"), result("c2", "3 km"), result("c1", "12 km"), assistant("12 km.")]


@given(chats())
def test_atoms_and_exchanges_are_all_the_messages_in_order(chat):
    for split in (atoms, exchanges):
        assert [place for run in split(chat) for place in run] == list(range(len(chat)))
        assert all(run for run in split(chat))


@given(chats())
def test_no_exchange_cuts_a_whole_call_from_its_results(chat):
    starts = {run.start for run in exchanges(chat)}
    for atom in atoms(chat):
        assert not starts & set(atom[1:])


@given(chats())
def test_what_is_sendable_has_every_call_answered_once_right_behind_it(chat):
    places = sendable(chat)
    assert places == sorted(set(places))
    assert sendable([chat[place] for place in places]) == list(range(len(places)))
    waiting: set[str] = set()
    for place in places:
        if chat[place]["role"] == "tool":
            waiting.remove(chat[place]["tool_call_id"])
        else:
            assert not waiting
            waiting = set(call_ids(chat[place]))
    assert not waiting


@given(chats(), chats())
def test_messages_are_cut_the_same_whether_or_not_others_behind_them_call(chat, more):
    behind = [*RUN, *more]  # a question first, so that it answers no call in front of it
    assert atoms([*chat, *behind])[: len(atoms(chat))] == atoms(chat)
    assert sendable([*chat, *behind])[: len(sendable(chat))] == sendable(chat)


def test_a_call_and_its_results_in_any_order_are_one_atom():
    assert atoms(RUN) == [range(1), range(1, 4), range(4, 5)]
    assert is_whole(RUN[1:4])
    assert not is_whole(RUN[1:3])
    assert not is_whole(RUN[2:3])


def test_an_exchange_is_a_question_with_all_that_answered_it():
    assert exchanges([system("Be brief."), *RUN, *RUN]) == [range(1), range(1, 6), range(6, 11)]
    assert exchanges([user("One"), user("two"), assistant("3")]) == [range(3)]


def test_in_a_meeting_every_change_of_the_speaker_opens_an_exchange():
    meeting = [user("a", name="Ann"), user("b", name="Ann"), user("c", name="Bob"), user("d")]
    assert exchanges(meeting) == [range(2), range(2, 3), range(3, 4)]


def test_of_nothing_there_is_nothing():
    assert atoms([]) == exchanges([]) == sendable([]) == []


def test_unanswered_calls_orphan_results_and_empty_messages_are_not_sendable():
    chat = [
        result("c0", "late"),
        user(""),
        calls("c1", "c2"),
        result("c1", "12 km"),
        user("Well?"),
        result("c2", "3 km"),
    ]
    assert sendable(chat) == [4]


def test_an_id_that_is_used_again_belongs_to_the_newest_call():
    assert sendable([calls("c1"), result("c1", "a"), calls("c1"), result("c1", "b"), result("c1", "c")]) == [0, 1, 2, 3]
