"""Run shell commands under faults: signals, full disks, read-only folders.

There is a fault of clocks, too.

One process imports everything and uses nothing, so that it can be forked; each command runs in a child of it.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
DIGITS = ROOT / "tf2jax_lite" / "demo" / "digits_cnn"


@dataclasses.dataclass
class Command:
    """A command under a fault.

    Attributes:
      argv: the arguments after the program's name.
      after: when, in seconds after the start, or (``fraction``) in parts of the shortest time that the whole
        command took undisturbed with the same ``argv``.
      file_size: no file may grow beyond so many bytes, as on a full disk; -1: any may.
      clock: let ``time.time`` and ``time.monotonic`` jump back and forth by hours.
      cpu_seconds: how much processor time it may take, or 0: then SIGXCPU ends it.
      memory: how many bytes of address space it may have beyond what the parent has, or 0.
      until: start it again until it ends by itself, each time with the fault later.
    """

    argv: Sequence[str]
    fresh: Sequence[str] = ()
    signal: str = ""
    after: float = 0.0
    fraction: bool = False
    file_size: int = -1
    readonly: str = ""
    clock: bool = False
    cpu_seconds: int = 0
    memory: int = 0
    until: bool = False


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a command ended.

    Attributes:
      code: the exit code; minus the signal's number if one ended it.
      state: its folder afterwards: ``path: SHA-256`` of every file below the folder given to `run`.
    """

    code: int
    out: str
    seconds: float
    state: dict[str, str]
    starts: int


_SERVER = """
    import encodings.cp437  # of zip files; users other than root may not be able to read it
    import hashlib, json, os, random, resource, shutil, signal, sys, tempfile, time
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    if {tensorflow}:
        import tensorflow, keras
    import jax, optax, safetensors.numpy, typer, rich.progress
    from tf2jax_lite import export, update_config
    from tf2jax_lite.artifacts import federate, finetune
    from tf2jax_lite.cli import app
    if {tensorflow}:
        from tf2jax_lite.pipeline import convert as api, model_files
        from tf2jax_lite.artifacts import export_tf as to_tf
        from tf2jax_lite import verification
    from tf2jax_lite.cli import main

    def jumping(clock):
        rng = random.Random(0)
        return lambda: clock() + rng.choice([-7200.0, 0.0, 0.0, 86400.0])

    def child(command, log):
        os.dup2(log, 1); os.dup2(log, 2)
        sys.stdout = os.fdopen(1, "w"); sys.stderr = os.fdopen(2, "w", buffering=1)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if command["file_size"] >= 0:
            resource.setrlimit(resource.RLIMIT_FSIZE, (command["file_size"], command["file_size"]))
        if command["cpu_seconds"]:
            resource.setrlimit(resource.RLIMIT_CPU, (command["cpu_seconds"], command["cpu_seconds"] + 5))
        if command["memory"]:
            with open("/proc/self/statm") as file:
                most = int(file.read().split()[0]) * resource.getpagesize() + command["memory"]
            resource.setrlimit(resource.RLIMIT_AS, (most, most))
        if command["readonly"] and os.getuid() == 0:
            os.setuid(65534)  # root may write anywhere
            # Such a user may not be able to start Python, as the first reader of StableHLO needs.
            update_config("trusted", "StableHLO")
        if command["clock"]:
            time.time, time.monotonic = jumping(time.time), jumping(time.monotonic)
        sys.argv = ["tf2jax-lite", *command["argv"]]
        code = 0
        try:
            main()
        except SystemExit as done:
            code = done.code if isinstance(done.code, int) else 0 if done.code is None else 1
        except BaseException:
            import traceback
            traceback.print_exc()
            code = 99
        finally:
            sys.stdout.flush(); sys.stderr.flush()
            os._exit(code)

    def once(command, after):
        read, write = os.pipe()  # not a file: files may be limited
        with os.fdopen(read, errors="replace") as log:
            begin = time.perf_counter()
            pid = os.fork()
            if pid == 0:
                child(command, write)
            os.close(write)
            if command["signal"]:
                time.sleep(after)
                try:
                    os.kill(pid, getattr(signal, "SIG" + command["signal"]))
                except ProcessLookupError:
                    pass
            text = log.read()
            _, status = os.waitpid(pid, 0)
            seconds = time.perf_counter() - begin
            return os.waitstatus_to_exitcode(status), text[-4000:], seconds

    def state(folder):
        found = {{}}
        for root, _, names in os.walk(folder):
            for name in names:
                path = os.path.join(root, name)
                with open(path, "rb") as file:
                    found[os.path.relpath(path, folder)] = hashlib.sha256(file.read()).hexdigest()
        return found

    took = {{}}
    for line in sys.stdin:
        command = json.loads(line)
        for path in command["fresh"]:
            shutil.rmtree(path, ignore_errors=True)
            if os.path.isfile(path):
                os.unlink(path)
        key = json.dumps(command["argv"])
        after, starts = command["after"], 0
        if command["fraction"]:
            after *= took.get(key, 1.0)
        if command["readonly"]:
            os.chmod(command["readonly"], 0o555)
        while True:
            starts += 1
            code, out, seconds = once(command, after)
            if not command["until"] or code >= 0 and code != 130 or starts >= 50:
                break
            after *= 1.5
        if command["readonly"]:
            os.chmod(command["readonly"], 0o755)
        if not command["signal"] and code == 0:  # the shortest: a later signal would come after the end
            took[key] = min(seconds, took.get(key, seconds))
        print(json.dumps([code, out, seconds, state(command["folder"]), starts]), flush=True)
"""


class Shell:
    """The process that forks. Use it in a ``with`` block."""

    def __init__(self, folder: Path, tensorflow: bool = True):
        self.folder = folder
        script = textwrap.dedent(_SERVER).format(tensorflow=tensorflow)
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  (closed on exit)
        self._process = subprocess.Popen(
            [sys.executable, "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            cwd=ROOT,
        )

    def run(self, *argv: Any, **settings: Any) -> Ended:
        """Run a command; see `Command`."""
        command = {**dataclasses.asdict(Command(list(map(str, argv)), **settings)), "folder": str(self.folder)}
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            self._errors.seek(0)
            raise AssertionError(self._errors.read()[-3000:])
        return Ended(*json.loads(line))

    def __enter__(self) -> Shell:
        return self

    def __exit__(self, *_: Any) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()
        self._errors.close()
