"""Run the third corpus under `rocsteady run`, each script in a folder and a home of its own.

    python tests/victims/third/run_all.py --python TORCH_PYTHON --out results.jsonl [--kind healthy]
        [--half a] [--jobs 8] [--busy] [--plain --wait 4] [--only NAME,NAME]

A name that --out already has, with the same --plain and --busy, is left out, so that an interrupted
run goes on where it was. A table of all that is in --out comes at the end. --failures FOLDER collects
the output of what failed, half b apart from half a.
"""

import argparse
import concurrent.futures
import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).parent
LIMITS = {"closed": 12, "exit": 30, "start": 120}
LOCK = threading.Lock()


def half(name):
    return "ab"[hashlib.sha256(name.encode()).digest()[0] % 2]


def read_cases(python):
    code = (
        "import json,sys,{0};from third_common import CASES;"
        "print(json.dumps({{n:{{k:v for k,v in c.items() if k!='run'}} for n,c in CASES.items()}}))"
    )
    cases = []
    for kind, module in (("healthy", "healthy"), ("hang", "hangs")):
        text = subprocess.check_output([python, "-c", code.format(module)], cwd=HERE)
        for name, one in json.loads(text).items():
            lines = [
                f"{path.name}:{number}"
                for path in HERE.glob("*.py")
                for number, line in enumerate(path.read_text().splitlines(), 1)
                if re.search(rf"# HANGS HERE: {name}$", line)
            ]
            one |= dict(what=kind, name=name, module=module, half=half(name), lines=lines)
            cases.append(one)
    return cases


def help_from_outside(box, python, ended):
    """Start what the script asks for, from here: not a child of the run."""
    waiting, helpers = [], []
    while not ended.wait(0.1):
        for path in box.glob("*.json"):
            request = json.loads(path.read_text())
            path.unlink()
            waiting.append((time.monotonic() + request["after"], request))
        for due, request in list(waiting):
            if time.monotonic() >= due:
                waiting.remove((due, request))
                helpers.append(
                    subprocess.Popen(
                        [python, str(HERE / "outside.py"), *request["command"]],
                        cwd=request["cwd"],
                        env={"PATH": os.environ["PATH"]},
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.DEVNULL,
                        stderr=(box / "errors").open("a"),
                        start_new_session=True,
                    )
                )
        helpers = [one for one in helpers if one.poll() is None]
    for one in helpers:
        one.terminate()
        one.wait()


def last_step(folder):
    times = []
    for path in folder.iterdir():
        with contextlib.suppress(ValueError, IndexError):
            times.append(float(path.read_text().split()[0]))
    return max(times, default=None)


def enough(one, started, steps):
    """Whether there is no point in waiting any longer."""
    now = time.time()
    last = last_step(steps)
    if one["what"] == "healthy":
        return now > started + 900
    if one["kind"] == "start":
        return now > started + 200
    return now > started + 300 or (last is not None and now > last + 75)


