"""Counts of tokens: exact where a vocabulary is known, by stated estimates beside the texts, else overestimated."""

import json
import random
import subprocess
import sys
import time
import tracemalloc
from importlib.util import find_spec
from pathlib import Path

import bpe_openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from backscroll.embedders.model_files import PACKAGE
from backscroll.errors import BudgetError, MessageError, NotFoundError
from backscroll.tokens import message_tokens, open_counter, tools_tokens
from chats import TEXTS, TOOLS, all_text, assistant, chats, image, recount, user

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
        ("azure/gpt-4o", "o200k_base"),
        ("openrouter/openai/gpt-4o", "o200k_base"),
        ("openrouter/openai/gpt-4o:free", "o200k_base"),
        ("GPT-4o", "o200k_base"),
        ("Azure/GPT-35-Turbo", "cl100k_base"),
        ("ft:gpt-4o:org::id", "o200k_base"),
        ("openai/ft:gpt-3.5-turbo:org::id", "cl100k_base"),
        ("meta/Llama-3", "overestimate for meta/Llama-3"),
    ],
)
def test_a_model_is_counted_by_its_vocabulary(model, name):
    assert open_counter(model).name == name


@pytest.mark.parametrize("model", ["", "  ", 7, ["gpt-4o"]])
def test_a_model_without_a_name_is_refused(model):
    with pytest.raises(MessageError, match="model's name, or None"):
        open_counter(model)


@given(st.one_of(st.text(max_size=60), st.sampled_from(TEXTS)))
def test_an_unknown_model_is_overestimated(text):
    unknown = open_counter("some-model")
    assert unknown.count(text) >= max(open_counter(one).count(text) for one in KNOWN)
    assert isinstance(unknown.count(text), int)


def _random_text(alphabet: str, characters: int = 3000) -> str:
    return "".join(random.Random(7).choices(alphabet, k=characters))


PROSE = (Path(__file__).parent.parent / "docs" / "why.md").read_text(encoding="utf-8")
KINDS = {
    "prose": PROSE,
    "shouted prose": PROSE.upper(),
    "code": Path(__file__).read_text(encoding="utf-8"),
    "JSON": json.dumps({"vans": [{"id": 12, "at": "2026-05-01T12:00:00Z", "x": -12.3e-7}] * 40}),
    "digits": "1234567890" * 300,
    "digits apart": "12 345 6789 " * 200,
    "hexadecimal": " ".join(f"{number * 7919:08x}" for number in range(400)),
    "spaces": " " * 4000,
    "line ends": "\r\n\t" * 1000,
    "indentation": "\n        x\n    y = 1" * 100,
    "dashes": "-" * 4000,
    "signs": "!?.,;:()[]{}<>@#$%^&*" * 100,
    "signs in words": "a,b.c-d_e/f it's " * 100,
    "a table": "| a | b |\n|---|---|\n" * 100,
    "random words": _random_text("abcdefghijklmnopqrstuvwxyz "),
    "Polish": "Wszyscy ludzie rodzą się wolni i równi pod względem swej godności. " * 20,
    "Indonesian": "Semua orang dilahirkan merdeka dan mempunyai martabat dan hak-hak yang sama. " * 20,
    "Russian": "Все люди рождаются свободными и равными в своем достоинстве и правах. " * 20,
    "Georgian": "ყველა ადამიანი იბადება თავისუფალი და თანასწორი თავისი ღირსებითა. " * 20,
    "Armenian": "Բոլոր մարդիկ ծնվում են ազատ ու հավասար՝ իրենց արժանապատվությամբ։ " * 20,
    "Kannada": "ಎಲ್ಲಾ ಮಾನವರೂ ಸ್ವತಂತ್ರರಾಗಿಯೇ ಜನಿಸಿದ್ದಾರೆ. " * 20,
    "Chinese": "人人生而自由，在尊严和权利上一律平等。他们赋有理性和良心。" * 20,
    "rare Chinese": "".join(map(chr, range(0x4E00, 0x9FFF, 7))),
    "Japanese": "すべての人間は、生まれながらにして自由である。" * 20,
    "emoji": "🚚🚚 parked 👩‍👩‍👧‍👦 ok 🎉😂❤️👍🏽 ✅☎️ " * 50,
    "flags": "🇩🇪🇫🇷" * 200,
    "quotation marks": "“He said ‘it’s fine’ — and left…” " * 50,
    "ellipses": "…" * 1000,
    "boxes": "═" * 1000 + "╳" * 500,
    "wide signs": "ＡＢＣ１２３！\u3000" * 100,
    "control characters": "\x00\x01\x1b\x7f" * 100,
}


