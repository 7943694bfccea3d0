"""The page of reliability figures is what its results make."""

import json

import pytest

from tools.pages import reliability as reliability_page


def test_the_page_is_up_to_date():
    assert reliability_page.PAGE.read_text() == reliability_page.page()


def test_results_become_sections_in_the_order_of_their_names(tmp_path):
    base = {"command": "python -m x", "columns": ["what", "n"], "rows": [["a|b", 1234567]], "notes": ["so"]}
    for name, title in (("b", "Second"), ("a", "First")):
        (tmp_path / f"{name}.json").write_text(json.dumps({"title": title, **base}))
    text = reliability_page.page(tmp_path)
    assert text.index("## First") < text.index("## Second")
    assert "| a\\|b | 1,234,567 |" in text


@pytest.mark.parametrize("change", [{"columns": ["one"]}, {"notes": None}])
def test_results_that_do_not_fit_are_refused(tmp_path, change):
    found = {"title": "t", "command": "c", "columns": ["a", "b"], "rows": [[1, 2]], "notes": []}
    found.update(change)
    (tmp_path / "x.json").write_text(json.dumps({k: v for k, v in found.items() if v is not None}))
    with pytest.raises(ValueError, match=r"x\.json"):
        reliability_page.page(tmp_path)
