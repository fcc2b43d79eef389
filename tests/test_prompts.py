"""What a language model is told: the shipped files, and a user's own in their place."""

import pytest

from backscroll.errors import MessageError, NotFoundError
from backscroll.prompts import SHIPPED, load_prompt, open_prompts


def test_every_shipped_prompt_is_there_under_its_version():
    prompts = open_prompts()
    assert {purpose: prompt.version for purpose, prompt in prompts.items()} == dict(SHIPPED)
    assert all(prompt == load_prompt(prompt.version) and prompt.text for prompt in prompts.values())


def test_a_file_takes_the_place_of_a_shipped_prompt_and_its_version_tells_its_words(tmp_path):
    path = tmp_path / "mine.txt"
    path.write_text("In {words} words, please.\n", "utf-8")
    first = open_prompts({"summary": path})["summary"]
    assert first.filled(words=7) == "In 7 words, please."
    path.write_text("Briefly.\n", "utf-8")
    second = open_prompts({"summary": str(path)})["summary"]
    assert first.version.startswith("mine-")
    assert first.version != second.version


@pytest.mark.parametrize("content", [b"", b" \n", b"\xff\xfe\x00"])
def test_a_file_that_says_nothing_is_refused(tmp_path, content):
    path = tmp_path / "mine.txt"
    path.write_bytes(content)
    with pytest.raises(MessageError, match=r"mine\.txt"):
        open_prompts({"summary": path})


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(MessageError, match=r"gone\.txt"):
        open_prompts({"summary": tmp_path / "gone.txt"})


def test_a_prompt_for_nothing_that_there_is_names_those_that_there_are(tmp_path):
    with pytest.raises(NotFoundError, match="summary"):
        open_prompts({"sumary": tmp_path / "mine.txt"})
