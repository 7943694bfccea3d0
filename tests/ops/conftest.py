"""Which cases of large tables run every time."""

import collections

import pytest

# Of an op with many cases the first ones always run, and of the others every twelfth: a fixed slice. The rest is slow.
ALWAYS = 4
EVERY = 12


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    seen = collections.Counter()
    for item in items:
        case = getattr(item, "callspec", None) and item.callspec.params.get("case")
        name = getattr(case, "op", None)
        if name is None:
            continue
        key = (item.fspath, item.originalname, name)
        if seen[key] >= ALWAYS and (seen[key] - ALWAYS) % EVERY:
            item.add_marker(pytest.mark.slow)
        seen[key] += 1
