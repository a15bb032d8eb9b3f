"""The sessions of this repository. CI (`.ci/run`) uses the same ones.

``nox -l`` lists them, ``nox -s near`` tests what you changed, ``nox`` runs what must pass before a
commit. Each has an environment of its own below ``.nox``. In an environment that has the ``dev``
group, ``nox --no-venv --no-install`` uses that one instead, which is faster and is what CI does.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from hashlib import sha256
from pathlib import Path

import nox

nox.needs_version = ">=2024.10.9"
nox.options.default_venv_backend = "venv"
nox.options.reuse_existing_virtualenvs = True
nox.options.sessions = ["lint", "types", "tests"]

HERE = Path(__file__).parent
PACKAGES = ("rocsteady_knowledge", "rocsteady_train", "rocsteady")
CHECKOUT = tuple(word for name in PACKAGES for word in ("-e", f"packages/{name}"))
SUPPORTED = ("3.11", "3.12", "3.13", "3.14")
TORCH = "torch==2.13.0"  # what slow tests and benchmarks compare with; never a dependency
BESIDE_TORCH = "numpy>=2,<3"  # as users have it: torch alone warns on stderr that it is not there
NVRX = "nvidia-resiliency-ext==0.4.1"
NVRX_NEEDS = ("defusedxml", "packaging", "psutil", "pynvml", "pyyaml")
TORCH_VENV = HERE / ".ci" / "torch-venv"
WHEEL_VENV = HERE / ".ci" / "wheel-venv"
TORCH_PYTHON = "ROCSTEADY_TEST_TORCH_PYTHON"
# The fast tests whose result can depend on the interpreter; the others run on one of them.
BY_INTERPRETER = ("cli/test_main.py", "system", "inside", "store", "doctor/knowledge")
TRAINING_PYTHON = "ROCSTEADY_TEST_TRAINING_PYTHON"
ALL_OF_IT = {  # what is too long for the slow tests as such
    "ROCSTEADY_HOSTILE_ALL": "1",
    "ROCSTEADY_RANK_FAULTS": "200",
    "ROCSTEADY_TEST_ALL_NOTES": "1",
    "ROCSTEADY_TEST_SKY_PYTHON": "make",
}
ELSEWHERE = {  # whose tests are not in a folder of that name
    "loop": Path("tests/checkpoints"),
    "machines": Path("tests/doctor/test_machines.py"),
}
# The slow tests, below tests/, in shards of at most 45 minutes on two cores.
SHARDS = {
    "cli": ("cli", "examples", "plan", "test_*.py"),
    "inside": ("checkpoints", "guides", "inside", "integrations"),
    "failing": ("doctor", "failing", "failures", "hangs", "hostile", "probe", "store", "system"),
    "ranks": ("ranks",),
    "runs": ("run/test_[a-q]*.py",),
    "restarts": ("run/test_[r-z]*.py",),
}
LOCK, RELEASE_LOCK = ".ci/requirements-dev.txt", ".ci/requirements-release.txt"
MOST_PACKAGES = 26  # that installing the wheel may bring, rocsteady included
DOCTOR_ENDS_WITH = (0, 1, 3)  # nothing blocks, something blocks, could not examine


def _install(session: nox.Session, *what: str) -> None:
    """Install into the session's environment, unless it runs in one that has everything."""
    session.install("-qq", "--upgrade", "pip>=25.1")  # the first that knows --group
    session.install("-qq", *what)


def _program(venv: Path, name: str) -> str:
    """Give the path of a program in an environment."""
    return str(venv / "Scripts" / f"{name}.exe" if os.name == "nt" else venv / "bin" / name)


def _new_venv(session: nox.Session, venv: Path) -> str:
    """Make an environment with nothing in it, and give its interpreter."""
    shutil.rmtree(venv, ignore_errors=True)
    session.run(sys.executable, "-m", "venv", str(venv), external=True)
    return _program(venv, "python")


def _torch_python(session: nox.Session) -> str:
    """Give an interpreter that has torch: the one named in the environment, or one made here."""
    named = os.environ.get(TORCH_PYTHON)
    if named:
        return named
    ready = TORCH_VENV / TORCH
    if not ready.exists():
        python = _new_venv(session, TORCH_VENV)
        session.run(python, "-m", "pip", "install", "-qq", TORCH, BESIDE_TORCH, external=True)
        ready.touch()
    return _program(TORCH_VENV, "python")


