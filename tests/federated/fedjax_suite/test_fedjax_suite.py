"""FedJAX's tests fail only where docs/developer/porting-names.md says so."""

import os
import re
from pathlib import Path

import pytest

from tests.federated.fedjax_suite.run import outcomes

PAGE = Path(__file__).parents[3] / "docs" / "developer" / "porting-names.md"


@pytest.mark.nightly
def test_others_have_reasons():
    """The variable FEDJAX_SOURCE is the folder of FedJAX's repository."""
    source = os.environ.get("FEDJAX_SOURCE")
    if not source:
        pytest.skip("FEDJAX_SOURCE is not set")
    found = outcomes(Path(source))
    text = PAGE.read_text()
    reasons = set(re.findall(r"^\| `(\S+::[^`]+)` \|", text, re.M))
    failed = {name.removeprefix("fedjax/") for name, passed in found.items() if not passed}
    assert failed == reasons
    assert f"{sum(found.values())} of {len(found)} pass" in text
