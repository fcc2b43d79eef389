"""`backscroll serve`: a memory over HTTP, for chat clients, programs and people.

    app        puts the parts below together: create_app(memory, settings)
    proxy      /v1: a chat client's base URL; turn and finding: which thread a request is of, and what is sent for it
    rest       /api: threads, messages, contexts, replies, recall
    page       /: the web page

Needs the extra ``backscroll[server]``. It decides nothing about contexts: that is done by the memory.
"""
