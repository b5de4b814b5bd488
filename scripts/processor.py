"""The name of the machine's processor, for pages that state times."""

import platform
import re
from pathlib import Path


def processor() -> str:
    """Returns the name of the processor, such as "AMD EPYC 7B13"."""
    info = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*: (.+)", info.read_text()) if info.exists() else None
    return found[1] if found else platform.processor() or platform.machine()
