"""The shell: ``tf2jax-lite inspect | convert | run | verify | ops | demo``."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

__all__ = ["main"]


def main() -> None:
    """Runs the command line; errors in what the user gave are one line and exit code 2."""
    # TensorFlow reads this once, when it is first imported: its start-up chatter is not ours to show.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    import typer

    from tf2jax_lite.errors import Tf2JaxError
    from tf2jax_lite.units import printable

    from .app import app

    keep = "\n\t"

    def refuse(text: object) -> NoReturn:
        typer.secho(f"Error: {printable(text, keep)}", fg=typer.colors.RED, err=True)
        sys.exit(2)

    try:
        app()
    except Tf2JaxError as error:
        refuse(error)
    except (RecursionError, MemoryError) as error:
        what = "nested too deeply" if isinstance(error, RecursionError) else "takes more memory than there is"
        refuse(f"what was given is {what} ({str(error)[:200]})")
    except KeyboardInterrupt:
        sys.exit(130)
    except RuntimeError as error:
        if type(error).__name__ not in ("JaxRuntimeError", "XlaRuntimeError"):
            raise
        first = next(iter(str(error).strip().splitlines()), "")  # XLA's: too much memory, an op that it does not know
        refuse(f"XLA cannot compile or run this: {first[:300]}")
    except BrokenPipeError:
        # The reader (head, less) has gone: that is no error of ours.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