@nox.session(name="format")
def format_(session: nox.Session) -> None:
    """Format the code and apply ruff's safe fixes."""
    _install(session, "--group", "lint")
    session.run("ruff", "check", "--fix-only", ".")
    session.run("ruff", "format", ".")


@nox.session
def lint(session: nox.Session) -> None:
    """Check the format, every ruff rule that pyproject.toml does not except, and the imports."""
    _install(session, "--group", "lint", *CHECKOUT)
    session.run("ruff", "format", "--check", "--diff", ".")
    session.run("ruff", "check", *session.posargs, ".")
    session.run("lint-imports")


@nox.session
def types(session: nox.Session) -> None:
    """Run mypy, strict."""
    _install(session, "--group", "dev", *CHECKOUT)
    session.run("mypy")


@nox.session
def near(session: nox.Session) -> None:
    """Run the fast tests of the rooms that differ from main (or from the commit before)."""
    _install(session, "--group", "test", *CHECKOUT)
    changed = _changed(session)
    tests = sorted({test for path in changed for test in _tests_of(path)})
    # What is below a folder that runs anyway need not be named.
    tests = [t for t in tests if not any(str(p) in tests for p in Path(t).parents)]
    if not tests:
        session.skip(f"{len(changed)} files changed, none with tests of its own: nox -s tests")
    session.log(f"{len(changed)} files changed: {' '.join(tests)}")
    nothing_fast = 5  # pytest's code if all of them are slow
    session.run("pytest", "--quiet", *session.posargs, *tests, success_codes=[0, nothing_fast])


def _changed(session: nox.Session) -> list[str]:
    """List what differs from main, committed or not; on main, from the commit before."""

    def git(*words: str) -> str:
        return str(session.run("git", *words, external=True, silent=True, log=False)).strip()

    since = git("merge-base", "main", "HEAD")
    if since == git("rev-parse", "HEAD") and not git("status", "--porcelain"):
        since = "HEAD~"
    changed = git("diff", "--name-only", since).splitlines()
    return changed + git("ls-files", "--others", "--exclude-standard").splitlines()


def _tests_of(path: str) -> list[str]:
    """List the tests of a file: those of its room, or the file itself."""
    top, *inner = Path(path).parts
    if top == "tests":
        place = Path(path)
    elif "rocsteady_knowledge" in inner:
        return ["tests/doctor", "tests/failures"]
    elif "src" in inner:  # packages/NAME/src/NAME/ROOM/...
        place = Path("tests", *inner[inner.index("src") + 2 :])
    else:
        place = Path("tests", f"test_{Path(path).stem.lower()}.py")  # such as README.md
    if place.parent == Path("tests") and not place.name.startswith("test_"):
        place = place.with_name(f"test_{place.name}")  # a module in no room
    place = ELSEWHERE.get(place.parts[1], place)
    while not _has_tests(HERE / place):
        place = place.parent
    return [] if place == Path("tests") else [str(place)]


def _has_tests(place: Path) -> bool:
    if place.is_dir():
        return any(place.rglob("test_*.py"))
    return place.is_file() and place.name.startswith("test_")


@nox.session
def tests(session: nox.Session) -> None:
    """Run the fast tests. Arguments after ``--`` go to pytest."""
    _install(session, "--group", "test", *CHECKOUT)
    session.run("pytest", "--durations=10", *session.posargs)


@nox.session
def torch(session: nox.Session) -> None:
    """Create the environment with torch that slow tests and the benchmark use."""
    session.log(_torch_python(session))


@nox.session
def slow(session: nox.Session) -> None:
    """Run the slow tests that are marked ``ci``, many of them with a real torch. 8 min."""
    _install(session, "--group", "test", *CHECKOUT)
    env = {TORCH_PYTHON: _torch_python(session)}
    session.run("pytest", "-m", "ci", "--durations=20", *session.posargs, env=env)


@nox.session
@nox.parametrize("shard", [nox.param(name, id=name) for name in SHARDS])
def full(session: nox.Session, shard: str) -> None:
    """Run the slow tests of a shard, such as ``full(ranks)``. At most 45 min each."""
    _install(session, "--group", "test", *CHECKOUT)
    env = {TORCH_PYTHON: _torch_python(session)}
    folders = [str(path) for each in SHARDS[shard] for path in sorted(HERE.glob(f"tests/{each}"))]
    wanted = ("-m", "slow and not hardware", "--durations=20", *folders)
    session.run("pytest", *wanted, *session.posargs, env=env)


