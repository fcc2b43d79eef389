"""A message is made to stand alone from the lines before it, without a language model."""

import json

import numpy as np
import pytest

from backscroll.contextualize import CONTEXTUALIZERS, Contextualized, Part, Said, combine, contextualize
from backscroll.contextualize.phrases import MAX_PHRASES, phrases, relevant
from backscroll.contextualize.references import kind, say
from backscroll.contextualize.resolve import MAX_PARTS, choices
from backscroll.contextualize.salience import see
from backscroll.contextualize.scoring import shares, shipped, table
from backscroll.errors import NotFoundError

CANCER = [
    Said("user", "What is throat cancer?"),
    Said("assistant", "Throat cancer is a disease in which malignant cells form in the tissues of the pharynx."),
]
ALONE = [
    "How tall is the Eiffel Tower in Paris?",
    "When did Caroline adopt the grey kitten?",
    "How many bikes do I currently own?",
    "Who wrote the opera about the Flying Dutchman?",
]


def changed(message, recent):
    made = contextualize(message, recent)
    return made.text if made.is_changed else None


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("Is it treatable?", "Is throat cancer treatable?"),
        ("What are its symptoms?", "What are throat cancer's symptoms?"),
        ("What are the symptoms?", "What are the symptoms of throat cancer?"),
    ],
)
def test_what_is_missing_is_taken_from_the_lines_before(message, text):
    assert changed(message, CANCER[:1]).lower() == text.lower()


def test_a_person_is_found_behind_a_chain_of_pronouns():
    recent = [
        Said("user", "Where did Freddie King grow up?"),
        Said("assistant", "In Dallas, until his family moved to Chicago in 1949."),
        Said("user", "Did he have any hits?"),
        Said("assistant", "Hide Away was one."),
    ]
    assert changed("When was he born?", recent) == "When was Freddie King born?"


@pytest.mark.parametrize("message", ALONE)
@pytest.mark.parametrize("recent", [[], CANCER, CANCER * 5])
def test_a_message_that_stands_alone_is_left_as_it_is(message, recent):
    assert contextualize(message, recent) == Contextualized(message, (Part(message, 1.0),), is_changed=False)


@pytest.mark.parametrize("name", CONTEXTUALIZERS)
@pytest.mark.parametrize("recent", [[], [Said("user", "")], [Said("tool", "42")], [Said("system", "Be " * 40)]])
def test_without_anything_said_before_a_message_is_left_as_it_is(name, recent):
    assert not contextualize("Is it treatable?", recent, name).is_changed


@pytest.mark.parametrize(
    "message", ["Hi!", "Thank you so much.", "ok", "Wow", "Good morning, how are you?", "OK, great."]
)
def test_small_talk_is_left_as_it_is(message):
    assert not contextualize(message, CANCER).is_changed


def test_a_system_prompt_that_instructs_names_no_topic_but_a_title_does():
    assert not contextualize("Is it treatable?", [Said("system", "You are a helpful assistant.")]).is_changed
    assert "lung cancer" in contextualize("Is it treatable?", [Said("system", "Lung cancer")]).text.lower()


def test_the_same_message_and_lines_give_the_same_query():
    first = contextualize("What about the other one?", CANCER)
    assert all(contextualize("What about the other one?", list(CANCER)) == first for _ in range(3))


def test_parts_are_few_weighted_and_the_heaviest_comes_first():
    made = contextualize("Is it treatable?", CANCER)
    weights = [part.weight for part in made.parts]
    assert 1 <= len(weights) <= MAX_PARTS
    assert weights == sorted(weights, reverse=True) and min(weights) > 0
    assert made.text == made.parts[0].text
    assert made.note


def test_chinese_keeps_its_text_and_is_blended_with_what_was_said():
    recent = [Said("user", "喉癌是什么病？"), Said("assistant", "喉癌是一种恶性肿瘤。")]
    made = contextualize("能治好吗？", recent)
    assert made.text == "能治好吗？"
    assert made.parts[0] == Part("能治好吗？", 1.0)
    assert {part.text for part in made.parts[1:]} == {"喉癌是什么病？", "喉癌是一种恶性肿瘤。"}


def test_a_long_chinese_message_is_left_as_it_is():
    message = "我昨天和朋友一起去了北京的颐和园看荷花，晚上又在胡同里吃了烤鸭和炸酱面"
    assert not contextualize(message, [Said("user", "你好，今天天气怎么样？")]).is_changed


def test_another_language_among_english_lines_keeps_its_text():
    for message in ("你好，谁付保险？", "Сколько это стоит?", "Wie teuer wird das?"):
        assert contextualize(message, CANCER).text == message


