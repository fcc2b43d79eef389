"""Check replies, streams, summaries and queries against a server that nobody here wrote: `transformers serve`.

It makes a tiny model of random weights that writes letters, serves it on this machine, and asks it as `backscroll`
would. What it says means nothing; what counts is that its protocol is understood, and what is stored. It needs an
environment of its own for the server, since PyTorch is large and the package does without it:

    python -m venv build/serving
    build/serving/bin/pip install "transformers[serving]" torch
    python scripts/foreign_server.py --server-python build/serving/bin/python

and where it runs `pip install 'backscroll[openai]'`. Takes about a minute. Each check prints a line; the exit code is
1 where one of them is not as expected. `--keep` leaves the server running, for `backscroll chat` and others.
"""

import argparse
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import httpx

import backscroll

MAKE_MODEL = r"""
import sys
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

special = ["<pad>", "<s>", "</s>"]
alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
vocabulary = {one: place for place, one in enumerate([*special, *alphabet])}
bytewise = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
bytewise.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
bytewise.decoder = decoders.ByteLevel()
template = "{% for m in messages %}{{ m['role'] + ': ' + (m['content'] or '') + '\n' }}{% endfor %}assistant:"
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=bytewise, pad_token="<pad>", bos_token="<s>", eos_token="</s>", chat_template=template
)
torch.manual_seed(7)
sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
config = LlamaConfig(vocab_size=len(vocabulary), max_position_embeddings=4096, **sizes)
config.bos_token_id, config.eos_token_id, config.pad_token_id = 1, 2, 0
model = LlamaForCausalLM(config)
letters = {vocabulary[one] for one in "abcdefghijklmnopqrstuvwxyz.,\u0120"}
model.generation_config = GenerationConfig(
    do_sample=True, max_new_tokens=600, bos_token_id=1, eos_token_id=2, pad_token_id=0,
    suppress_tokens=[place for place in range(len(vocabulary)) if place != 2 and place not in letters],
)
model.save_pretrained(sys.argv[1])
tokenizer.save_pretrained(sys.argv[1])
"""
START_SECONDS = 180
Check = Callable[[str, str], str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--server-python", required=True, help="an interpreter that has transformers[serving] and torch"
    )
    parser.add_argument("--keep", action="store_true", help="leave the server running until Enter is pressed")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="backscroll-") as folder:
        model = str(Path(folder, "tiny"))
        subprocess.run([given.server_python, "-c", MAKE_MODEL, model], check=True, capture_output=True)
        port = free_port()
        command = [str(Path(given.server_python).with_name("transformers")), "serve", "--port", str(port)]
        with Path(folder, "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as serving:
            try:
                base_url = f"http://127.0.0.1:{port}/v1"
                wait_for(base_url, serving)
                print(f"serving {model} at {base_url}")
                failed = sum(not passes(check, model, base_url) for check in CHECKS)
                if given.keep:
                    input(f"backscroll chat --db chat.db --llm openai:{model} --base-url {base_url}\nEnter ends it: ")
            finally:
                serving.terminate()
    sys.exit(1 if failed else 0)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for(base_url: str, serving: subprocess.Popen[bytes]) -> None:
    for _ in range(START_SECONDS * 4):
        if serving.poll() is not None:
            sys.exit(f"the server ended with {serving.returncode}")
        try:
            httpx.get(base_url.removesuffix("/v1") + "/health", timeout=1)
            return
        except httpx.HTTPError:
            time.sleep(0.25)
    sys.exit(f"the server did not start within {START_SECONDS} seconds")


def passes(check: Check, model: str, base_url: str, attempts: int = 5) -> bool:
    """Whether a check finds what it expects; a random model says nothing now and then, and is asked again."""
    started = time.monotonic()
    try:
        said, mark = check(model, base_url), "ok"
    except backscroll.EmptyReplyError as error:
        if attempts > 1:
            return passes(check, model, base_url, attempts - 1)
        said, mark = str(error), "NOT AS EXPECTED"
    except (AssertionError, backscroll.BackscrollError) as error:
        said, mark = f"{type(error).__name__}: {error}", "NOT AS EXPECTED"
    print(f"{mark:<16}{check.__name__:<46}{time.monotonic() - started:5.1f} s  {' '.join(said.split())[:150]}")
    return mark == "ok"


def opened(model: str, base_url: str, **more: object) -> backscroll.Memory:
    llm = backscroll.OpenAILLM(model, base_url, key_variable="", timeout_seconds=60, **more)  # type: ignore[arg-type]
    return backscroll.open(":memory:", embedder="hashing", llm=llm)


def long_chat(thread: backscroll.Thread) -> None:
    for day in range(20):
        thread.append({"role": "user", "content": f"What about the tour of day {day}? " * 6})
        thread.append({"role": "assistant", "content": f"On day {day} all of them were back by four. " * 4})


def a_reply_is_stored_with_what_it_cost(model: str, base_url: str) -> str:
    with opened(model, base_url) as memory:
        turn = memory.thread("chat").reply("How many vans do I have?", max_tokens=500)
        lines = memory.thread("chat").lines()
        assert [line.message.text for line in lines] == ["How many vans do I have?", turn.text]
        return f"{lines[-1].message.metadata}"


def a_stream_gives_the_text_that_is_stored(model: str, base_url: str) -> str:
    with opened(model, base_url) as memory:
        with memory.thread("chat").reply("How many vans do I have?", max_tokens=500, stream=True) as stream:
            pieces = list(stream)
        assert stream.turn is not None
        assert "".join(pieces) == stream.turn.text == memory.thread("chat").lines()[-1].message.text
        return f"{len(pieces)} pieces, finish_reason {stream.turn.reply.finish_reason}, {stream.turn.reply.usage}"


def a_stream_that_is_left_is_stored_as_partial(model: str, base_url: str) -> str:
    with opened(model, base_url) as memory:
        with memory.thread("chat").reply("How many vans do I have?", max_tokens=500, stream=True) as stream:
            first = next(stream)
        line = memory.thread("chat").lines()[-1]
        assert line.message.metadata["partial"] is True
        assert line.message.text == first
        return f"stored {first!r}"


def a_reply_that_is_cut_off_is_not_stored(model: str, base_url: str) -> str:
    with opened(model, base_url, fields={"max_tokens": 2}) as memory:
        try:
            memory.thread("chat").reply("How many vans do I have?", max_tokens=500)
        except backscroll.CutOffReplyError as error:
            assert memory.thread("chat").lines() == []
            return str(error)
        raise AssertionError("it was not said to be cut off")


def summaries_are_written_or_said_to_have_failed(model: str, base_url: str) -> str:
    with opened(model, base_url, fields={"max_tokens": 90}) as memory:
        thread = memory.thread("chat")
        long_chat(thread)
        try:
            made = memory.summarize()
        except backscroll.LLMError as error:
            assert thread.context("And now?", max_tokens=2000).report.part_tokens()["summary"] > 0
            return f"the sentences stand: {error}"
        assert made > 0
        written = [one for one in thread.summaries() if "summary-1" in one.method]
        assert len(written) == made
        return f"{made} made: {written[0].sentences}"


def a_query_is_written_or_done_without_the_model(model: str, base_url: str) -> str:
    settings = backscroll.Settings(contextualizer="rewrite")
    with opened(model, base_url, fields={"max_tokens": 60}) as memory:
        thread = memory.thread("chat")
        thread.append([{"role": "user", "content": "What is a van?"}, {"role": "assistant", "content": "A car."}])
        notes = thread.context("Is it fast?", max_tokens=500, preset=settings).report.notes
        assert any("rewrite" in note for note in notes)
        return notes[0]


def an_unknown_model_is_one_clear_error(model: str, base_url: str) -> str:
    with opened(f"{model}-not-there", base_url, retry=backscroll.Retry(1)) as memory:
        try:
            memory.thread("chat").reply("Hello!", max_tokens=500)
        except backscroll.LLMError as error:
            assert memory.thread("chat").lines() == []
            return f"{type(error).__name__}: {error}"
        raise AssertionError("it answered")


CHECKS: list[Check] = [
    a_reply_is_stored_with_what_it_cost,
    a_stream_gives_the_text_that_is_stored,
    a_stream_that_is_left_is_stored_as_partial,
    a_reply_that_is_cut_off_is_not_stored,
    summaries_are_written_or_said_to_have_failed,
    a_query_is_written_or_done_without_the_model,
    an_unknown_model_is_one_clear_error,
]

if __name__ == "__main__":
    main()