@nox.session
def long(session: nox.Session) -> None:
    """Run at full length what slow tests have in part; the corpus; forecasts. Takes hours."""
    _install(session, "--group", "test", *CHECKOUT)
    python = _torch_python(session)
    env = {TORCH_PYTHON: python, **ALL_OF_IT}
    wanted = session.posargs or ["tests/ranks/test_faults.py", "tests/plan"]
    session.run("pytest", "-m", "slow and not hardware", *wanted, env=env)
    if not session.posargs:
        session.run("python", "tests/victims/corpus.py", "--python", python)
        session.run("python", "benchmarks/forecast.py", "--python", python, "--check")


@nox.session
def trainers(session: nox.Session) -> None:
    """Install real trainers, and kill, hang and cut each of them. Hours; arguments name some."""
    _install(session, "--group", "test", *CHECKOUT)
    folder = HERE / ".ci" / "trainers"
    driver = ("tests/trainers/try_trainers.py", "--environments", str(folder))
    session.run("python", *driver, *session.posargs)


@nox.session
def hostile(session: nox.Session) -> None:
    """Try to make it leak, write elsewhere or stop, and print the counts. 45 min."""
    _install(session, "--group", "test", *CHECKOUT)
    env = {TORCH_PYTHON: _torch_python(session), **ALL_OF_IT}
    wanted = ("-m", "not hardware", "-n", "0", "--quiet", "tests/hostile")
    session.run("pytest", *wanted, *session.posargs, env=env)


@nox.session(python=SUPPORTED)
def compatibility(session: nox.Session) -> None:
    """Import every module, and run the fast tests that can depend on the interpreter."""
    _install(session, "--group", "test", *CHECKOUT)
    session.run("python", "tests/import_all.py", "rocsteady", "rocsteady_train")
    folders = [f"tests/{each}" for each in BY_INTERPRETER]
    session.run("pytest", "--quiet", *folders, *session.posargs)


@nox.session
def oldest_training(session: nox.Session) -> None:
    """Import rocsteady-train on Python 3.9, and inject it into scripts of that Python."""
    _install(session, "--group", "test", *CHECKOUT)
    say = ("python3.9", "-c", "import sys; print(sys.executable)")
    python = str(session.run(*say, external=True, silent=True)).strip()
    source = {"PYTHONPATH": str(HERE / "packages/rocsteady_train/src")}
    session.run(python, "tests/import_all.py", "rocsteady_train", external=True, env=source)
    env = {TRAINING_PYTHON: python}
    session.run("pytest", "--quiet", "tests/inside/test_start.py", *session.posargs, env=env)


@nox.session
def lowest(session: nox.Session) -> None:
    """Run tests with the oldest dependencies that pyproject.toml allows."""
    project = nox.project.load_toml("packages/rocsteady/pyproject.toml")["project"]
    theirs = [each for each in project["dependencies"] if not each.startswith("rocsteady-")]
    oldest = [each.replace(">=", "==") for each in theirs]
    _install(session, "--group", "test", *CHECKOUT, *oldest)
    chosen = session.posargs or ["tests/cli", "tests/store", "tests/report", "tests/hostile"]
    session.run("pytest", "--quiet", *chosen)


@nox.session
def lock(session: nox.Session) -> None:
    """Update the versions that CI and development install, each with its hashes."""
    session.install("-qq", "uv>=0.8")
    how = ("--universal", "--generate-hashes", "--python-version", SUPPORTED[0], "--upgrade")
    ours = ("--no-emit-package", "rocsteady-train", "--no-emit-package", "rocsteady-knowledge")
    quiet = ("--no-header", "--no-annotate", "--quiet")
    for group, lock in (("dev", LOCK), ("release", RELEASE_LOCK)):
        projects = ("--group", f"pyproject.toml:{group}", "packages/rocsteady/pyproject.toml")
        session.run("uv", "pip", "compile", *how, *ours, *quiet, "--output-file", lock, *projects)


