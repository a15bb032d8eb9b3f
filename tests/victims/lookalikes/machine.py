"""Healthy runs on a machine that slows them down, stops them or changes its clock."""

from __future__ import annotations

from collections.abc import Iterator

from lookalikes.base import Case, at, healthy

# Shifts the clock of a tree of processes by the seconds that a file holds.
CLOCK = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static volatile long *shift;
__attribute__((constructor)) static void begin(void) {
    const char *name = getenv("CORPUS_CLOCK");
    int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *page = mmap(0, 8, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (page != MAP_FAILED) shift = page;
}
int clock_gettime(clockid_t clock, struct timespec *t) {
    int failed = syscall(SYS_clock_gettime, clock, t);
    if (!failed && shift && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        t->tv_sec += *shift;
    return failed;
}
int gettimeofday(struct timeval *t, void *zone) {
    struct timespec exact;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &exact);
    t->tv_sec = exact.tv_sec;
    t->tv_usec = exact.tv_nsec / 1000;
    return 0;
}
time_t time(time_t *t) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (t) *t = exact.tv_sec;
    return exact.tv_sec;
}
"""


def clock_jumps() -> Iterator[Case]:
    """Somebody sets the clock."""
    jump = """
def jump(seconds):
    with open("clock", "r+b") as file:
        file.write(struct.pack("q", seconds))
"""
    bodies = {
        "an-hour-ahead": "jump(3600)\ntime.sleep(WAIT / 3)",
        "a-day-back": "jump(-86400)\ntime.sleep(WAIT / 3)",
        "ahead-in-a-wait": "time.sleep(2)\njump(3600)\nthreading.Event().wait(WAIT)",
        "back-in-a-wait": "time.sleep(2)\njump(-3600)\nthreading.Event().wait(WAIT)",
        "to-and-fro": "for index in range(int(WAIT)):\n    jump(7200 * (index % 2))\n    time.sleep(1)",
        "a-year-ahead-with-program": "jump(31536000)\nsubprocess.run(sleeping(WAIT))",
    }
    yield from healthy("clock-jumps", bodies, setup=jump, needs=("libclock.so",))
    back = Case(
        name="clock-jumps/back",
        setup=jump,
        body="jump(-86400)\ntime.sleep(WAIT)",
        needs=("libclock.so",),
    )
    yield from at(back, "worker", "rank")


def suspended() -> Iterator[Case]:
    """The machine, the run or one of its processes is stopped and continued."""
    for deed in ("suspend-all", "suspend-run"):
        for name, body in {"training": "pass", "timed-wait": "threading.Event().wait(5)"}.items():
            yield Case(name=f"suspended/{deed}-in-{name}", body=body, deed=deed)
        case = Case(name=f"suspended/{deed}", body="time.sleep(3)", deed=deed)
        yield from at(case, "worker", "rank")
    yield Case(
        name="suspended/suspend-one-worker",
        body='with open("pid", "w") as file:\n    file.write(str(os.getpid()))\ntime.sleep(2)',
        place="worker",
        deed="suspend-pid",
    )
    yield Case(
        name="suspended/suspend-one-rank",
        body='with open("pid", "w") as file:\n    file.write(str(os.getpid()))\ntime.sleep(2)',
        place="rank",
        deed="suspend-pid",
    )


def throttled() -> Iterator[Case]:
    """The run gets a small part of a core."""
    throttle = Case(name="throttled/by-signals", body="pass", deed="throttle-run")
    yield from at(throttle, "main", "worker", "rank")
    yield Case(name="throttled/all-by-signals", body="pass", deed="throttle-all")
    burn = """
os.sched_setaffinity(0, {0})
ready()
until_event()
burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(3)]
time.sleep(WAIT)
for burner in burners:
    burner.kill()
    burner.wait()
"""
    pinned = "os.sched_setaffinity(0, {0})\n"
    count = "\nfor _ in range(2_000_000):\n    pass"
    idle = "os.sched_setscheduler(0, os.SCHED_{}, os.sched_param(0))\n"
    once = "for _ in range(100_000):\n    pass\n"  # the idle class may get nothing of a busy core
    bodies = {
        "nice-19": pinned + "os.nice(19)" + count,
        "idle-class": pinned + idle.format("IDLE") + once + idle.format("OTHER"),
        "one-core-of-three-burners": pinned
        + "torch.randn(800, 800) @ torch.randn(800, 800)"
        + count,
    }
    yield from healthy("throttled", bodies, outside=burn, wait=25)
    yield Case(
        name="throttled/nice-worker",
        body=pinned + "os.nice(19)" + count,
        outside=burn,
        place="worker",
        wait=25,
    )
