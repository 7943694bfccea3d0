"""Numbers with their units, and names of strangers', for people."""

__all__ = ["printable", "size_text"]


def printable(text: object, keep: str = "") -> str:
    r"""Returns a text in which what does not print is spelled as in Python (``\x1b``).

    Names come out of models and files of strangers: a terminal would obey the codes in them, and text from right to
    left shows another name than there is.

    Args:
      text: anything; its ``str`` is taken.
      keep: characters that stay as they are.
    """
    text = str(text)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)


def size_text(count: float) -> str:
    """Returns a number of bytes with its unit."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
