"""TF1 SavedModels against a session: results, gradients, tables."""

from pathlib import Path

import pytest

from tf2jax_lite.verification import verify

DATA = Path(__file__).parent.parent.parent / "testdata" / "tf1"


@pytest.mark.full
@pytest.mark.parametrize(
    "name, kinds", [("classifier", {"result", "variable", "gradient"}), ("lstm", {"result", "variable", "gradient"})]
)
def test_a_tf1_model_agrees(name, kinds):
    found = verify(DATA / name, signatures=["serving_default"], grad=True, train=True, batch_sizes=(2,), bisect=True)
    assert found.ok
    (signature,) = found.signatures
    assert {output.kind for output in signature.outputs} == kinds
    assert signature.bisection is not None and not signature.bisection.suspects[1:]


def test_a_lookup_of_strings_agrees():
    assert verify(DATA / "classifier", signatures=["lookup"], batch_sizes=(1, 3)).ok
