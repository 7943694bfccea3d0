"""Ops that run functions of the graph, by what they do with them."""

from __future__ import annotations

CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
IFS = frozenset({"If", "StatelessIf", "XlaIf", "_If"})
CASES = frozenset({"Case", "StatelessCase"})
WHILES = frozenset({"While", "StatelessWhile", "XlaWhile", "_While"})
