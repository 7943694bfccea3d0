"""Text for messages: byte counts, and untrusted names without control codes."""


def printable(text: object, keep: str = "") -> str:
    r"""Return text with non-printable characters escaped as in Python (``\x1b``).

    Names of untrusted models and files may contain terminal control sequences, or right-to-left marks that display
    another name.
    """
    text = str(text)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)


def size_text(count: float) -> str:
    """Return a number of bytes with a binary unit."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
