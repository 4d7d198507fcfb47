"""Filters and scores every pool, chooses one, and keeps every reason.

`model` is the request and the decision. `decide` judges every pool (`judge`) by `filters` and
`scoring`; `messages` and `report` format the result. `oom_fallback` chooses the next start after
one that ran out of memory, `spread` uses several pools for one object, and `batches` places several
objects together.
"""
