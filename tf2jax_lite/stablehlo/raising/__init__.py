"""Expanded calls to the call again.

`recognizer` is the entry: it lowers a call of `known_calls` with the installed JAX and compares op by op
(`subgraph_match`). `candidates` says which calls to try; `compound_ops` needs no comparison.
"""
