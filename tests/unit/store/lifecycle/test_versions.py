"""G25: a store of an older version opens with all that is in it; one of a newer is refused.

`FIRST` is a directory as version 0.1 left it before checkpoints had sums of the units: five
messages in two queues, after a clean stop. Positive control: another version number.
"""

import base64
import zlib

import pytest

from app.store import StoreUnusable, paths
from app.store.formats.files.state_file import HEADER, VERSION, decode_checkpoint
from tests.support.stores.simulated_files import Inode, SimulatedFiles
from tests.support.stores.stores import OpenStore, open_store

FIRST = {
    "checkpoint": (4096, "c-muNVC+8sw0r>r1`PsCFJUwQ7=sJk"),
    "checkpoint.curlew": (
        247,
        "c-mEtO$x#=5QXbaWYz;F=^w32m%4IWN~q0<f&OTcq99(*%XkgbDoWq*V0aAkz0H2N4T50d{klHat2-!d&y}l"
        "Bq$G6;@-&JOtm_R)r(2S(g`B7CqsSYfZm8-YcV-}j%RmG9o1%c;C^8n1`3Xz>2iymuED?04=r$uwi9G7&`$I"
        "4ha?T?mcqm3BV1gpfSd@e!!(Wq8IPb+U&XSRG=zAx%CrsOt!{ZIve?*o",
    ),
    "commitlog/00000000000000000000": (
        4096,
        "c-muNV3>MqvBGlWr6*o9;027`=bvUU)B_oqd?hwC#cWCWDU}KaZ23hgsYS&Mddc}Y`K3jSMX4!F-ma0sjM)Z"
        "EA&&0BjEPL~@y<cc#zxAF76!)Vrlv*~W`;}*P)E5e`ccaOw-5zPMK~h+1*)T9d=y7bg*(a+x1$Upj!Hr}$^_"
        "^fLrV)21B9buSFb#d9yCx&3*m_T3#g8Q@sS+`Ru6HM5pG8rVTP2kshOpTg^{HJ+)-L<W(J~#6wLDd2uBp}Ky"
        "?(1kK(BPa7P*Ac9bzjNST@%nj0D#n42RUWpaY&6Iw_yL8%agBgz+`Its=|b`)4W#8D==9c6+MQpRS+mKNp)7"
        "RCll0MJ^L-v",
    ),
    "consumequeue/orders/0/00000000000000000000": (320, "c-muNfP<+}IuSxKYGH~og&>Oo092|2WB"),
    "consumequeue/orders/1/00000000000000000000": (320, "c-muN0E4Me3<60Iig7=(7yvt{14I"),
    "index/20231114221320000": (
        10536,
        "c-muNVC+8sG=qTwOqVZUKmkl4K!O#B*%(F!0Qr>#h?zm22L%c~#p0enYO#pbK$%lv`hjBA5Fth_sJS4qDyZ0"
        "gsC^)@N~CaS0RTCs5pM",
    ),
    "meta": (
        164,
        "c-nIg^6_P0U|<B|DO%^39II9;F3B%Sjn7O`vQjcIG&VO$HZ)MuQ7TSN&rQuMiBGC5Ni9~gGBL0;(@`ocO)X8"
        "0Ps_|njW5m1ECGre0!5RHQWHy3Q{r<$d~*W?&{4|FOG&MWFV4vasWmf!2>=Z)$^;o}YG|aRRGOEZk(!(hG$A"
        "z)=n8{c04YE-fB",
    ),
}
"""Path -> size, and the bytes before the zeros at the end: base 85 of zlib."""


def directory() -> SimulatedFiles:
    files = SimulatedFiles()
    for path in [*FIRST, paths.META_COPY]:
        size, text = FIRST["meta" if path == paths.META_COPY else path]
        parts = path.split("/")
        for depth in range(1, len(parts)):
            files.names.setdefault("/".join(parts[:depth]), Inode(directory=True))
        data = bytearray(zlib.decompress(base64.b85decode(text)).ljust(size, b"\0"))
        files.names[path] = Inode(False, data, bytearray(data))
    files._safe_names = dict(files.names)
    return files


def check_contents(opened: OpenStore) -> None:
    assert opened.bodies(queue_id=0) == [b"body 0", b"body 2", b"body 4"]
    assert opened.bodies(queue_id=1) == [b"body 1", b"body 3"]
    [record] = opened.store.find_by_key("orders", "k3", wait_for_disk=True)
    message = opened.store.decode(record)
    assert (message.tag, message.properties) == ("b", {"colour": "red"})


def test_a_store_of_the_first_version_opens_and_becomes_one_of_this() -> None:
    files = directory()
    opened = open_store(files, threads=False)
    assert opened.store.status().recovery.scanned_bytes == 0
    check_contents(opened)
    opened.append(b"body 5", queue_id=1)
    opened.turns.run()
    opened.store.close()
    checkpoint = decode_checkpoint(bytes(files.names[paths.CHECKPOINT].seen))
    assert [len(state.sums) for state in checkpoint.queues] == [4, 4]
    opened = open_store(files.kill(), threads=False)
    assert opened.bodies(queue_id=1)[-1] == b"body 5"


def with_version(files: SimulatedFiles, path: str, version: int) -> None:
    content = files.names[path].seen
    kind, _, length, checksum = HEADER.unpack_from(content)
    HEADER.pack_into(content, 0, kind, version, length, checksum)


def test_a_store_of_a_newer_version_is_refused() -> None:
    files = directory()
    for path in (paths.META, paths.META_COPY):
        with_version(files, path, VERSION + 1)
    before = files.fingerprint()
    with pytest.raises(StoreUnusable, match=f"version {VERSION + 1}"):
        open_store(files, threads=False)
    files.names.pop(paths.LOCK, None)
    assert files.fingerprint() == before, "a refused store is not touched"
