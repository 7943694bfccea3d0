"""Numbers with their units, for people."""

__all__ = ["size_text"]


def size_text(count: float) -> str:
    """Returns a number of bytes with its unit."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
