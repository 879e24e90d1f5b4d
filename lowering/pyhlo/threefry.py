"""Random bits from a key and a counter: Threefry-2x32 with 20 rounds.

Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3" (2011), table 2 and
section 3.3. The same key and counter give the same bits on every rank and every target.
"""

from __future__ import annotations

from graphgen.build import Builder
from graphgen.ir import Value

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA


def threefry(
    b: Builder, key: tuple[Value, Value], counter: tuple[Value, Value]
) -> tuple[Value, Value]:
    """Two u32 for each element of the counters.

    Args:
        b: appends the ops.
        key: two scalars u32.
        counter: two u32 of one shape.
    """
    shape = counter[0].shape
    parity = b.xor(b.xor(key[0], key[1]), _PARITY)
    keys = [b.broadcast_in_dim(item, shape, ()) for item in (*key, parity)]
    x, y = b.add(counter[0], keys[0]), b.add(counter[1], keys[1])
    for group in range(5):
        for bits in _ROTATIONS[group % 2]:
            x = b.add(x, y)
            turned = b.or_(b.shift_left(y, bits), b.shift_right_logical(y, 32 - bits))
            y = b.xor(turned, x)
        x = b.add(x, keys[(group + 1) % 3])
        y = b.add(b.add(y, keys[(group + 2) % 3]), group + 1)
    return x, y
