"""The mechanism by which a trace starts again."""

import pytest

from tf2jax_lite.support.retrace import retrace


def _attempts(failures, limit):
    """Return the result, and the errors that were learned of."""
    learned = []

    def attempt():
        if len(learned) < failures:
            raise ValueError(len(learned))
        return "done"

    def learn(error):
        learned.append(error.args[0])
        return len(learned) < limit

    return retrace(attempt, learn, ValueError), learned


def test_retrace_until_an_attempt_ends():
    assert _attempts(0, 3) == ("done", [])
    assert _attempts(2, 3) == ("done", [0, 1])


def test_retrace_raises_the_error_of_which_nothing_is_learned():
    with pytest.raises(ValueError, match="1"):
        _attempts(3, 2)


@pytest.mark.full
def test_retrace_leaves_other_errors():
    with pytest.raises(ZeroDivisionError):
        retrace(lambda: 1 // 0, lambda error: True, ValueError)
