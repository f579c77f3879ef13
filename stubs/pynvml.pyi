"""nvidia-ml-py carries no types; monitor/nvml.py, its only user, translates every value at once."""

from typing import Any

def __getattr__(name: str) -> Any: ...