@nox.session
def expected(session: nox.Session) -> None:
    """Rewrite the expected output of machines and screens. Read the diff before you commit."""
    _install(session, "--group", "test", *CHECKOUT)
    screens = ["tests/doctor/test_machines.py", "tests/screens", "tests/cli/test_man_pages.py"]
    chosen = session.posargs or screens
    session.run("pytest", "--quiet", "--update-expected", *chosen)


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation; a warning is an error."""
    _install(session, "--group", "docs", *CHECKOUT)
    session.run("sphinx-build", "-W", "--keep-going", "-E", "-q", "docs", "docs/_build/html")
    session.log("open docs/_build/html/index.html")


@nox.session
def screenshot(session: nox.Session) -> None:
    """Take the pictures of the docs anew, from real runs, where nothing else runs; 15 min."""
    _install(session, "--group", "docs", "axe-playwright-python", *CHECKOUT)
    session.run("python", "benchmarks/quiet.py")
    session.run(
        "python", "docs/screenshot.py", "--python", _torch_python(session), *session.posargs
    )


@nox.session
def build(session: nox.Session) -> None:
    """Build the three wheels, and run the doctor from them where there is nothing else."""
    _install(session, "build")
    dist = Path(session.create_tmp()) / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    for name in PACKAGES:
        session.run("python", "-m", "build", "--wheel", "--outdir", str(dist), f"packages/{name}")
    wheels = [str(path) for path in dist.glob("*.whl")]

    python = _new_venv(session, WHEEL_VENV)
    session.run(python, "-m", "pip", "install", "-qq", *wheels, external=True)
    _check_packages(session, python)
    doctor = (_program(WHEEL_VENV, "rocsteady"), "doctor")
    session.run(*doctor, external=True, success_codes=DOCTOR_ENDS_WITH)
    session.run(*doctor, "--json", external=True, success_codes=DOCTOR_ENDS_WITH)


@nox.session
def release(session: nox.Session) -> None:
    """Build what is published, twice; check it; install it as people do. The result is in dist/."""
    session.install("-qq", "--require-hashes", "-r", RELEASE_LOCK)
    session.install("-qq", "--no-deps", *CHECKOUT)
    _check_versions(session)
    dist, elsewhere = HERE / "dist", Path(session.create_tmp()) / "again"
    for folder in (dist, elsewhere):
        shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(HERE / "packages", elsewhere / "packages")  # another path, other times
    shutil.copy(HERE / ".gitignore", elsewhere)  # an sdist has the nearest one
    for packages, target in ((HERE / "packages", dist), (elsewhere / "packages", elsewhere)):
        for name in PACKAGES:
            words = ("--no-isolation", "--outdir", str(target), str(packages / name))
            session.run("python", "-m", "build", *words, silent=True)
    files = sorted(path for path in dist.iterdir() if path.suffix in (".whl", ".gz"))
    for path in files:
        digests = [sha256(each.read_bytes()).hexdigest() for each in (path, elsewhere / path.name)]
        session.log(f"{digests[0]}  {path.name}")
        if len(set(digests)) > 1:
            session.error(f"{path.name} is different when it is built again")
    session.run("twine", "check", "--strict", *map(str, files))
    session.run("check-wheel-contents", *(str(path) for path in files if path.suffix == ".whl"))
    _install_as_people_do(session, dist)
    sbom = ("environment", _program(WHEEL_VENV, "python"), "--output-file", str(dist / "sbom.json"))
    session.run("cyclonedx-py", *sbom)
    together = ("-q", "-m", "slow or not slow", "tests/run/test_versions_together.py")
    session.run("pytest", *together, env={TORCH_PYTHON: _torch_python(session)})


def _check_versions(session: nox.Session) -> None:
    """Fail if what must be the same version is not."""
    command, library = HERE / "packages" / "rocsteady", HERE / "packages" / "rocsteady_train"
    told = {
        name: re.findall(pattern, path.read_text(encoding="utf-8"), re.MULTILINE)
        for name, path, pattern in (
            ("command", command / "src/rocsteady/__init__.py", r'__version__ = "(.+)"'),
            ("library", library / "src/rocsteady_train/__init__.py", r'__version__ = "(.+)"'),
            ("pin", command / "pyproject.toml", r"rocsteady-train==([^\"]+)\""),
        )
    }
    if len({tuple(each) for each in told.values()}) > 1:
        session.error(f"versions differ: {told}")


def _install_as_people_do(session: nox.Session, dist: Path) -> None:
    """Install from the files in a folder, each time where there is nothing else."""
    home = Path(session.create_tmp()).resolve() / "home"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    env = {
        "HOME": str(home),
        "PIPX_HOME": str(home / "pipx"),
        "PIPX_BIN_DIR": str(home / ".local" / "bin"),
        "PIP_FIND_LINKS": " ".join([str(dist), os.environ.get("PIP_FIND_LINKS", "")]),
        "UV_FIND_LINKS": str(dist),
        "UV_PRERELEASE": "allow",
        "PIP_PRE": "1",
    }
    python = _new_venv(session, WHEEL_VENV)
    session.run(python, "-m", "pip", "install", "-qq", "rocsteady", env=env, external=True)
    _check_packages(session, python)
    library = _new_venv(session, HERE / ".ci" / "train-venv")
    session.run(library, "-m", "pip", "install", "-qq", "rocsteady-train", env=env, external=True)
    session.run(library, "-c", "import rocsteady_train", external=True)

    def doctor(*command: str) -> None:
        words = (*command, "doctor")
        session.run(*words, external=True, env=env, success_codes=DOCTOR_ENDS_WITH)

    doctor(_program(WHEEL_VENV, "rocsteady"))
    uvx = str(Path(session.bin) / "uvx")
    doctor(uvx, "rocsteady")
    (home / "train.py").write_text("import sys; print(sys.prefix)", encoding="utf-8")
    place = Path(library).parents[1]
    path = os.pathsep.join((str(place / "bin"), os.environ["PATH"]))
    # As after `source bin/activate`; nox would put its own environment before it.
    active = ("env", f"PATH={path}", f"VIRTUAL_ENV={place}")
    words = (uvx, "rocsteady", "run", "--yes", "--", "python", "train.py")
    with session.chdir(home):
        told = session.run(*active, *words, env=env, external=True, silent=True)
    if str(place) not in str(told):
        session.error(f"uvx rocsteady run took another Python than the active one: {told}")
    session.run("uv", "tool", "install", "rocsteady", env=env)
    doctor(str(home / ".local/bin/rocsteady"))
    session.run("uv", "tool", "uninstall", "rocsteady", env=env)
    session.run("pipx", "install", "rocsteady", env=env)
    doctor(str(home / ".local/bin/rocsteady"))


def _check_packages(session: nox.Session, python: str) -> None:
    """Fail if the wheel brought torch, or too much."""
    listing = session.run(python, "-m", "pip", "list", "--format=json", external=True, silent=True)
    installed = {package["name"] for package in json.loads(str(listing))}
    brought = sorted(installed - {"pip", "setuptools"})  # these came with the environment
    session.log(f"the wheel brought {len(brought)} packages: {', '.join(brought)}")
    if "torch" in brought:
        session.error("the wheel brought torch, which must stay the user's own")
    if len(brought) > MOST_PACKAGES:
        session.error(f"the wheel brought more than {MOST_PACKAGES} packages")


@nox.session
def bench(session: nox.Session) -> None:
    """Compare the speed of the doctor with that of torch's own report on its environment."""
    _install(session, *CHECKOUT)
    python = _torch_python(session)
    session.run("python", "benchmarks/doctor_speed.py", "--python", python, *session.posargs)


