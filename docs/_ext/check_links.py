"""Checks the links of a built site: each relative one has a file, and each anchor an element.

Run as ``python docs/_ext/check_links.py docs/_build``. Sphinx checks references while it builds; this also sees links
in raw HTML, in generated pages and in outputs of notebooks.
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


def broken(root):
    """Yield the broken links of all pages."""
    for path in sorted(root.rglob("*.html")):
        if path.relative_to(root).parts[0] == "_static":  # templates of the theme
            continue
        for link in dict.fromkeys(page(path).links):
            if urlsplit(link).scheme or link.startswith("//"):
                continue
            where, anchor = urldefrag(link)
            target = (path.parent / unquote(urlsplit(where).path)).resolve() if where else path
            target = target / "index.html" if target.is_dir() else target
            if not target.exists():
                yield f"{path.relative_to(root)}: {link}: no such file"
            elif anchor and target.suffix == ".html" and unquote(anchor) not in page(target).anchors:
                yield f"{path.relative_to(root)}: {link}: no such anchor"


if __name__ == "__main__":
    found = list(broken(Path(sys.argv[1]).resolve()))
    print("\n".join(found) or "all internal links are sound")
    sys.exit(bool(found))
