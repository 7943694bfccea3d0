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
    page = random_numbers.page()
    assert random_numbers.PAGE.read_text() == page
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("|")
    ]
    found = {name: (kind, note) for kind, names, note in cells[2:] for name in names.split(", ")}
    assert found.keys() == CLAIMS.keys()
    for name, claim in CLAIMS.items():
        kind, note = found[name]
        assert kind.startswith(claim.kind) and (str(int(claim.ulps)) in kind) == (claim.kind == ULP)
        assert note == claim.note


def test_page_of_gradients_has_each_case_once():
    page = gradients.page()
    assert gradients.PAGE.read_text() == page
    table = page.partition("With exceptions")[2]
    found = {name: rest for name, *rest in rows(table).items()}
    words = " ".join(page.partition("With exceptions")[0].split())
    for case in gradient_cases.CASES.values():
        assert (case.text in found) != (f"{case.text};" in words or f"{case.text}." in words)


def test_reliability_pages_show_the_results_that_are_stored():
    site, measured = reliability.page(), reliability.measured()
    assert reliability.PAGE.read_text() == site and reliability.MEASURED.read_text() == measured
    for file in reliability.RESULTS.glob("*.json"):
        stored = json.loads(file.read_text())
        page = measured if stored["command"] else site
        section = page.split(f"## {stored['title']}\n")[1].split("\n## ")[0]
        assert stored["command"] in section
        assert section.count("\n| ") == len(stored["rows"]) + 2 * bool(stored["rows"])


def test_reliability_page_orders_sections_by_file_name(tmp_path):
    base = {"command": "python -m x", "columns": ["what", "n"], "rows": [["a|b", 1234567]], "notes": ["so"]}
    for name, title in (("b", "Second"), ("a", "First")):
        (tmp_path / f"{name}.json").write_text(json.dumps({"title": title, **base}))
    text = reliability.measured(tmp_path)
    assert "| First | `python -m x` |" in reliability.page(tmp_path)
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
