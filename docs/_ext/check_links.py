"""Checks the links of a built site: each relative one has a file, each anchor an element, each page a way to it.

Run as ``python docs/_ext/check_links.py docs/_build``. Sphinx checks references while it builds; this also sees links
in raw HTML, in generated pages and in outputs of notebooks. A page is at most three clicks from the front page.
"""

import functools
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit


class Page(HTMLParser):
    """Collects the links and the anchors of a page."""

    def __init__(self, text):
        super().__init__()
        self.links, self.anchors = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        """Record ``href``, ``src``, ``id`` and ``name``."""
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.links.append(value)
            elif value and (name == "id" or (name == "name" and tag == "a")):
                self.anchors.add(value)


@functools.cache
def page(path):
    """Return the page in a file."""
    return Page(path.read_text(encoding="utf-8"))


def pages(root):
    """Return the pages of a site."""
    paths = sorted(root.rglob("*.html"))
    return [path for path in paths if path.relative_to(root).parts[0] != "_static"]  # templates of the theme


def targets(path):
    """Yield the relative links of a page, with the file and the anchor of each."""
    for link in dict.fromkeys(page(path).links):
        if urlsplit(link).scheme or link.startswith("//"):
            continue
        where, anchor = urldefrag(link)
        target = (path.parent / unquote(urlsplit(where).path)).resolve() if where else path
        yield link, target / "index.html" if target.is_dir() else target, unquote(anchor)


def broken(root):
    """Yield the broken links of all pages."""
    for path in pages(root):
        for link, target, anchor in targets(path):
            if not target.exists():
                yield f"{path.relative_to(root)}: {link}: no such file"
            elif anchor and target.suffix == ".html" and anchor not in page(target).anchors:
                yield f"{path.relative_to(root)}: {link}: no such anchor"


def distant(root, clicks=3):
    """Yield the pages that are more than some clicks away from the front page."""
    site = set(pages(root))
    found = edge = {root / "index.html"}
    for _ in range(clicks):
        edge = {target for path in edge for _, target, _ in targets(path)} & site - found
        found = found | edge
    for path in sorted(site):
        if path not in found and path.name not in ("search.html", "py-modindex.html"):  # Sphinx makes these
            yield f"{path.relative_to(root)}: not within {clicks} clicks of index.html"


if __name__ == "__main__":
    site = Path(sys.argv[1]).resolve()
    found = [*broken(site), *distant(site)]
    print("\n".join(found) or "all internal links are sound")
    sys.exit(bool(found))
