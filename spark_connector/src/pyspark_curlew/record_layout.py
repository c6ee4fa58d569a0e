"""RocketMQ's record, as far as `parting` and `records` both need it. Big-endian.

0 size · 4 magic · 20 queue offset · 28 physical offset · 36 system flags · 40 born time · 48 born
host (8, or 20 with IPv6) · store time · store host (8 or 20) · 12 more bytes · body length (at 84
with IPv4 hosts) and body · topic length (1 byte; 2 in version 2) and topic · properties length (2)
and properties.
"""

from typing import Final

FLAGS_AT: Final = 36
FIXED_BYTES: Final = 88
"""In front of the body, with IPv4 hosts."""
RECORD_BYTES_MIN: Final = 91
"""Of a V1 record with IPv4 hosts, without body, topic and properties."""
BORN_V6: Final = 0x10
STORE_V6: Final = 0x20
V6_EXTRA: Final = 12
"""How much longer an IPv6 host is."""
