"""Draw many random graphs, and record the outcomes.

Usage: ``python -m tools.random_graphs --count N --seed S --json OUT``.

The answer, OUT, is written again after every few graphs. ``--resume`` goes on where OUT ended.
"""

from __future__ import annotations

import argparse
import collections
import gc
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# As in tests/conftest.py: oneDNN's kernels give unused results of batch normalization other values.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tools.random_graphs", description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="how many graphs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, required=True, help="where the figures go")
    parser.add_argument("--findings", type=Path, help="a folder for what differs: each as text, made small")
    parser.add_argument("--cache", type=Path, help="a folder that keeps compiled programs for the next run")
    parser.add_argument("--resume", action="store_true", help="go on with the figures that are there")
    parser.add_argument("--merge", type=Path, nargs="*", help="only add up the figures of other runs")
    parser.add_argument("--minutes", type=float, help="stop after so long")
    options = parser.parse_args()
    if options.merge:
        figures = Figures(options)
        pages = [json.loads(path.read_text()) for path in options.merge]
        for page in pages:
            figures.add(page["state"])
        ran = [f"{page['command']} (stopped after {page['state']['done']})" for page in pages]
        figures.write("; ".join(ran), keep_state=False)
        return
    # Half the time is compiling. Which flags there are is known where JAX runs; flags are read once, so not here.
    flags = subprocess.run([sys.executable, "-m", "tests.compiling"], check=True, capture_output=True, text=True).stdout
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flags.strip()}"
    import jax

    if options.cache is not None:
        jax.config.update("jax_compilation_cache_dir", str(options.cache))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    reuse_contexts()
    gc.set_threshold(50_000, 20, 50)  # a heap of two frameworks is much to look through
    figures = Figures(options)
    figures.run()
    sys.exit(1 if figures.different else 0)


# What became of the differences that runs met, by op and kind.
BECAME = {
    ("Pow", "value"): "wrong for large integer exponents; corrected, with a test",
    ("EditDistance", "LoweringError"): "indices outside of its shape, which TensorFlow does not check; no longer drawn",
    ("LRNGrad", "value"): "an output that is not its input's, which TensorFlow does not check; no longer drawn",
    ("MatrixSquareRoot", "value"): "a number where there is no real root; corrected, with a test",
    ("ClipByValue", "value"): "the upper bound counted where they exclude each other; corrected, with a test",
    ("StatelessRandomPoisson", "value"): "NaN of an infinite rate; corrected, with a test",
    ("Log", "value"): "XLA makes log(pow(x, y)) y * log(abs(x)), in TensorFlow as well; now explained as 'compiler'",
    (
        "NonMaxSuppression",
        "LoweringError",
    ): "this command's own fault: nested programs shared an MLIR context; corrected",
    ("NonMaxSuppressionV3", "LoweringError"): "as NonMaxSuppression",
    ("call", "value"): "half precision inside, compared as float32; the oracle now looks for it",
    ("while", "value"): "inside, half precision compared as float32, or round-off cast to a bool",
    ("case", "value"): "singular vectors up to a sign inside; no longer drawn there",
}
BUCKETS = {
    "1": 1,
    "2 to 5": 5,
    "6 to 20": 20,
    "21 to 50": 50,
    "51 to 100": 100,
    "101 to 200": 200,
    "more than 200": 1 << 60,
}


def bucket(size: int) -> str:
    """Return in which row of the table a graph of so many nodes is counted."""
    return next(name for name, most in BUCKETS.items() if size <= most)


MEMORY = 5 << 30  # bytes at which what is compiled is thrown away


