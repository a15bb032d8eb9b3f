"""What `hangs.py child_deadlock` starts: a program that stops in a lock of its own."""

import threading

lock = threading.Lock()
with lock:
    lock.acquire()  # HANGS HERE: child_deadlock
