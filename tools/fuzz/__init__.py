"""Structure-aware fuzzing of all readers of files.

Usage: ``python -m tools.fuzz --minutes N --seed S``.

`corpus` makes small real files, `mutators` damage them, `targets` read them, `worker` does that in a process that
`supervisor` watches; `__main__` is the command. An input is a function of (seed, target, number) alone.
"""
