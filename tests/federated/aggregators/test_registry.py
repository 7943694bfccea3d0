"""An aggregator is a module, a test, and a line of documentation.

`CHECKS` are tests of the second and the third; no other file changes.
"""

import importlib
from pathlib import Path

import jax
import numpy as np
import pytest

from tests.federated.aggregators import test_invariance
from tests.federated.aggregators.cohort import TEMPLATE, make
from tf2jax_lite.artifacts.algorithms import named_aggregator
from tf2jax_lite.artifacts.options import FederateOptions
from tf2jax_lite.errors import InputError
from tf2jax_lite.federated.aggregators import base

PAGE = Path(__file__).parents[3] / "docs" / "federated-aggregation.md"
NEW = '''
"""A mean that moves by a part of each update."""

import dataclasses

import jax

from tf2jax_lite.federated.aggregators.base import Factory, MeanFactory, named


@named("partial_mean")
@dataclasses.dataclass(frozen=True)
class PartialMeanFactory(Factory):
    part: float = 0.5

    def create(self, template):
        inner = MeanFactory().create(template)

        def report(state, accumulator, key):
            found = inner.report(state, accumulator, key)
            return found._replace(result=jax.tree.map(lambda leaf: self.part * leaf, found.result))

        return dataclasses.replace(inner, report=report)
'''


def test_each_aggregator_of_the_command_line_is_documented():
    page = PAGE.read_text()
    assert [name for name, make in base.NAMED.items() if type(make()).__name__ not in page] == []


CHECKS = (
    test_invariance.test_each_aggregator_of_the_command_line_is_among_these,
    test_each_aggregator_of_the_command_line_is_documented,
)


def test_new_aggregator_is_one_module(tmp_path, monkeypatch):
    monkeypatch.setattr(base, "NAMED", named := dict(base.NAMED))
    for module in (test_invariance, named_aggregator.__globals__):
        monkeypatch.setitem(module if isinstance(module, dict) else vars(module), "NAMED", named)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "partial_means").mkdir()
    (tmp_path / "partial_means" / "__init__.py").write_text(NEW)
    importlib.import_module("partial_means")
    # Python, and the command: a name, options, their checks, and the identity of a checkpoint.
    factory = named_aggregator("partial_mean", clients_per_round=4, options={"part": 0.25})
    updates = make()
    mean, found = (
        made.create(TEMPLATE).next((), updates, jax.random.key(0)).result for made in (base.MeanFactory(), factory)
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, 0.25 * b, rtol=1e-6), found, mean)
    with pytest.raises(InputError, match="partial_mean has no option 'share'"):
        named_aggregator("partial_mean", clients_per_round=4, options={"share": 1})
    with pytest.raises(InputError, match=r"there are mean, .+partial_mean"):
        named_aggregator("none", clients_per_round=4)
    given = FederateOptions(loss="mse", aggregator="partial_mean", aggregator_options={"part": 0.25})
    assert given.identity()["aggregator"] == "partial_mean" and given.identity()["aggregator_options"] == {"part": 0.25}
    # Without its test and its line, these fail.
    for check in CHECKS:
        with pytest.raises(AssertionError, match="partial_mean"):
            check()
