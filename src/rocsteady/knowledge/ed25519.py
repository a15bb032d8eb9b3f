"""Checks Ed25519 signatures (RFC 8032), in plain Python: a bundle is checked once, in milliseconds.

Only public data goes in, so that nothing here has to take constant time. ``sign`` is for the tool
that makes bundles and for tests; no secret key comes with rocsteady.
"""

from __future__ import annotations

import hashlib

P = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P
ROOT = pow(2, (P - 1) // 4, P)  # of -1
KEY_SIZE, SIGNATURE_SIZE = 32, 64

Point = tuple[int, int, int, int]  # extended coordinates: X, Y, Z and T = XY / Z
NEUTRAL: Point = (0, 1, 1, 0)


def verify(public: bytes, message: bytes, signature: bytes) -> bool:
    """Tell whether the owner of a key signed the message."""
    if len(public) != KEY_SIZE or len(signature) != SIGNATURE_SIZE:
        return False
    key, commitment = _decoded(public), _decoded(signature[:32])
    scalar = int.from_bytes(signature[32:], "little")
    if key is None or commitment is None or scalar >= ORDER:
        return False
    challenge = _number(signature[:32], public, message)
    return _equal(_times(scalar, BASE), _sum(commitment, _times(challenge, key)))


def public_key(secret: bytes) -> bytes:
    """Return the key that goes with a secret one of 32 bytes."""
    return _encoded(_times(_expanded(secret)[0], BASE))


def sign(secret: bytes, message: bytes) -> bytes:
    """Sign a message."""
    scalar, prefix = _expanded(secret)
    nonce = _number(prefix, message)
    commitment = _encoded(_times(nonce, BASE))
    challenge = _number(commitment, _encoded(_times(scalar, BASE)), message)
    return commitment + ((nonce + challenge * scalar) % ORDER).to_bytes(32, "little")


def _expanded(secret: bytes) -> tuple[int, bytes]:
    digest = hashlib.sha512(secret).digest()
    scalar = int.from_bytes(digest[:32], "little") & ((1 << 254) - 8) | 1 << 254
    return scalar, digest[32:]


def _number(*parts: bytes) -> int:
    return int.from_bytes(hashlib.sha512(b"".join(parts)).digest(), "little") % ORDER


def _sum(one: Point, other: Point) -> Point:
    x1, y1, z1, t1 = one
    x2, y2, z2, t2 = other
    a, b = (y1 - x1) * (y2 - x2) % P, (y1 + x1) * (y2 + x2) % P
    c, d = 2 * t1 * t2 * D % P, 2 * z1 * z2 % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % P, g * h % P, f * g % P, e * h % P


def _times(count: int, point: Point) -> Point:
    total = NEUTRAL
    while count:
        if count & 1:
            total = _sum(total, point)
        point = _sum(point, point)
        count >>= 1
    return total


def _equal(one: Point, other: Point) -> bool:
    same_x = (one[0] * other[2] - other[0] * one[2]) % P == 0
    return same_x and (one[1] * other[2] - other[1] * one[2]) % P == 0


def _x_of(y: int, odd: int) -> int | None:
    """Return the coordinate that goes with y; None if no point has it."""
    square = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * ROOT % P
    if (x * x - square) % P or (x == 0 and odd):
        return None
    return P - x if x & 1 != odd else x


def _decoded(encoded: bytes) -> Point | None:
    number = int.from_bytes(encoded, "little")
    y, odd = number & ((1 << 255) - 1), number >> 255
    x = _x_of(y, odd) if y < P else None
    return None if x is None else (x, y, 1, x * y % P)


def _encoded(point: Point) -> bytes:
    inverse = pow(point[2], P - 2, P)
    x, y = point[0] * inverse % P, point[1] * inverse % P
    return (y | (x & 1) << 255).to_bytes(32, "little")


_Y = 4 * pow(5, P - 2, P) % P
_X = _x_of(_Y, 0) or 0
BASE: Point = (_X, _Y, 1, _X * _Y % P)
