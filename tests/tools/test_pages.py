"""Page generators write a row for each record, or reject the record."""

import json

import pytest

from tests.lowering import gradient_cases
from tests.ops.random.claims import CLAIMS, ULP
from tools.pages import gradients, random_numbers, reliability


def rows(page):
    """Return the cells of a page's only table by the first cell."""
    lines = [line for line in page.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
    assert {len(row) for row in cells} == {lines[0].count("|") - 1}, "a cell splits its row"
    assert len({row[0] for row in cells}) == len(cells), "two rows have one name"
    return {name: rest for name, *rest in cells}


def test_page_of_random_numbers_states_each_claim():
    found = rows(random_numbers.page())
    assert found.keys() == CLAIMS.keys()
    for name, claim in CLAIMS.items():
        assert found[name][0].startswith(claim.kind) and (str(int(claim.ulps)) in found[name][0]) == (claim.kind == ULP)


def test_page_of_gradients_has_a_row_for_each_case():
    found = rows(gradients.page())
    assert len(found) == len(gradient_cases.CASES)
    for case in gradient_cases.CASES.values():
        forward, reverse, *_ = found[case.text]
        assert (forward, reverse) == ("same", "same")


def test_reliability_page_shows_the_results_that_are_stored():
    page = reliability.page()
    for file in reliability.RESULTS.glob("*.json"):
        stored = json.loads(file.read_text())
        section = page.split(f"## {stored['title']}\n")[1].split("\n## ")[0]
        assert stored["command"] in section
        assert section.count("\n| ") == len(stored["rows"]) + 2 * bool(stored["rows"])


def test_reliability_page_orders_sections_by_file_name(tmp_path):
    base = {"command": "python -m x", "columns": ["what", "n"], "rows": [["a|b", 1234567]], "notes": ["so"]}
    for name, title in (("b", "Second"), ("a", "First")):
        (tmp_path / f"{name}.json").write_text(json.dumps({"title": title, **base}))
    text = reliability.page(tmp_path)
    assert text.index("## First") < text.index("## Second")
    assert "| a\\|b | 1,234,567 |" in text


@pytest.mark.full
@pytest.mark.parametrize("change", [{"columns": ["one"]}, {"notes": None}])
def test_reliability_page_rejects_results_that_do_not_fit(tmp_path, change):
    found = {"title": "t", "command": "c", "columns": ["a", "b"], "rows": [[1, 2]], "notes": []}
    found.update(change)
    (tmp_path / "x.json").write_text(json.dumps({k: v for k, v in found.items() if v is not None}))
    with pytest.raises(ValueError, match=r"x\.json"):
        reliability.page(tmp_path)
