"""Checks of generated source."""

import subprocess
import sys


def check_by_ruff(path, *commands):
    """Check that ruff, with its default rules, neither reports nor changes anything."""
    for command in commands or (["check"], ["format", "--diff"]):
        call = [sys.executable, "-m", "ruff", *command, "--isolated", str(path)]
        found = subprocess.run(call, capture_output=True, text=True, check=False)
        assert found.returncode == 0, found.stdout + found.stderr
