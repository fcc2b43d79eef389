"""A file becomes messages; what is wrong in it is named with its line."""

import gzip
import json
from pathlib import Path

import pytest

from backscroll.errors import ImportFileError
from backscroll.importing import ImportFile, Record, check_file, read_file
from backscroll.types import ThreadKey

LINE = {
    "conversation": "alice",
    "thread": "boat",
    "index": 0,
    "speaker": "Alice",
    "role": "user",
    "text": "A boat!",
    "time": "2025-01-14T09:12:00",
    "id": "boat#0",
}
CHAT = [{"role": "user", "content": "Hi!"}, {"role": "assistant", "content": "Hello!"}]


def line(**changed: object) -> dict[str, object]:
    """A common line; a value of `...` leaves the key out."""
    return {key: value for key, value in {**LINE, **changed}.items() if value is not ...}


def file_of(folder: Path, content: str | bytes, name: str = "chat.jsonl", **where: str) -> ImportFile:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return ImportFile(path, str(path), **where)


def jsonl(*values: object) -> str:
    return "".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values)


def records(file: ImportFile) -> list[Record]:
    checked = check_file(file)
    found = list(read_file(file, checked.is_ordered))
    assert len(found) == checked.messages
    assert {record.key for record in found} == checked.keys
    return found


def texts(file: ImportFile) -> list[str]:
    return [record.message.text for record in records(file)]


def problem(file: ImportFile) -> ImportFileError:
    with pytest.raises(ImportFileError) as caught:
        check_file(file)
    assert caught.value.path == file.name
    assert str(caught.value).startswith(file.name)
    assert len(str(caught.value).splitlines()) == 1
    return caught.value


# Common lines


def test_a_common_line_is_a_message_of_its_thread(tmp_path):
    [record] = records(file_of(tmp_path, jsonl(LINE)))
    assert record.key == ThreadKey("alice", "boat")
    assert record.message.payload == {"role": "user", "content": "A boat!", "name": "Alice"}
    assert record.message.id == "boat#0"
    assert record.message.created_at.isoformat() == "2025-01-14T09:12:00+00:00"
    assert record.message.metadata == {}


def test_a_speaker_that_is_the_role_is_no_name(tmp_path):
    [record] = records(file_of(tmp_path, jsonl(line(speaker="user"))))
    assert "name" not in record.message.payload


def test_a_whole_message_is_taken_as_it_is(tmp_path):
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    whole = {"role": "assistant", "content": None, "tool_calls": [call]}
    [record] = records(file_of(tmp_path, jsonl(line(role="assistant", text="look {}", message=whole))))
    assert record.message.payload == whole
    assert record.message.id == "boat#0"


def test_times_may_be_null_and_texts_empty(tmp_path):
    [record] = records(file_of(tmp_path, jsonl(line(time=None, text=""))))
    assert record.message.created_at is None
    assert record.message.text == ""


def test_what_the_form_does_not_name_is_kept_as_metadata(tmp_path):
    [record] = records(file_of(tmp_path, jsonl(line(scene="harbor", metadata={"mood": "glad"}))))
    assert record.message.metadata == {"scene": "harbor", "mood": "glad"}


def test_user_and_thread_may_be_given(tmp_path):
    file = file_of(tmp_path, jsonl(line(conversation=..., thread=...)), user="bob", thread="sea")
    assert [record.key for record in records(file)] == [ThreadKey("bob", "sea")]


def test_lines_stand_in_the_order_of_their_indexes(tmp_path):
    mixed = [(2, "boat"), (0, "boat"), (1, "sea"), (1, "boat"), (0, "sea")]
    lines = [line(index=index, thread=thread, id=f"{thread}{index}") for index, thread in mixed]
    found = records(file_of(tmp_path, jsonl(*lines)))
    assert [record.message.id for record in found] == ["boat0", "boat1", "boat2", "sea0", "sea1"]


def test_indexes_may_be_left_out(tmp_path):
    lines = [line(index=..., id=name) for name in "zab"]
    assert [record.message.id for record in records(file_of(tmp_path, jsonl(*lines)))] == list("zab")


def test_an_id_of_two_contents_is_refused(tmp_path):
    lines = [line(), line(thread="sea"), line(text="Another boat!", index=1)]
    found = problem(file_of(tmp_path, jsonl(*lines)))
    assert found.line_number == 3
    assert "line 1" in str(found)


def test_threads_that_were_put_together_and_share_ids_are_refused(tmp_path):
    lines = jsonl(line(), line(thread="sea", text="Another boat!"))
    assert "--thread" in str(problem(file_of(tmp_path, lines, thread="all")))


# OpenAI-style files


