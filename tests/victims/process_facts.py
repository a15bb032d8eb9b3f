"""Scripts that tell what a process is and how it ends, to be run with and without us."""

from __future__ import annotations

ENDS = {
    "normally": ("print('done')", 0),
    "by an exception": ("def f(): raise ValueError('of theirs')\nf()", 1),
    "by sys.exit": ("import sys; print('x'); sys.exit(3)", 3),
    "by a message": ("import sys; sys.exit('a message')", 1),
    "by os._exit": ("import os; print('lost'); os._exit(4)", 4),
    "by SIGKILL": ("import os; os.kill(os.getpid(), 9)", 137),
    "by SIGSEGV": ("import ctypes; ctypes.string_at(0)", 139),
    "by SIGTERM": ("import os; os.kill(os.getpid(), 15)", 143),
    "by its own ^C": ("import os; os.kill(os.getpid(), 2); import time; time.sleep(9)", 130),
    "with our code 75": ("raise SystemExit(75)", 75),
    "with 255": ("raise SystemExit(-1)", 255),
}
# Each line of this is one fact of the process; all of them must be the same.
FACTS = """
    import json, os, resource, signal, sys, __main__
    status = dict(line.rstrip("\\n").split(":", 1) for line in open("/proc/self/status"))
    def kind(number):
        about = os.fstat(number)
        return about.st_mode >> 12, os.get_inheritable(number)
    opened = [int(name) for name in os.listdir("/proc/self/fd")]
    def still_open(number):
        try: return bool(kind(number))
        except OSError: return False
    limits = [name for name in dir(resource) if name.startswith("RLIMIT_")]
    print(json.dumps({
        "argv": sys.argv, "orig_argv": getattr(sys, "orig_argv", None),
        "__file__": __file__, "__main__": sorted(vars(__main__))[:8], "name": __name__,
        "executable": [sys.executable, sys.prefix, sys.base_prefix],
        "path": sys.path, "modules": sorted(sys.modules), "flags": str(sys.flags),
        "hooks": [sys.excepthook.__name__, sys.gettrace() is None, sys.displayhook.__name__],
        "encodings": [sys.stdout.encoding, sys.stdin.encoding, sys.getfilesystemencoding()],
        "buffering": [sys.stdout.line_buffering, sys.stderr.line_buffering],
        "terminals": [os.isatty(number) for number in (0, 1, 2)],
        "folder": os.getcwd(), "umask": status["Umask"], "nice": os.nice(0),
        "processors": sorted(os.sched_getaffinity(0)),
        "identity": [os.getuid(), os.geteuid(), os.getgid(), sorted(os.getgroups())],
        "rights": [status[name] for name in ("CapEff", "CapBnd", "NoNewPrivs", "Seccomp")],
        "limits": {name: resource.getrlimit(getattr(resource, name)) for name in limits},
        "signals": {n: str(signal.getsignal(n)).split(" at ")[0]
            for n in sorted(signal.valid_signals())},
        "blocked": status["SigBlk"], "pending": status["ShdPnd"],
        "ignored": int(status["SigIgn"], 16) % 2**31,  # the C library keeps two above for itself
        "descriptors": {n: kind(n) for n in opened if still_open(n)},
        "oom": open("/proc/self/oom_score_adj").read(),
        "environment": dict(os.environ),
    }))
"""
WORDS = ["a b", "'", '"', "--", "", "-x", "--name", "$HOME", "*", "\\", "\n", "ä", "--resume=1"]
SAYS = """
    import json, sys, __main__
    spec = __main__.__spec__ and __main__.__spec__.name
    print(json.dumps([__name__, globals().get("__file__"), sys.argv, sys.path, spec]))
"""
