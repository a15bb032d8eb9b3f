"""A torch that only has steps of optimizers, and takes as long to import as is worth a standby."""

from __future__ import annotations

from side_by_side import SideBySide
from supervised import Project

TORCH = """
    import colorsys, time
    try: import triton
    except ImportError: pass
    time.sleep(1.1)
    from torch.optim import optimizer
"""
OPTIMIZER = """
    import types
    hooks = []
    register_optimizer_step_pre_hook = register_optimizer_step_post_hook = hooks.append
    def step():
        for hook in hooks: hook(types.SimpleNamespace(param_groups=[]), (), {})
"""
# Is killed as often as the file says, from the fourth time on once the next standby is ready.
CRASHES = """
    import glob, os, signal, time
    from torch.optim import optimizer
    left = int(open("crashes").read())
    if left:
        open("crashes", "w").write(str(left - 1))
        run, _, number = os.path.dirname(os.environ["ROCSTEADY_PAGES"]).rpartition("-")
        ready = f"{run}-{int(number) + 1}-standby/pages/*.ready"
        end = time.monotonic() + (0.2 if int(number) <= 3 else 30)
        while time.monotonic() < end and not glob.glob(ready):
            optimizer.step()
            time.sleep(0.05)
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGKILL)
"""


def stand_in_torch(runs: SideBySide | Project) -> str:
    """Write it beside a script, and return the folder for PYTHONPATH."""
    runs.script(TORCH, "theirs/torch/__init__.py")
    runs.script("", "theirs/torch/optim/__init__.py")
    runs.script(OPTIMIZER, "theirs/torch/optim/optimizer.py")
    return str(runs.folder / "theirs")
