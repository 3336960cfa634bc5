"""The verdicts and reports of the load lab, for `tidewire.bench`."""

from __future__ import annotations

from ._native import (
    LatencyRecorder as LatencyRecorder,
)
from ._native import (
    lab_check_pid as lab_check_pid,
)
from ._native import (
    lab_connections_room as lab_connections_room,
)
from ._native import (
    lab_cores as lab_cores,
)
from ._native import (
    lab_counters as lab_counters,
)
from ._native import (
    lab_judge as lab_judge,
)
from ._native import (
    lab_listener_pids as lab_listener_pids,
)
from ._native import (
    lab_load as lab_load,
)
from ._native import (
    lab_machine as lab_machine,
)
from ._native import (
    lab_preflight as lab_preflight,
)
from ._native import (
    lab_redacted as lab_redacted,
)
from ._native import (
    lab_save as lab_save,
)
from ._native import (
    lab_tables as lab_tables,
)
from ._native import (
    lab_tree as lab_tree,
)
from ._native import (
    lab_try_out as lab_try_out,
)
from ._native import (
    lab_usage as lab_usage,
)