def resident() -> int:
    """Return the bytes of memory that the process takes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def reuse_contexts() -> None:
    """Make JAX lower a few hundred programs in one MLIR context.

    A context takes milliseconds to make, as long as all else of the lowering of a small program, and eager runs lower
    thousands of them. It keeps every type and attribute, so now and then there is a new one.
    """
    from jax._src.interpreters import mlir

    make, uses = mlir.make_ir_context, 500
    kept: list[Any] = []

    def nested() -> bool:
        """Whether a program is lowered while another one is: the two must not meet."""
        try:
            return mlir.ir.Context.current is not None
        except ValueError:
            return False

    def make_ir_context() -> Any:
        nonlocal uses
        if nested():
            return make()
        if not kept or uses >= 500:
            kept[:], uses = [make()], 0
        uses += 1
        return kept[0]

    mlir.make_ir_context = make_ir_context


class Figures:
    """What the page needs to know, kept up to date in a file."""

    def __init__(self, options: argparse.Namespace):
        self.options = options
        self.done = self.nodes = self.jitted = self.values = self.seconds = 0
        self.refused = 0
        self.seen: set[int] = set()
        self.forget = 0.0
        self.different: list[list[Any]] = []
        self.explained: collections.Counter[str] = collections.Counter()
        self.ops: collections.Counter[str] = collections.Counter()
        self.sizes: collections.Counter[str] = collections.Counter()
        if options.resume and options.json.exists():
            self.add(json.loads(options.json.read_text())["state"])

    def add(self, state: dict[str, Any]) -> None:
        """Add what another run found."""
        for name, value in state.items():
            setattr(
                self, name, getattr(self, name) + (collections.Counter(value) if isinstance(value, dict) else value)
            )

    def run(self) -> None:
        """Draw and check programs by hypothesis, in rounds with seeds of their own."""
        import hypothesis
        import jax

        from .generate import programs
        from .material import cases
        from .programs import Program

        cases()
        gc.collect()
        gc.freeze()
        end = time.time() + 60 * (self.options.minutes or 1e9)
        strategy = programs()
        while self.done < self.options.count and time.time() < end:
            begin = time.time()

            @hypothesis.seed(hash((self.options.seed, self.done)))
            @hypothesis.settings(
                max_examples=50,
                phases=[hypothesis.Phase.generate],
                database=None,
                deadline=None,
                suppress_health_check=[*hypothesis.HealthCheck],  # pyright: ignore[reportArgumentType]
            )
            @hypothesis.given(strategy)
            def one_round(program: Program) -> None:
                if self.done < self.options.count and time.time() < end:
                    self.one(program)

            one_round()
            if resident() > max(MEMORY, self.forget):  # thousands of compiled programs take gigabytes
                jax.clear_caches()
                gc.collect()
                self.forget = resident() + MEMORY / 4
            self.seconds += time.time() - begin
            self.write()

    def one(self, program: Any) -> None:
        """Check one program."""
        from .oracle import check
        from .programs import Refused, show
        from .shrink import shrink

        text = hash(show(program))  # hypothesis begins each round with the simplest
        if text in self.seen or not program.nodes:
            return
        self.seen.add(text)
        try:
            outcome = check(program)
        except Refused:
            self.refused += 1
            return
        self.done += 1
        self.nodes += program.size()
        self.sizes[bucket(program.size())] += 1
        self.values += outcome.values
        self.jitted += outcome.jitted
        self.explained.update(outcome.explained)
        self.ops.update(set().union(*(node.ops() for node in program.nodes)))
        if outcome.finding is None:
            return
        small, finding = shrink(program, outcome.finding)
        number = len(self.different)
        self.different.append([finding.op, finding.kind, finding.how, small.size(), finding.message.strip()[:300]])
        if self.options.findings is not None:
            self.options.findings.mkdir(parents=True, exist_ok=True)
            path = self.options.findings / f"{finding.op or finding.kind}-{self.options.seed}-{number}.txt"
            path.write_text(f"{finding.kind} {finding.how} node {finding.number}\n{finding.message}\n\n{show(small)}\n")

    def differences(self) -> list[list[Any]]:
        """Return a row for each kind of difference, with what became of it."""
        found: dict[tuple[str, str, str], list[int]] = {}
        for op, kind, how, size, _ in self.different:
            found.setdefault((op, kind, how), []).append(size)
        return [
            [
                f"{kind} of {op}, {how}, made small: {min(sizes)} node(s): {BECAME.get((op, kind), 'open')}",
                len(sizes),
            ]
            for (op, kind, how), sizes in found.items()
        ]

    def write(self, command: str = "", keep_state: bool = True) -> None:
        """Write the figures; with the state from which another run can go on."""
        from tf2jax_lite.lowering import known_ops

        seen = len(set(self.ops) & set(known_ops()))
        state = {
            name: getattr(self, name)
            for name in (
                "done",
                "nodes",
                "jitted",
                "values",
                "seconds",
                "refused",
                "different",
                "explained",
                "ops",
                "sizes",
            )
        }
        page = {
            "title": "Random graphs",
            "command": command
            or f"python -m tools.random_graphs --count {self.options.count} --seed {self.options.seed}",
            "columns": ["what", "number"],
            "rows": [
                ["graphs that TensorFlow and the converted program ran", self.done],
                ["of these also compiled (jax.jit)", self.jitted],
                *([f"graphs of {name} nodes", self.sizes[name]] for name in BUCKETS if self.sizes[name]),
                ["nodes, inner ones included", self.nodes],
                ["values compared", self.values],
                ["registered ops met", seen],
                ["graphs that differed when they ran", len(self.different)],
                *self.differences(),
                *([f"values that differ, explained: {why}", n] for why, n in sorted(self.explained.items())),
            ],
            "notes": [
                "Explained, each value by running its node alone in TensorFlow: 'inputs', the node agrees on the "
                "converted program's own inputs; 'rounding', it lies within what the rounding of its inputs makes; "
                "'float64', it is as near to TensorFlow's float64 result as TensorFlow's own; 'compiler', TensorFlow "
                "compiled by XLA gives the same (XLA makes log(pow(x, y)) y * log(abs(x)), say); 'bound', a result "
                "whose size depends on data is refused under jit, as documented; 'refused', TensorFlow refuses the "
                "converted program's inputs.",
            ],
        }
        if keep_state:
            page["state"] = state
        self.options.json.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.options.json.with_suffix(".partial")
        temporary.write_text(json.dumps(page, indent=1))
        temporary.replace(self.options.json)


if __name__ == "__main__":
    main()
