"""Compile options for the tests' small programs, as far as XLA knows them.

``python -m tests.compiling`` writes them as XLA_FLAGS.
"""

import functools
from typing import Any

import jax

# Half the time of compiling small programs. XLA refuses a whole program for an option that it does not know.
_FAST = {"xla_cpu_use_fusion_emitters": False, "xla_backend_optimization_level": 0}
_FAST_FLAGS = {**_FAST, "xla_cpu_opt_preset": "CPU_OPT_PRESET_FAST_COMPILE"}


@functools.cache
def _is_known(name: str, value: Any) -> bool:
    try:
        jax.jit(lambda: 1.0, compiler_options={name: value}).lower().compile()
    except jax.errors.JaxRuntimeError as error:
        if "No such compile option" not in str(error):
            raise
        return False
    return True


def fast_options() -> dict[str, Any]:
    """Return compiler options with which XLA compiles sooner."""
    return {name: value for name, value in _FAST.items() if _is_known(name, value)}


def fast_flags() -> str:
    """Return XLA flags for fast compilation, for a new process's environment."""
    return " ".join(f"--{name}={str(value).lower() if isinstance(value, bool) else value}"
                    for name, value in _FAST_FLAGS.items() if _is_known(name, value))  # fmt: skip


if __name__ == "__main__":
    print(fast_flags())