@pytest.mark.parametrize(
    "content",
    [
        json.dumps(CHAT),
        json.dumps(CHAT, indent=2),
        json.dumps({"messages": CHAT}),
        json.dumps({"messages": CHAT}, indent=2),
        json.dumps([{"messages": CHAT}], indent=2),
        json.dumps([CHAT], indent=2),
        jsonl(*CHAT),
        "\n" + jsonl(*CHAT).replace("\n", "\r\n\r\n"),
        "\ufeff" + jsonl(*CHAT),
        "\n\n" + json.dumps(CHAT, indent=2),
    ],
)
def test_a_chat_is_read_in_every_openai_style_form(tmp_path, content):
    found = records(file_of(tmp_path, content, "talk.json"))
    assert [record.message.payload for record in found] == CHAT
    assert {record.key for record in found} == {ThreadKey("default", "talk")}


@pytest.mark.parametrize(
    "content",
    [jsonl({"messages": CHAT}, {"messages": CHAT}), json.dumps([{"messages": CHAT}] * 2, indent=1), jsonl(CHAT, CHAT)],
)
def test_several_chats_are_several_threads(tmp_path, content):
    keys = [record.key.thread for record in records(file_of(tmp_path, content, "talk.jsonl"))]
    assert keys == ["talk", "talk", "talk-2", "talk-2"]


def test_a_chat_may_name_its_user_and_thread(tmp_path):
    chat = {"user": "alice", "thread": "boat", "messages": CHAT}
    assert {record.key for record in records(file_of(tmp_path, jsonl(chat)))} == {ThreadKey("alice", "boat")}


def test_messages_without_ids_get_the_same_ones_each_time(tmp_path):
    first, again = (
        [record.message.id for record in records(file_of(tmp_path, content))]
        for content in (jsonl(*CHAT, *CHAT), json.dumps([*CHAT, *CHAT], indent=1))
    )
    assert first == again
    assert len(set(first)) == 4


def test_ids_depend_on_user_thread_place_and_content(tmp_path):
    message = {"role": "user", "content": "Hi!"}
    made = [
        record.message.id
        for where in ({}, {"user": "alice"}, {"thread": "boat"})
        for content in ([message, message], [{**message, "content": "Hi?"}])
        for record in records(file_of(tmp_path, jsonl(*content), **where))
    ]
    assert len(set(made)) == 3 * 3


def test_own_ids_and_times_are_kept(tmp_path):
    [record] = records(file_of(tmp_path, jsonl({**CHAT[0], "id": "m1", "created_at": 0})))
    assert (record.message.id, record.message.created_at.year) == ("m1", 1970)


# Packing and encoding


@pytest.mark.parametrize("name", ["chat.jsonl.gz", "chat.jsonl", "chat"])
def test_gzip_is_read_as_it_is_whatever_its_name(tmp_path, name):
    assert texts(file_of(tmp_path, gzip.compress(jsonl(LINE).encode()), name)) == ["A boat!"]


def test_a_file_that_is_only_called_gz_is_read(tmp_path):
    assert texts(file_of(tmp_path, jsonl(LINE), "chat.jsonl.gz")) == ["A boat!"]


def test_line_separators_of_unicode_end_no_line(tmp_path):
    text = "one\u2028two\x85three"
    assert texts(file_of(tmp_path, jsonl(line(text=text)))) == [text]


# What is wrong


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("not json", "not JSON"),
        ('{"role": "user", "content": "cut', "not JSON"),
        ("[1, 2", "not JSON"),
        ("[" * 100_000, "nested too deep"),
        ("null", "expected lines"),
        ("12", "expected lines"),
        ('{"question": "Who?", "answer": "Alice"}', "question, answer: expected lines"),
        ("{}", "no keys"),
        (json.dumps(line(conversation=...)), 'no "conversation"'),
        (json.dumps(line(thread=...)), 'no "thread"'),
        (json.dumps(line(role=...)), 'no "role"'),
        (json.dumps(line(text=...)), 'no "text"'),
        (json.dumps(line(role="human")), "role is one of"),
        (json.dumps(line(role=["user"])), "role is one of"),
        (json.dumps(line(role="tool")), "tool_call_id"),
        (json.dumps(line(text=None)), '"text" is text, not null'),
        (json.dumps(line(text=["a"])), '"text" is text, not a list'),
        (json.dumps(line(speaker=7)), '"speaker" is text'),
        (json.dumps(line(conversation=7)), '"conversation" is text'),
        (json.dumps(line(thread=" ")), '"thread" is text that is not empty'),
        (json.dumps(line(thread="\ud800")), "surrogate"),
        (json.dumps(line(id="\ud800")), "surrogate"),
        (json.dumps(line(text="\ud800")), "surrogate"),
        (json.dumps(line(id=7)), "id is text"),
        (json.dumps(line(index="0")), '"index" is a whole number'),
        (json.dumps(line(time="yesterday")), '"time" is ISO 8601'),
        (json.dumps(line(message="Hi!")), '"message" is an OpenAI-style message'),
        (json.dumps(line(message={"role": "user"})), "needs content"),
        (json.dumps(line(metadata=[1])), '"metadata" is an object'),
        (json.dumps(line(pinned="yes")), '"pinned" is true or false'),
        (json.dumps({"messages": CHAT}), "the form of chats, and the file began with lines"),
        (json.dumps(CHAT[0]), "the form of messages, and the file began with lines"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path, wrong, said):
    found = problem(file_of(tmp_path, jsonl(LINE) + "\n" + wrong + "\n" + jsonl(line(id="boat#1", index=1))))
    assert found.line_number == 3
    assert said in str(found)