def _minilm() -> str:
    found = find_spec(PACKAGE)
    assert found is not None and found.origin is not None
    return str(Path(found.origin).parent / "model" / "tokenizer.json")


@pytest.mark.parametrize("kind", KINDS)
def test_no_vocabulary_at_hand_needs_more_than_the_overestimate(kind):
    true = {name: open_counter(name).count(KINDS[kind]) for name in (*KNOWN, _minilm())}
    assert open_counter("some-model").count(KINDS[kind]) >= max(true.values()), true


@given(st.lists(st.one_of(st.sampled_from(TEXTS), st.text(max_size=20), st.sampled_from(["7" * 40, " " * 40]))))
def test_no_mixture_of_texts_needs_more_than_the_overestimate(texts):
    text = " ".join(texts)
    true = {name: open_counter(name).count(text) for name in (*KNOWN, _minilm())}
    assert open_counter("some-model").count(text) >= max(true.values()), true


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("7" * 3000, 3000),
        (" " * 4000, 4000),
        ("-" * 4000, 4000),
        ("\n" * 500, 500),
        ("🇩🇪" * 100, 8 * 100),
        ("“" * 100, 2 * 100),
        ("van 7 vans", 3 + 1 + 1),  # four thirds of two words' tokens, rounded up; a space; the digit
    ],
    ids=lambda given: repr(given)[:5],
)
def test_what_is_no_word_is_overestimated_by_its_bytes(text, tokens):
    assert open_counter("some-model").count(text) == tokens + 1  # the mark of the text's start


def test_plain_prose_is_overestimated_by_less_than_a_half():
    prose = "I will pick up the parcels at the depot, and then drive to the harbor. Did Anna call you back yesterday? "
    assert (
        open_counter().count(prose)
        < open_counter("some-model").count(prose * 20) / 20
        < 1.5 * open_counter().count(prose)
    )


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


FIVE_MEGABYTES = {
    "words": "The depot keeps a list of every van. ",
    "one word": "abcdefghij",
    "Chinese": "明天早上六点发车请通知司机",
    "spaces": " ",
    "emoji": "👩‍👩‍👧‍👦",
    "cuneiform": "\U00012000",  # the worst: four tokens a character
}


