"""Plans the batches in which op cases are checked."""

from collections import defaultdict

from . import batches
from .harness import Case


def pytest_collection_finish(session):
    modules = defaultdict(list)
    for item in session.items:
        case = getattr(item, "callspec", None) and item.callspec.params.get("case")
        if isinstance(case, Case):
            modules[item.path, item.originalname].append(case)
    eager = "not full" not in session.config.option.markexpr
    for cases in modules.values():
        batches.plan(cases, eager)
