"""How providers say that what was sent is longer than the model takes: their wordings, in one table.

There is no standard: some give a code, most only a sentence, in a status of 400, 413, 422, 429 or 500, or inside a
stream that began with 200. Ollama says nothing and cuts the front off; only its embeddings and newer versions refuse.
"""

import re

_NUMBER = r"(?P<limit>\d[\d,]*)"
_SENTENCES = (  # each with where it was read; the group `limit` is the most that the model takes
    rf"maximum context length (?:is|of) {_NUMBER}",  # OpenAI, Azure, DeepSeek, vLLM, OpenRouter, SGLang
    rf"exceed(?:s|ed)? the configured limit of {_NUMBER}",  # OpenAI and Azure, GPT-5
    r"exceeds the context window of this model",  # OpenAI
    rf"request too large for .*?limit {_NUMBER}",  # OpenAI, Groq: more than the account may send in a minute at all
    rf"prompt is too long: [\d,]+ tokens > {_NUMBER}",  # Anthropic, Bedrock, gateways
    rf"exceed context limit: [\d,]+ \+ [\d,]+ > {_NUMBER}",  # Anthropic
    rf"prompt is too long: [\d,]+, model maximum context length: {_NUMBER}",  # Fireworks
    rf"input token count.{{0,40}}exceeds the maximum number of tokens allowed \({_NUMBER}\)",  # Gemini
    rf"exceeds the available context size(?: \({_NUMBER} tokens\))?",  # llama.cpp
    rf"exceed context window of {_NUMBER}",  # llama-cpp-python
    rf"exceeds (?:the )?(?:maximum )?context length(?: {_NUMBER})?",  # Ollama, LM Studio, MLX
    r"is greater than the context length",  # LM Studio
    rf"too large for model with {_NUMBER} maximum context length",  # Mistral
    rf"total number of tokens .{{0,40}}cannot exceed {_NUMBER}",  # Cohere
    rf"total tokens exceeds the model's max of {_NUMBER}",  # Cohere
    rf"exceeds the maximum allowed input length of {_NUMBER}",  # OpenRouter, Poolside
    rf"maximum prompt length is {_NUMBER}",  # xAI
    r"reduce the length of (?:the|your) (?:messages|prompt|input)",  # Groq, vLLM
    rf"longer than the (?:maximum model length of |model's context length \(){_NUMBER}",  # vLLM, Together
    rf"too long to fit into the model \(context length {_NUMBER}",  # vLLM
    r"max_tokens must be at least 1, got -",  # vLLM: nothing is left for the reply
    rf"`inputs` .{{0,40}}must be <= {_NUMBER}",  # Text Generation Inference
    r"input is too long for (?:the )?requested model",  # Bedrock
    rf"exceeded model token limit: {_NUMBER}",  # Kimi
    rf"prompt token count of [\d,]+ exceeds the limit of {_NUMBER}",  # GitHub Copilot
    r"context window exceeds limit",  # MiniMax
    rf"range of input length should be \[1, {_NUMBER}\]",  # Qwen
    r"total length of all messages is too long",  # Perplexity
    r"prompt exceeds max(?:imum)? length",  # z.ai
    r"prompt is too long",
    r"context[_ ](?:length|window|size)[_ ](?:has been )?exceeded|contextwindowexceeded|exceed_context_size",  # codes
)
_WORDINGS = tuple(re.compile(sentence, re.IGNORECASE | re.DOTALL) for sentence in _SENTENCES)
_LIMIT_FIELD = re.compile(r"""["']n_ctx["']: *(?P<limit>\d+)""")  # llama.cpp


def says_too_long(said: str) -> bool:
    """Whether an error's text says that what was sent is too long for the model.

    >>> says_too_long("prompt is too long: 207791 tokens > 200000 maximum"), says_too_long("Too many requests")
    (True, False)
    """
    return any(wording.search(said) for wording in _WORDINGS)


def limit_in(said: str) -> int | None:
    """The most tokens that the model takes, where the text says it.

    >>> limit_in("This model's maximum context length is 8192 tokens. However, you requested 9000 tokens.")
    8192
    """
    found = (wording.search(said) for wording in (*_WORDINGS, _LIMIT_FIELD))
    limits = (one["limit"] for one in found if one and one.groupdict().get("limit"))
    return next((int(limit.replace(",", "")) for limit in limits), None)
