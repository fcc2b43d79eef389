"""What is measured: which lines reach the context, at what cost, and how near a rewritten query is to a human's.

    recall:   lines, questions -> replay -> ask (preset, max_tokens) -> results, one a question -> figures
    rewrite:  rewrites -> contextualize -> distance to the human's rewrite -> figures

No language model and no judge: everything is counted. Knows nothing about how it is shown.
"""
