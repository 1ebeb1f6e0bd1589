"""Makes points that milrec does not reach by itself: `import NAME`, and `between two renames`. See tests/pausing.py."""

import os
import sys

_POINT = os.environ.get("MILREC_PAUSE_AT", "").rpartition("@")[0]


class _Pausing:
    """Finds no module; it only waits, once."""

    waits = _POINT.startswith("import ")

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if cls.waits and f"import {name}" == _POINT:
            cls.waits = False
            from milrec.interrupts import pause_point

            pause_point(_POINT)


sys.meta_path.insert(0, _Pausing)


if _POINT == "between two renames":  # as on a system where two folders cannot change places in one step
    import milrec.disk.files

    milrec.disk.files.exchange = lambda one, other: False
