"""Every claim of the boundary that can be tried from inside without harm."""

from __future__ import annotations

from . import probes_files, probes_kernel, probes_limits, probes_process, probes_shared

CLAIMS = [
    *probes_process.CLAIMS,
    *probes_kernel.CLAIMS,
    *probes_files.CLAIMS,
    *probes_limits.CLAIMS,
    *probes_shared.CLAIMS,
]
