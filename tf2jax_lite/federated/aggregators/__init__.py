"""Composable aggregations of client updates.

Entries: the factories exported here; ``factory.create(template)`` returns an `AggregationProcess`.

Read in this order:
  base: the factory's interface, arithmetic over stacked clients, stages before an aggregation, sums and means.
  robust: medians, and rules against Byzantine clients.
  clipping: bounds on updates, and the exclusion of unusable ones.
  compression: messages of few bits.
  privacy, tree_noise: differential privacy, keys of its noise, and noise of DP-FTRL.
  accounting: epsilon, and the noise for one.
  secure: secure sums, also with distributed differential privacy.
  recommended: combinations with good defaults.

A module lists its public names in ``__all__``; `base.named` gives an aggregator its name on the command line.

Must not import `algorithms`, `execution` or `flower`.
"""

from . import accounting, base, clipping, compression, privacy, recommended, robust, secure, tree_noise
from .accounting import *  # noqa: F403
from .base import *  # noqa: F403
from .clipping import *  # noqa: F403
from .compression import *  # noqa: F403
from .privacy import *  # noqa: F403
from .recommended import *  # noqa: F403
from .robust import *  # noqa: F403
from .secure import *  # noqa: F403
from .tree_noise import *  # noqa: F403

__all__: list[str] = []
__all__ += accounting.__all__
__all__ += base.__all__
__all__ += clipping.__all__
__all__ += compression.__all__
__all__ += privacy.__all__
__all__ += recommended.__all__
__all__ += robust.__all__
__all__ += secure.__all__
__all__ += tree_noise.__all__
