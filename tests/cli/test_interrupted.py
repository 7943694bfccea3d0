"""An interruption ends commands with exit code 130, despite other errors."""

import os
import signal

import pytest

from tf2jax_lite import cli
from tf2jax_lite.cli import app
from tf2jax_lite.errors import InvalidModelError


def _interrupted(error):
    """Return a command with a library's error for an interruption, as TensorFlow."""

    def run():
        try:
            os.kill(os.getpid(), signal.SIGINT)
            signal.sigtimedwait([], 0.2)
        except KeyboardInterrupt:
            if error is not None:
                raise error from None
            raise

    return run


@pytest.fixture(autouse=True)
def interruptible():
    """Test that run as a job in the background start with interruptions ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def _failing():
    raise InvalidModelError("no model")


@pytest.mark.default_cases("itself", "another's error")
@pytest.mark.parametrize(
    ("command", "code"),
    [
        (_interrupted(None), 130),
        (_interrupted(RuntimeError("ORIGINAL InvalidArgumentError REPLACED BY KeyboardInterrupt")), 130),
        (_interrupted(InvalidModelError("cannot be loaded")), 130),
        (_failing, 2),
    ],
    ids=["itself", "another's error", "our error", "no interruption"],
)
def test_exit_code(monkeypatch, capsys, command, code):
    monkeypatch.setattr(app, "app", command)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == code
    assert capsys.readouterr().err.partition(".")[0] == ("Error: no model" if code == 2 else "")
    assert signal.getsignal(signal.SIGINT) is before


def test_a_handler_of_somebody_else_stays(monkeypatch):
    """Where interruptions are ignored (a job in the background), they stay so."""
    monkeypatch.setattr(app, "app", _interrupted(None))
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        cli.main()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
