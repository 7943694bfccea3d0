"""Pages of records: ``python -m benchmarks report [PAGE ...]``.

Each page is a function of results. `PAGES` names them, the files of records that are theirs, and the file that is
written. ``templates`` has their prose.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..records import RESULTS, ROOT, Record, read, results_of
from . import guide, pages, performance

DOCS = ROOT / "docs"
MEASURED = ROOT / "benchmarks" / "pages"  # of developers, beside the site


@dataclasses.dataclass(frozen=True)
class Page:
    """A page.

    Attributes:
      text: returns the text from the results of each file of records, or from one list of the results of given files.
      path: the file that it is written to; None prints it.
      draw: writes plots beside it, from the same results.
    """

    text: Callable[..., str]
    path: Path | None = None
    stored: tuple[str, ...] = ()
    draw: Callable[..., Any] | None = None


_STORED = ("performance", "performance-avx2", "performance-before")
PAGES = {
    "performance": Page(performance.page, MEASURED / "performance.md", _STORED),
    "guide": Page(guide.page, DOCS / "guides" / "performance.md", ("performance", "performance-avx2"), guide.draw),
    "gallery": Page(pages.gallery, DOCS / "gallery.md", ("gallery",)),
    "training": Page(pages.training, MEASURED / "training.md", ("finetuning",)),
    "algorithms": Page(pages.algorithms, None, ("federated-algorithms",), pages.draw_algorithms),
    "federated": Page(pages.federated, MEASURED / "federated.md"),
    "stablehlo": Page(pages.stablehlo, MEASURED / "stablehlo.md"),
    "rules": Page(pages.rules),
    "first": Page(pages.first),
}


def results(page: Page, paths: Sequence[Path] | None = None) -> list[list[Record]]:
    """Return the results of each file of a page's records."""
    files = paths or [RESULTS / f"{name}.jsonl" for name in page.stored]
    return [results_of(read([path])) for path in files]


def write(names: Sequence[str] = (), paths: Sequence[Path] | None = None) -> None:
    """Write pages, and their plots."""
    for name in names or [name for name, page in PAGES.items() if page.stored]:
        if name not in PAGES:
            raise SystemExit(f"no page {name!r}; there are {', '.join(PAGES)}")
        page = PAGES[name]
        if not (paths or page.stored):
            raise SystemExit(f"page {name}: no records are stored; --records names a file")
        found = results(page, paths)
        text = page.text(*found)
        if page.path is None:
            print(text)
        else:
            page.path.write_text(text)
        if page.draw is not None:
            page.draw(*found)
