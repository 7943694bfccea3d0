"""Write several artifacts in one directory, as trainings of several models do."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from .artifact import ExportReport
from .atomic_dir import METADATA, new_directory
from .metadata import FAMILY, FAMILY_MEMBERS


def write_family(
    path: str | Path,
    members: Mapping[str, Callable[[Path], ExportReport]],
    *,
    extra: Mapping[str, bytes] | None = None,
    overwrite: bool = False,
) -> ExportReport:
    """Write artifacts into subdirectories, all of them or none.

    Args:
      members: name of a subdirectory to a function that writes an artifact there.
      extra: further files of the directory: name to content.

    Returns:
      A report: ``files`` has ``folder/file`` for those of members; other values are the first member's.
    """
    files: dict[str, int] = {}
    reports = []
    with new_directory(Path(path), overwrite=overwrite) as work:
        for name, write in members.items():
            reports.append(write(work / name))
            files |= {f"{name}/{file}": size for file, size in reports[-1].files.items()}
        sizes = {name: {"bytes": len(content)} for name, content in (extra or {}).items()}
        metadata = {"format": FAMILY, "format_version": 1, FAMILY_MEMBERS: list(members), "files": sizes}
        for name, content in {**(extra or {}), METADATA: (json.dumps(metadata, indent=2) + "\n").encode()}.items():
            (work / name).write_bytes(content)
            files[name] = len(content)
    first = reports[0]
    return ExportReport(str(path), files, first.signatures, first.parameters, first.warnings)
