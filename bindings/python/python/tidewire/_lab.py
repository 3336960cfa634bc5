"""Loads and their reports, and histograms."""

from __future__ import annotations

from ._native import (
    lab_load as lab_load,
)
from ._native import (
    lab_save as lab_save,
)
from ._native import (
    lab_tables as lab_tables,
)
from ._native import (
    latency_buckets as latency_buckets,
)