@nox.session
def compare(session: nox.Session) -> None:
    """Run the same faults under rocsteady and its peers, where nothing else runs; 80 min."""
    _install(session, *CHECKOUT)
    python = _torch_python(session)
    ours, nvrx = (
        _new_venv(session, Path(session.create_tmp()) / name) for name in ("ours", "nvrx")
    )
    for each in (ours, nvrx):
        session.run(each, "-m", "pip", "install", "-qq", TORCH, BESIDE_TORCH, external=True)
    session.run(ours, "-m", "pip", "install", "-qq", *CHECKOUT, external=True)
    for words in (("--no-deps", NVRX), NVRX_NEEDS):  # its own torch would be another build
        session.run(nvrx, "-m", "pip", "install", "-qq", *words, external=True)
    session.run("python", "benchmarks/quiet.py")
    chart = ("--chart", "docs/pictures/goodput.svg")
    session.run("python", "benchmarks/goodput.py", "--python", python, "--nvrx", nvrx, *chart)
    session.run("python", "benchmarks/peers.py", ours, nvrx, session.create_tmp(), "5")
    session.run("python", "benchmarks/ranks.py", ours, session.create_tmp(), "20")
    for name in ("heartbeat_cost", "checkpoint_cost"):
        session.run("python", f"benchmarks/{name}.py", "--python", python, success_codes=(0, 1))
