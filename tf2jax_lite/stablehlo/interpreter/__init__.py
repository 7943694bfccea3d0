"""One rule per StableHLO op.

`core` has the environment and the registry of rules; the other modules register rules by kind. `scan_rewrite` and
`counted_loops` turn counted while loops into scans, with the induction variables of `induction`.
"""
