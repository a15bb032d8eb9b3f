"""A wait for the device that spins at 100 % CPU and whose signal never comes.

The device is a thread of a small library, built here with gcc, whose functions have the names that
ROCm's have. A person sees one core busy, the loss lines gone, and no error: the lost interrupt.
"""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

from knobs import STEPS
from ordinary import make_loader, make_model, make_optimizer, train_step

SOURCE = r"""
#include <pthread.h>
#include <unistd.h>
static volatile long asked, done, lost_at;
static void *device(void *unused) {
    for (;;) {
        usleep(500);
        if (asked > done && asked <= lost_at) done = asked;
    }
    return unused;
}
void hipInit(long lost) {
    pthread_t thread;
    lost_at = lost;
    pthread_create(&thread, 0, device, 0);
}
long hsa_signal_wait_scacquire(volatile long *signal, long value) {
    while (*signal < value) {}
    return *signal;
}
void hipLaunchKernel(void) { asked++; }
void hipDeviceSynchronize(void) { hsa_signal_wait_scacquire(&done, asked); }
"""


def build_device(folder: Path) -> ctypes.CDLL:
    folder.mkdir(exist_ok=True)
    source, library = folder / "device.c", folder / "libdevice.so"
    source.write_text(SOURCE, encoding="utf-8")
    command = ["gcc", "-O0", "-g", "-shared", "-fPIC", "-pthread", "-o", str(library), str(source)]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(library.absolute()))  # CDLL lets go of the GIL during a call


def main() -> None:
    device = build_device(Path("build"))
    device.hipInit(ctypes.c_long(STEPS))
    model = make_model()
    optimizer = make_optimizer(model)
    for step, (x, y) in enumerate(make_loader(2 * STEPS)):
        loss = train_step(model, optimizer, x, y)
        device.hipLaunchKernel()
        device.hipDeviceSynchronize()
        if step % 10 == 0:
            print(f"step {step} loss {loss:.4f}", flush=True)


if __name__ == "__main__":
    main()
