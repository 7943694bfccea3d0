"""Rewrites advice in error texts: command-line options instead of Python calls."""

from __future__ import annotations

import re

_QUOTED = r"""(?P<quote>['"])(?P<name>\w+)(?P=quote)"""
_REPLACED = (
    (rf"override_config\({_QUOTED}, [^()]*\), or (?=--)", ""),  # a command-line option follows
    (rf"(?:tf2jax_lite\.)?override_config\({_QUOTED}, ['\"]?(?P<value>\w+)['\"]?\)", r"--set \g<name>=\g<value>"),
    (r"--set dynamic_shape_bound=n\b", "--set dynamic_shape_bound=N"),
    (
        r"Under jax\.jit, pass what it depends on as a static argument \(jax\.jit\(\.\.\., static_argnums=\.\.\.\)\)",
        "Make it a constant of the model",
    ),
)


def for_shell(text: str) -> str:
    """Return an error's text with options of the shell where it names Python calls."""
    for pattern, replacement in _REPLACED:
        text = re.sub(pattern, replacement, text)
    return text
