"""The keys of `terrace-load`, of 20 bytes: the digits are the finalizer of SplitMix64 of the record's number."""

import re

KEY = re.compile(rb"kkkk([0-9a-f]{16})")
KEY_BYTES = 20

_MASK = (1 << 64) - 1
_ADDED, _FIRST, _SECOND = 0x9E37_79B9_7F4A_7C15, 0xBF58_476D_1CE4_E5B9, 0x94D0_49BB_1331_11EB


def key_of(number):
    z = number + _ADDED & _MASK
    z = (z ^ z >> 30) * _FIRST & _MASK
    z = (z ^ z >> 27) * _SECOND & _MASK
    return f"kkkk{z ^ z >> 31:016x}"


def number_of(digits):
    """The number of the record whose key has these digits."""
    z = _unshift(int(digits, 16), 31) * pow(_SECOND, -1, 1 << 64) & _MASK
    z = _unshift(z, 27) * pow(_FIRST, -1, 1 << 64) & _MASK
    return _unshift(z, 30) - _ADDED & _MASK


def _unshift(z, by):
    """Undoes `z ^= z >> by`."""
    whole = z
    while z := z >> by:
        whole ^= z
    return whole
