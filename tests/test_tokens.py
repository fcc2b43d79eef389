"""Counts of tokens: exact where a vocabulary is known, by stated estimates beside the texts, else overestimated."""

import json

import bpe_openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from backscroll.errors import NotFoundError
from backscroll.tokens import message_tokens, open_counter, tools_tokens
from chats import TEXTS, TOOLS, chats, image, recount, user

KNOWN = {  # as OpenAI's tokenizer page and the test data of tiktoken give them
    "o200k_base": {"": 0, "hello world": 2, "Hello, world!": 4},
    "cl100k_base": {"": 0, "hello world": 2, "Hello, world!": 4},
}
ENCODINGS = {vocabulary: bpe_openai.get_encoding(vocabulary) for vocabulary in KNOWN}


@pytest.mark.parametrize("vocabulary", KNOWN)
def test_counts_are_those_that_are_published(vocabulary):
    counter = open_counter(vocabulary)
    assert {text: counter.count(text) for text in KNOWN[vocabulary]} == KNOWN[vocabulary]


@pytest.mark.parametrize("vocabulary", KNOWN)
@given(text=st.one_of(st.text(max_size=60), st.sampled_from(TEXTS)))
def test_counts_are_those_of_the_vocabulary_itself(vocabulary, text):
    assert open_counter(vocabulary).count(text) == len(ENCODINGS[vocabulary].encode_ordinary(text))


def test_the_name_of_a_special_token_is_ordinary_text():
    assert open_counter().count("<|endoftext|>") > 1


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (None, "o200k_base"),
        ("gpt-4o-mini", "o200k_base"),
        ("gpt-4.1", "o200k_base"),
        ("gpt-5", "o200k_base"),
        ("openai/gpt-4o", "o200k_base"),
        ("o3-mini", "o200k_base"),
        ("gpt-4", "cl100k_base"),
        ("gpt-4-turbo", "cl100k_base"),
        ("gpt-3.5-turbo", "cl100k_base"),
        ("llama-3", "overestimate for llama-3"),
    ],
)
def test_a_model_is_counted_by_its_vocabulary(model, name):
    assert open_counter(model).name == name


@given(st.one_of(st.text(max_size=60), st.sampled_from(TEXTS)))
def test_an_unknown_model_is_overestimated(text):
    unknown = open_counter("some-model")
    assert unknown.count(text) >= max(open_counter(one).count(text) for one in KNOWN)
    assert isinstance(unknown.count(text), int)


def test_an_unknown_model_costs_more_for_a_message_too():
    unknown, known = open_counter("some-model"), open_counter()
    assert unknown.tokens_per_message > known.tokens_per_message
    assert unknown.tokens_per_reply > known.tokens_per_reply


def test_a_tokenizer_file_counts_by_itself(tmp_path):
    path = str(tmp_path / "tokenizer.json")
    made = Tokenizer(WordLevel({"[UNK]": 0, "van": 1}, unk_token="[UNK]"))
    made.pre_tokenizer = Whitespace()
    made.enable_padding(length=128)
    made.enable_truncation(max_length=4)
    made.save(path)
    counter = open_counter(path)
    assert [counter.count(text) for text in ("", "van", "van van lorry", "van " * 200)] == [0, 1, 3, 200]
    assert counter.name == path


def test_a_tokenizer_file_that_is_not_there_is_named():
    with pytest.raises(NotFoundError, match="tokenizer file"):
        open_counter("/nowhere/missing.json")


@given(chats())
def test_a_message_costs_what_the_estimates_say(chat):
    counter = open_counter()
    for message in chat:
        assert message_tokens(message, counter) == recount([message]) - 3


def test_parts_cost_what_the_estimates_say():
    counter = open_counter()

    def cost(part) -> int:
        return message_tokens(user([part]), counter) - 3

    assert cost(image("x")) == 85
    assert cost({"type": "image_url", "image_url": {"url": "x"}}) == 1445
    assert cost({"type": "image_url", "image_url": {"url": "x", "detail": "high"}}) == 1445
    assert cost({"type": "input_audio", "input_audio": {"data": "A" * 400, "format": "wav"}}) == 100
    assert cost({"type": "input_audio", "input_audio": {"data": "A" * 1_600_000}}) == 1_600_000 * 3 // 4 // 1600
    assert cost({"type": "file", "file": {"file_id": "f1"}}) == 1500
    assert cost({"type": "file", "file": {"file_data": "A" * 80_000}}) == 80_000 * 3 // 4 // 4
    strange = {"type": "hologram", "data": "小舟"}
    assert cost(strange) == counter.count(json.dumps(strange, ensure_ascii=False, separators=(",", ":")))


def test_tools_cost_their_json_and_eight_each():
    assert tools_tokens(TOOLS * 2, open_counter()) == recount([], TOOLS * 2) - recount([])
    assert tools_tokens((), open_counter()) == 0