@pytest.mark.parametrize("unit", FIVE_MEGABYTES.values(), ids=FIVE_MEGABYTES)
def test_a_text_of_any_length_is_counted(unit):
    text = unit * (5_000_000 // len(unit.encode()))
    once = len(ENCODINGS["o200k_base"].encode_ordinary(text[:40_000])) / 40_000
    started = time.perf_counter()
    tokens = message_tokens(user(text), open_counter()) - 3
    assert time.perf_counter() - started < 10
    assert once * len(text) * 0.999 <= tokens <= once * len(text) * 1.001 + 2 * len(text) / 40_000
    assert message_tokens(user(text), open_counter("some-model")) > tokens


@pytest.mark.parametrize("model", [None, "some-model", _minilm()])
def test_no_text_that_was_counted_stays_in_memory(model):
    counter = open_counter(model)
    counter.count("warm")
    tracemalloc.start()
    for number in range(50):
        counter.count(f"{number} " + "The depot is open. " * 5_000)
    left, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert left < 100_000  # 50 texts of 95,000 characters


def test_a_text_counted_again_gives_the_same_number():
    texts = [f"Van {number}" for number in range(20_000)]
    counter = open_counter()
    assert [counter.count(text) for text in texts] == [counter.count(text) for text in texts]


@pytest.mark.parametrize("unit", [PROSE, "abcdefghij", "明天早上六点发车，请通知司机。", " ", "👩‍👩‍👧‍👦 ", "\n"])
@pytest.mark.parametrize("vocabulary", KNOWN)
def test_a_long_text_is_counted_by_a_few_tokens_more_at_most(vocabulary, unit):
    text = unit * (90_000 // len(unit))
    whole = len(ENCODINGS[vocabulary].encode_ordinary(text))
    assert whole <= open_counter(vocabulary).count(text) <= whole + 2 * 4  # two cuts


def test_a_long_text_with_spaces_is_counted_exactly():
    text = TEXTS[0] + " " + " ".join(f"Van {number} leaves at six, don't wait." for number in range(5_000))
    assert open_counter().count(text) == len(ENCODINGS["o200k_base"].encode_ordinary(text))


def test_a_giant_message_is_stored_and_left_out_of_a_small_context(memory):
    thread = memory.thread("chat")
    thread.append([user("My badge is 4711."), assistant("Noted."), user("The depot is open. " * 60_000)])
    context = thread.context("Which badge?", max_tokens=500, preset="sliding_window")
    assert context.tokens == recount(context.messages) <= 500
    assert "Which badge?" in all_text(context.messages)


@pytest.mark.parametrize("model", [None, "some-model"])
def test_a_giant_prompt_is_a_budget_error(memory, model):
    with pytest.raises(BudgetError) as caught:
        memory.thread("chat").context("🚚" * 300_000, max_tokens=8000, model=model)
    assert caught.value.needed > 300_000


@given(chats())
def test_a_message_costs_what_the_estimates_say(chat):
    counter = open_counter()
    for message in chat:
        assert message_tokens(message, counter) == recount([message]) - 3


def test_empty_keys_beside_a_text_cost_nothing():
    plain = {"role": "user", "content": "Hello there!", "name": "Ann"}
    empty = {**plain, "refusal": None, "tool_calls": [], "audio": None}
    assert message_tokens(plain, open_counter()) == message_tokens(empty, open_counter()) == 3 + 3 + 1 + 1


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


def test_keys_that_are_kept_and_sent_cost_their_json():
    counter = open_counter()
    plain = assistant("It leaves at six.")

    def cost(**beside) -> int:
        return message_tokens({**plain, **beside}, counter) - message_tokens(plain, counter)

    for beside in (
        {"reasoning_content": "The depot opens at five. " * 50},
        {"function_call": {"name": "find", "arguments": "{}"}},
        {"audio": {"id": "a1", "transcript": "It leaves at six."}},
        {"reasoning_content": "小舟", "custom": [1, 2]},
    ):
        assert cost(**beside) == counter.count(json.dumps(beside, ensure_ascii=False, separators=(",", ":")))
    assert cost(reasoning_content="", function_call=None, audio={}, annotations=[]) == 0
    part = {"type": "text", "text": "It leaves at six."}
    cached = {"cache_control": {"type": "ephemeral"}}
    apart = message_tokens(user([part | cached]), counter) - message_tokens(user([part]), counter)
    assert apart == counter.count('{"cache_control":{"type":"ephemeral"}}')


@pytest.mark.parametrize(
    "tool",
    [object(), "find", ["find"], None, {"schema": {1, 2}}, {"name": "\ud83d"}],
    ids=lambda tool: type(tool).__name__,
)
def test_a_tool_that_is_none_is_named(memory, tool):
    with pytest.raises(MessageError, match="tool 1: a tool is a dict "):
        tools_tokens([TOOLS[0], tool], open_counter())
    with pytest.raises(MessageError, match="tool 0: a tool is a dict "):
        memory.thread("chat").context("Hello?", max_tokens=500, tools=[tool])


def test_tools_cost_their_json_and_eight_each():
    assert tools_tokens(TOOLS * 2, open_counter()) == recount([], TOOLS * 2) - recount([])
    assert tools_tokens((), open_counter()) == 0


def test_counting_reads_no_vocabulary_that_is_not_asked_for():
    program = "import sys; from backscroll.tokens import open_counter; open_counter().count('Hi!'); print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "backscroll.tokens" in run.stdout.split()
    assert not {"bpe_openai", "bpe_openai.registry"} & set(run.stdout.split())
