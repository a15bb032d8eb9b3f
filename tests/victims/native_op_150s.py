"""One native operation of 150 s in mid-training: native_op_30s.py, five times as long."""

from __future__ import annotations

import sys

import native_op_30s

if __name__ == "__main__":
    sys.argv[1:] = ["150"]
    native_op_30s.main()