def run(one, options):
    top = Path(tempfile.mkdtemp(prefix=f"third-{one['name'][:20]}-"))
    work, box, steps = top / "work", top / "box", top / "steps"
    for path in (work, box, steps, top / "home"):
        path.mkdir()
    env = {key: os.environ[key] for key in ("PATH", "LANG", "TERM") if key in os.environ}
    env |= dict(
        HOME=str(top / "home"),
        XDG_STATE_HOME=str(top / "state"),
        XDG_CACHE_HOME=str(top / "cache"),
        XDG_CONFIG_HOME=str(top / "config"),
        XDG_DATA_HOME=str(top / "data"),
        THIRD_OUTSIDE=str(box),
        THIRD_STEPS=str(steps),
        THIRD_WAIT=str(options.wait),
    )
    command = [options.python, str(HERE / (one["module"] + ".py")), one["name"]]
    if not options.plain:
        command = [options.rocsteady, "run", "--max-attempts", "1", "--", *command]
    ended = threading.Event()
    hand = threading.Thread(target=help_from_outside, args=(box, options.python, ended))
    hand.start()
    started = time.time()
    output = top / "output"
    typed = one.get("stdin")
    process = subprocess.Popen(
        command,
        cwd=work,
        env=env,
        stdin=subprocess.PIPE if typed else subprocess.DEVNULL,
        stdout=output.open("wb"),
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    if typed:
        threading.Timer(15 + options.wait, type_yes, [process]).start()
    given_up = False
    while process.poll() is None:
        time.sleep(0.25)
        if not given_up and enough(one, started, steps):
            given_up = True
            process.send_signal(signal.SIGTERM)
            threading.Timer(30, process.kill).start()
    seconds = time.time() - started
    ended.set()
    hand.join()
    last = last_step(steps)
    text = output.read_text(errors="replace")
    errors = (box / "errors").read_text() if (box / "errors").exists() else ""
    result = {key: one.get(key) for key in ("name", "what", "kind", "half", "limit")}
    result |= dict(
        code=process.returncode,
        done=f"done {one['name']}\n" in text,
        seconds=round(seconds, 1),
        given_up=given_up,
        plain=options.plain,
        busy=options.busy,
        commit=options.commit,
        at=time.strftime("%H:%M:%S"),
        load=os.getloadavg()[0],
    )
    if not options.plain:
        shown = subprocess.run(
            [options.rocsteady, "report", "--json"], cwd=work, env=env, capture_output=True, check=False
        )
        report = json.loads(shown.stdout or b"{}")
        incidents = report.get("incidents", [])
        hung = [each for each in incidents if each["verdict"] == "hung"]
        result["attempts"] = len(report.get("attempts", []))
        result["verdicts"] = [each["verdict"] for each in incidents]
        result["withdrawn"] = text.count("false alarm")
        result["hooks"] = "hooks were not loaded" not in text
        found = (hung or incidents or [{}])[0]
        result["place"] = found.get("place")
        result["why"] = found.get("why")
        if hung:
            # Until the line that says so; the evidence takes longer, and the verdict may be withdrawn.
            said = [each["at"] for each in report["messages"] if each["event"] == "hung"]
            since = last or started
            result["found_after"] = round((said or [hung[0]["at"]])[-1] - since, 1)
            result["stopped_after"] = round(hung[0]["at"] - since, 1)
    judge(result, one, text)
    if not result["ok"]:
        note_failure(result, one, command, text + errors, options)
    with LOCK, open(options.out, "a") as file:
        file.write(json.dumps(result) + "\n")
    mark = "ok  " if result["ok"] else "FAIL"
    print(
        f"{mark} {result['at']} {one['half']} {one['what']:7} {one['name']:30} code {result['code']} "
        f"{result['seconds']:6.1f} s {result.get('found_after', '')} {result.get('place') or ''} "
        f"{result['reason']}",
        flush=True,
    )
    for path in (work / "data",):
        subprocess.run(["umount", str(path)], capture_output=True, check=False)
    if result["ok"]:
        shutil.rmtree(top, ignore_errors=True)


def type_yes(process):
    with contextlib.suppress(OSError):
        process.stdin.write(b"yes\n")
        process.stdin.close()


def judge(result, one, text):
    reasons = []
    if one["what"] == "healthy":
        if result["code"] != 0:
            reasons.append(f"ended with {result['code']}")
        if not result["done"]:
            reasons.append("did not reach its end")
        if "hung" in result.get("verdicts", []):
            reasons.append("called hung")
        if result.get("attempts", 1) != 1:
            reasons.append(f"{result['attempts']} attempts")
    elif not result["plain"]:
        right = (result["place"] or "").split(" ")[0] in one["lines"]
        result["right_line"] = right if result["place"] else None
        if one["kind"] == "open":
            if "hung" in result["verdicts"]:
                reasons.append("open, but called hung")
        elif "hung" not in result["verdicts"]:
            reasons.append("not found")
        elif result["found_after"] > LIMITS[one["kind"]]:
            reasons.append(f"found after {result['found_after']} s")
        if result["place"] and not right:
            reasons.append(f"line {result['place']}, expected {' or '.join(one['lines'])}")
    elif result["done"]:
        reasons.append("did not hang")
    result["ok"] = not reasons
    result["reason"] = "; ".join(reasons)


def note_failure(result, one, command, text, options):
    if not options.failures:
        return
    name = "FAILURES.md" if one["half"] == "a" else "FAILURES-b.md"
    lines = text.splitlines()[-60:]
    busy = " (busy)" if options.busy else ""
    again = f"tests/victims/third/run_all.py --python {options.python} --out /tmp/again.jsonl"
    with LOCK, open(Path(options.failures, name), "a") as file:
        file.write(
            f"\n## {result['at']} {one['what']} {one['name']}{busy}: {result['reason']}\n\n"
            f"{one['covers']}{'; a documented limitation' if one.get('limit') else ''}. "
            f"Commit {result['commit']}.\n\n"
            f"    {' '.join(command)}\n    again: {again} --only {one['name']}\n\n"
            f"why: {result.get('why')}\nplace: {result.get('place')}\n\n"
            "```text\n" + "\n".join(line[:600] for line in lines) + "\n```\n"
        )


def table(path):
    newest = {}
    for line in Path(path).read_text().splitlines():
        one = json.loads(line)
        newest[one["name"], one["what"], one["plain"], one["busy"]] = one
    groups = {}
    for one in newest.values():
        what = one["what"] if not one.get("kind") else one["kind"]
        what += " (limitation)" if one.get("limit") else ""
        mode = "plain" if one["plain"] else "busy" if one["busy"] else "idle"
        groups.setdefault((mode, what, one["half"]), []).append(one)
    for (mode, what, which), ones in sorted(groups.items()):
        times = sorted(one["found_after"] for one in ones if "found_after" in one)
        bad = [one["name"] for one in ones if not one["ok"]]
        took = f"found after {times[len(times) // 2]} s (median), {times[-1]} s at most" if times else ""
        print(f"{mode:5} {what:22} half {which}: {len(ones):3} runs, {len(bad)} failed {took} {' '.join(bad)}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--python", required=True)
    parser.add_argument("--rocsteady", default=str(Path(sys.executable).parent / "rocsteady"))
    parser.add_argument("--out", required=True)
    parser.add_argument("--kind", choices=["healthy", "hang"])
    parser.add_argument("--half", choices=["a", "b"])
    parser.add_argument("--only")
    parser.add_argument("--jobs", type=int, default=3)
    parser.add_argument("--wait", type=float, default=35)
    parser.add_argument("--busy", action="store_true")
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--failures")
    options = parser.parse_args()
    shown = ["git", "-C", str(HERE), "rev-parse", "--short", "HEAD"]
    options.commit = subprocess.run(shown, capture_output=True, text=True, check=False).stdout.strip()
    had = set()
    if os.path.exists(options.out):
        for line in Path(options.out).read_text().splitlines():
            one = json.loads(line)
            if (one["plain"], one["busy"]) == (options.plain, options.busy):
                had.add((one["what"], one["name"]))
    only = options.only.split(",") if options.only else None
    todo = [
        one
        for one in read_cases(options.python)
        if (not options.kind or one["what"] == options.kind)
        and (not options.half or one["half"] == options.half)
        and (one["name"] in only if only else (one["what"], one["name"]) not in had)
        and not (options.plain and one["what"] == "hang")
    ]
    print(f"{len(todo)} scripts", flush=True)
    code = "while True: sum(range(100000))"
    load = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2 if options.busy else 0)]
    try:
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            for future in [pool.submit(run, one, options) for one in todo]:
                future.result()
    finally:
        for one in load:
            one.kill()
    table(options.out)


if __name__ == "__main__":
    main()