def test_german_keeps_its_text():
    recent = [Said("user", "Wie hoch ist der Fernsehturm in Berlin?"), Said("assistant", "Er ist 368 Meter hoch.")]
    made = contextualize("Wann wurde er gebaut?", recent)
    assert made.text == "Wann wurde er gebaut?"


def test_none_changes_nothing_and_blend_changes_no_word():
    assert not contextualize("Is it treatable?", CANCER, "none").is_changed
    made = contextualize("Is it treatable?", CANCER, "blend")
    assert made.is_changed and made.text == "Is it treatable?"
    assert [part.text for part in made.parts] == ["Is it treatable?", "What is throat cancer?", CANCER[-1].text]


def test_an_unknown_contextualizer_lists_the_known_ones():
    with pytest.raises(NotFoundError, match="none, blend, trained"):
        contextualize("Is it treatable?", CANCER, "magic")


def test_the_vector_is_the_weighted_sum_of_unit_length():
    made = Contextualized("a", (Part("a", 3.0), Part("b", 1.0)), is_changed=True)
    vectors = np.eye(2, 4, dtype=np.float32)
    expected = (3 * vectors[0] + 1 * vectors[1]) / np.sqrt(3**2 + 1**2)
    np.testing.assert_allclose(combine(vectors, made), expected, rtol=1e-6)


def test_the_vector_of_a_message_left_alone_is_its_own():
    vector = np.array([[0.6, 0.8]], dtype=np.float32)
    np.testing.assert_array_equal(combine(vector, contextualize("Nice!", [])), vector[0])


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("Is it treatable?", "Is Yoga treatable?"),
        ("it's what?", "Yoga is what?"),
        ("What are their goals?", "What are Yoga's goals?"),
        ("Is her teacher good?", "Is Yoga's teacher good?"),
        ("Did she like her?", "Did Yoga like her?"),
        ("What about that?", "What about Yoga?"),
        ("What are these exercises?", "What are Yoga exercises?"),
        ("Is there a course?", "Is there a course of Yoga?"),
        ("I think that people do", "I think that people do of Yoga"),
        ("When did Gina get her tattoo?", "When did Gina get her tattoo of Yoga?"),
        ("Where shall we go this weekend?", "Where shall we go this weekend of Yoga?"),
        ("Why", "Why of Yoga"),
    ],
)
def test_a_phrase_takes_the_place_of_the_first_pronoun_or_the_end(message, said):
    assert say(message, "Yoga") == said


def test_the_kind_of_a_pronoun_is_that_of_the_one_that_is_replaced():
    assert [kind(one) for one in ("Is it?", "Did they?", "Who is he?", "Is this so?", "Why?")] == [
        "it", "they", "person", "pointing", "",
    ]  # fmt: skip


def test_phrases_are_runs_of_topical_words_and_the_names_in_them():
    found = phrases([Said("user", "Tell me about the Bank of England and about Tesla cars.")])
    assert {phrase.text for phrase in found} == {"Bank of England", "Tesla cars", "Tesla"}


def test_a_phrase_knows_where_it_was_said():
    (phrase,) = phrases([Said("user", "What is yoga?"), Said("user", "Is yoga old?")])
    assert [(mention.line, mention.age) for mention in phrase.mentions] == [(0, 1), (1, 0)]


def test_many_and_endless_lines_are_cut():
    lines = [Said("assistant", " and ".join(f"word{i}x{j}" for j in range(200))) for i in range(50)]
    held = relevant([Said("user", "yoga"), *lines])
    assert len(held) < 20 and held[0].text == "yoga"
    assert len(phrases(held)) == MAX_PHRASES


@pytest.mark.parametrize("message", ["", " ", "?!", "🙂", "\ud800", "x" * 5000, "it " * 3000, "\x00", "I'm 5'4\" "])
def test_any_text_passes(message):
    made = contextualize(message, [*CANCER, Said("user", message)])
    assert made.parts and all(part.weight > 0 for part in made.parts)


def test_the_shipped_weights_name_the_numbers_that_there_are():
    lines = relevant(CANCER)
    scene = see("Is it treatable?", lines)
    found = choices("Is it treatable?", lines, scene)
    assert {name for one in found for name in one.numbers} | set(scene.message) == set(shipped().names)
    assert set(shipped().gate_names) == set(scene.message)
    likely = shares(shipped(), table([one.numbers for one in found], scene.message, shipped().names))
    assert likely.sum() == pytest.approx(1)


def test_the_values_are_plain():
    made = contextualize("Is it treatable?", CANCER)
    assert json.loads(json.dumps([part.weight for part in made.parts])) == [part.weight for part in made.parts]
