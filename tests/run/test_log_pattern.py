"""Work that is counted by a pattern in the log, in real runs."""

from __future__ import annotations

import sys

import pytest

if sys.platform == "win32":
    pytest.skip("runs are of POSIX; Windows is unconfirmed", allow_module_level=True)

from supervised import Project

pytestmark = pytest.mark.slow
EPISODES = "total = { log = 'episode (?P<n>\\d+)/(?P<total>\\d+)' }"
# A counter of another kind is printed last, far more is printed than is looked at for signs of
# work, and the last line has no end.
WITHOUT_TORCH = """
    import sys, time
    for episode in range(1, 31):
        print(f"loss 0.5 after step {episode * 64}/1920, episode {episode}/30 done")
        for step in range(400):
            print(f"step {step}/400 " + "x" * 100, flush=step == 399)
        time.sleep(0.02)
    sys.stdout.write("\\repisode 31/31")
"""
WITH_TORCH = """
    import time, torch
    net = torch.nn.Linear(2, 1); optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for episode in range(3):
        for _ in range(20):
            net(torch.ones(2)).backward(); optimizer.step()
        print("episode", episode + 1, flush=True)
        time.sleep(0.5)
"""


def test_a_script_without_torch_is_counted_in_its_own_units(project: Project) -> None:
    project.job(f"{EPISODES}\ndone_when = {{ steps = 31 }}", project.script(WITHOUT_TORCH))

    ended = project.run()
    line = project.line()

    assert ended.code == 0, ended.err
    assert (line["run"]["outcome"], line["step"], line["total"]) == ("done", 31, 31)
    assert project.story()["attempts"][0]["last_step"] == 31


def test_what_the_pattern_did_not_count_is_not_done(project: Project) -> None:
    project.job(
        "total = { log = 'episode (?P<n>\\d+)', steps = 31 }\ndone_when = { steps = 32 }",
        project.script(WITHOUT_TORCH),
    )

    ended = project.run()

    assert ended.code == 76
    assert "done_when.steps: 32 steps required, 31 reached" in ended.lines("gave up")[0]


def test_the_pattern_counts_also_where_the_optimizer_is_seen(
    project: Project, torch_python: str
) -> None:
    script = project.script(WITH_TORCH)
    (project.folder / "rocsteady.toml").write_text(
        f"command = ['{torch_python}', '{script}']\n"
        "total = { log = 'episode (?P<n>\\d+)', steps = 3 }\n"
    )

    ended = project.run()
    line = project.line()

    assert ended.code == 0, ended.err
    assert (line["step"], line["total"]) == (3, 3)