@pytest.mark.parametrize(
    ("content", "line_number", "said"),
    [
        ("not json at all", 1, "expected lines"),
        ("[\n  1,\n  oops\n]", 3, "not JSON"),
        ('\n{\n "messages": [\n', 4, "not JSON"),
        (json.dumps({"messages": "Hi!"}), 1, '"messages" is a list'),
        (json.dumps([*CHAT, {"role": "human", "content": "Hi!"}]), 1, "message 2: role is one of"),
        (json.dumps([*CHAT, {"role": "human", "content": "Hi!"}], indent=1), None, "message 2: role is one of"),
        (json.dumps([*CHAT, "Hi!"]), 1, "message 2: a message is a dict"),
        (json.dumps([CHAT, {"messages": [{"content": "Hi!"}]}]), 1, "item 1 of the list: message 0: a message needs"),
        (json.dumps({"content": "Hi!"}), 1, "needs a role"),
        (json.dumps({"messages": CHAT, "thread": 7}), 1, '"thread" is text'),
    ],
)
def test_a_file_of_another_form_is_named(tmp_path, content, line_number, said):
    found = problem(file_of(tmp_path, content))
    assert found.line_number == line_number
    assert said in str(found)


@pytest.mark.parametrize("content", ["", "\n \n", "[]", '{"messages": []}'])
def test_a_file_without_messages_is_an_error(tmp_path, content):
    assert "no message" in str(problem(file_of(tmp_path, content)))


@pytest.mark.parametrize(
    ("content", "line_number"),
    [
        (jsonl(LINE).encode() + b'{"role": "user", "content": "caf\xe9"}\n', 2),
        (b'[\n{"role": "user", "content": "caf\xe9"}\n]', 2),
        (jsonl(LINE).encode("utf-16"), 1),
    ],
)
def test_bytes_that_are_not_utf_8_are_named_with_their_line(tmp_path, content, line_number):
    found = problem(file_of(tmp_path, content))
    assert found.line_number == line_number
    assert "UTF-8" in str(found)


def test_a_truncated_gzip_file_is_an_error(tmp_path):
    whole = gzip.compress(jsonl(*(line(id=str(i), index=i, text=str(i * i)) for i in range(5000))).encode())
    for end in (5, len(whole) // 2, len(whole) - 1):
        assert "cut off" in str(problem(file_of(tmp_path, whole[:end], "chat.jsonl.gz")))


def test_a_damaged_gzip_file_is_an_error(tmp_path):
    whole = bytearray(gzip.compress(jsonl(*(line(id=str(i), index=i) for i in range(5000))).encode()))
    whole[len(whole) // 2] ^= 0xFF
    assert "damaged" in str(problem(file_of(tmp_path, bytes(whole), "chat.jsonl.gz")))


def test_a_folder_and_a_missing_file_are_errors(tmp_path):
    assert "a folder" in str(problem(ImportFile(tmp_path, str(tmp_path))))
    assert "no such file" in str(problem(ImportFile(tmp_path / "chat.json", "chat.json")))


def test_a_file_that_may_not_be_read_is_an_error(tmp_path, monkeypatch):
    def refuse(*args: object) -> None:
        raise PermissionError(13, "Permission denied")

    file = file_of(tmp_path, jsonl(LINE))
    monkeypatch.setattr(Path, "open", refuse)
    assert "Permission denied" in str(problem(file))


def test_progress_is_told_in_bytes_of_the_file(tmp_path):
    told: list[int] = []
    file = file_of(tmp_path, jsonl(*(line(id=str(i), index=i) for i in range(3000))))
    check_file(file, told.append)
    assert len(told) == 3
    assert told == sorted(told)
    assert told[-1] <= file.path.stat().st_size


def test_the_sample_is_one_that_can_be_imported():
    sample = Path(__file__).parents[1] / "examples" / "support_chat.jsonl"
    checked = check_file(ImportFile(sample, str(sample)))
    assert checked.messages == len(sample.read_text("utf-8").splitlines())
    assert checked.is_ordered
