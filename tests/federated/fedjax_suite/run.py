"""Run FedJAX's tests: ``python -m tests.federated.fedjax_suite.run CHECKOUT``."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

FILES = {
    "fedjax/algorithms": "agnostic_fed_avg apfl fed_avg fed_prox hyp_cluster mime_lite mime",
    "fedjax/aggregators": "aggregator compression",
    "fedjax/core": (
        "client_datasets client_samplers federated_data for_each_client in_memory_federated_data metrics models "
        "optimizers regularizers serialization sqlite_federated_data tree_util util"
    ),
    "examples": "fed_avg stateful_fed_avg",
}


def outcomes(checkout: Path, only: str = "") -> dict[str, bool]:
    """Return whether each test passes, by ``folder/file::test``."""
    found = {}
    for folder, names in FILES.items():
        for name in names.split():
            if only not in f"{folder}/{name}":
                continue
            with tempfile.TemporaryDirectory() as here:
                shutil.copy(checkout / folder / f"{name}_test.py", here)
                if folder == "examples":
                    shutil.copy(checkout / folder / f"{name}.py", here)
                written = Path(here) / "outcomes.json"
                root = Path(__file__).parents[3]
                environment = os.environ | {
                    "FEDJAX_SOURCE": str(checkout),
                    "FEDJAX_OUTCOMES": str(written),
                    "PYTHONPATH": f"{root}:{os.environ.get('PYTHONPATH', '')}",
                    "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
                }
                command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p"]
                command += ["tests.federated.fedjax_suite.plugin", "-c", os.devnull, f"--rootdir={here}"]
                command.append(f"{here}/{name}_test.py")
                subprocess.run(command, env=environment, cwd=here, check=False, stdout=sys.stderr)
                each = json.loads(written.read_text())
                found |= {f"{folder}/{name}::{test}": passed for test, passed in each.items()}
    return found


if __name__ == "__main__":
    found = outcomes(Path(sys.argv[1]).resolve(), *sys.argv[2:])
    print(f"{sum(found.values())} of {len(found)}")
    print("\n".join(sorted(name for name, passed in found.items() if not passed)))
