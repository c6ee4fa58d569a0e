"""What the machine is that the process runs on, as Linux tells it."""

import os
from pathlib import Path
from typing import Final

VIRTIO_DEVICES: Final = Path("/sys/bus/virtio/devices")
_BALLOON: Final = "0x0005"
_REPORTING: Final = 5
"""Number of the feature VIRTIO_BALLOON_F_PAGE_REPORTING: virtio 1.2, 5.5.3."""


def gives_free_memory_back(devices: Path = VIRTIO_DEVICES) -> bool:
    """Whether the machine is a virtual one that tells its host which memory is free.

    The host takes that away, and gives it again when it is used: 10 to 15 µs for a page of 4 KiB,
    where one that was kept takes 1 (measured, docs/adr/0038). False where it cannot be told.
    """
    for device in devices.glob("*"):
        try:
            kind = (device / "device").read_text().strip()
            features = (device / "features").read_text()
        except OSError:
            continue
        if kind == _BALLOON and features[_REPORTING : _REPORTING + 1] == "1":
            return True
    return False


def memory_bytes() -> int:
    """All of the machine's memory, in bytes."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
