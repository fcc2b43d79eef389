"""Lines that left the window -> a rolling summary: `chunks` cuts, `extractive` and `by_model` tell in fewer words.

None of them knows a store. What is made when, and kept, is decided in `backscroll.rolling`.
"""
