"""Loaded at the start of every Python: notes the weights after each step, and kills or deadlocks.

RESUME_RECORDER is JSON: the folder to write to, and the faults, each brought about once and in order
before step "at" of a process.
"""
import hashlib
import importlib.machinery
import json
import os
import signal
import sys
import threading

PLAN = json.loads(os.environ["RESUME_RECORDER"])
steps = 0


def before(optimizer, args, kwargs):
    for number, fault in enumerate(PLAN["faults"]):
        mark = os.path.join(PLAN["folder"], f"fault-{number}")
        if os.path.exists(mark):
            continue
        if steps + 1 >= fault["at"]:
            open(mark, "x").close()
            if fault["kind"] == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            lock = threading.Lock()
            lock.acquire()
            lock.acquire()
        return


def after(optimizer, args, kwargs):
    global steps
    steps += 1
    digest = hashlib.sha256()
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            digest.update(parameter.detach().numpy().tobytes())
    with open(trace, "a") as file:
        file.write(digest.hexdigest()[:16] + "\n")


class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != "torch.optim.optimizer":
            return None
        sys.meta_path.remove(Finder)
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            module.register_optimizer_step_pre_hook(before)
            module.register_optimizer_step_post_hook(after)

        spec.loader.exec_module = exec_module
        return spec


trace = os.path.join(PLAN["folder"], f"trace-{os.getpid()}")
sys.meta_path.insert(0, Finder)
