"""Damaged copies of bytes and texts: what files look like that were cut, edited or not written."""

from __future__ import annotations

import random


def damaged_bytes(data: bytes, seed: int) -> bytes:
    """``data`` with one to four changes: bits, bytes, runs removed, repeated or made up."""
    choose = random.Random(seed)
    out = bytearray(data)
    for _ in range(choose.randint(1, 4)):
        at = choose.randrange(len(out)) if out else 0
        size = choose.choice((1, 1, 2, 5, 40))
        kind = choose.randrange(6)
        if kind == 0 and out:
            out[at] ^= 1 << choose.randrange(8)
        elif kind == 1 and out:
            out[at] = choose.choice((0, 1, 0x7F, 0x80, 0xFF, choose.randrange(256)))
        elif kind == 2:
            del out[at : at + size]
        elif kind == 3:
            out[at:at] = out[at : at + size] * choose.randint(1, 3)
        elif kind == 4:
            out[at:at] = choose.randbytes(size)
        else:
            del out[choose.randrange(len(out) + 1) :]
    return bytes(out)


_WORDS = (
    *("{", "}", "(", ")", "[", "]", ",", "=", "->", "%", '"', "...", "-1", "99999999999999999999"),
    *("f32[2]", "f32[1,0]{0,1}", "(", "token[]", "ROOT", "ENTRY", "constant", "nan", "\0", "é"),
)


def damaged_text(text: str, seed: int) -> str:
    """``text`` with one to four words removed, doubled, swapped or put in."""
    choose = random.Random(seed)
    for _ in range(choose.randint(1, 4)):
        at = choose.randrange(len(text) + 1)
        size = choose.choice((1, 1, 3, 10, 60))
        kind = choose.randrange(4)
        if kind == 0:
            text = text[:at] + text[at + size :]
        elif kind == 1:
            text = text[:at] + text[at : at + size] + text[at:]
        elif kind == 2:
            text = text[:at] + choose.choice(_WORDS) + text[at:]
        else:
            text = text[:at]
    return text
