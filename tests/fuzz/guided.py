"""Coverage-guided fuzzing with atheris, which is imported only here: it is no requirement."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

__all__ = ["run"]


def run(name: str, corpus: Path, minutes: float) -> int:
    """Runs libFuzzer on one target, whose good files are where it starts from.

    Args:
      name: the target.
      corpus: what `corpus.make_corpus` made.
      minutes: for how long.

    Returns:
      An exit code; atheris itself ends the process at the first finding.
    """
    try:
        import atheris
    except ImportError:
        print("coverage-guided fuzzing needs atheris: pip install atheris", file=sys.stderr)
        return 2
    with atheris.instrument_imports(include=["tf2jax_lite"]):
        from tf2jax_lite.errors import Tf2JaxError

        from .targets import limits, make_targets

        work = Path(tempfile.mkdtemp(prefix="atheris"))
        target = make_targets(corpus, work, (name,))[name]
    good = work / "good"
    good.mkdir()
    for source, data in target.seeds.items():
        (good / source).write_bytes(data)
    first = sorted(target.seeds)[0]

    def one(data: bytes) -> None:
        try:
            with limits():
                target.run(first, data)
        except Tf2JaxError:
            pass

    atheris.Setup([sys.argv[0], f"-max_total_time={int(minutes * 60)}", str(good)], one)
    atheris.Fuzz()
    return 0
