"""What `hangs.py import_lock` imports: a module that starts a thread which imports it, and waits."""

import threading


def register():
    from stuck_plugin import NAME  # HANGS HERE: import_lock

    return NAME


thread = threading.Thread(target=register)
thread.start()
thread.join()
NAME = "plugin"
