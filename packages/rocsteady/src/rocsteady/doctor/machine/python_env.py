"""The Python environment that trains, found without running it.

rocsteady may live in an environment of its own, so the one that trains is looked for where the
user put it: the one named, the active one, ``./.venv``, then the first ``python`` on PATH. Only a
``python`` that is a script (a shim or wrapper) is asked where it really lives.
"""

from __future__ import annotations

import json
import re

from rocsteady.doctor.machine.view import View
from rocsteady.model import Value
from rocsteady.system.root import parent, well_formed

PYTHON_FOLDER = re.compile(r"python(3\.\d+)t?$")
ABSOLUTE = re.compile(r"/|[A-Za-z]:/")
MAX_LINKS = 50  # .pth files, and lines of each


class PythonEnv(Value, frozen=True, kw_only=True):
    prefix: str
    chosen: str  # "--python", "VIRTUAL_ENV", "CONDA_PREFIX", "./.venv" or "PATH"
    version: str  # of Python; "" where the files do not say
    site_packages: tuple[str, ...]  # in the order Python looks
    why_not: str = ""  # why it could not be examined


def find_python(view: View) -> PythonEnv | None:
    """Return the environment that trains; our own is taken only if it holds torch."""
    environment = view.environment or {}
    if view.root.python:
        return _from_interpreter(view, view.root.python, "--python")
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if prefix := environment.get(variable, "").replace("\\", "/").rstrip("/"):
            return _from_prefix(view, prefix, variable)
    local = f"{view.root.folder.rstrip('/')}/.venv"
    if view.exists(f"{local}/pyvenv.cfg"):
        return _from_prefix(view, local, "./.venv")
    for interpreter in _on_path(view, environment.get("PATH", "")):
        found = _from_interpreter(view, interpreter, "PATH")
        if found.prefix != view.root.own_prefix or torch_folder(view, found):
            return found
    return None


def torch_folder(view: View, python: PythonEnv) -> str | None:
    folders = (f"{site}/torch" for site in python.site_packages)
    return next((folder for folder in folders if view.exists(f"{folder}/version.py")), None)


def _on_path(view: View, path: str) -> list[str]:
    windows = view.platform == "win32"
    folders = path.replace("\\", "/").split(";" if windows else ":")
    names = ("python.exe",) if windows else ("python3", "python")
    candidates = (f"{folder.rstrip('/')}/{name}" for folder in folders for name in names if folder)
    return [candidate for candidate in candidates if view.exists(candidate)][:4]


def _from_interpreter(view: View, interpreter: str, chosen: str) -> PythonEnv:
    interpreter = interpreter.replace("\\", "/")
    if view.piece(interpreter, 0, 2) == b"#!":
        return _from_portrait(view, interpreter, chosen)
    folder = interpreter.rpartition("/")[0]  # bin or Scripts
    prefix = folder if view.platform == "win32" else folder.rpartition("/")[0] or "/"
    if view.platform == "win32" and not view.exists(f"{folder}/Lib"):
        prefix = folder.rpartition("/")[0]
    if view.exists(f"{prefix}/pyvenv.cfg"):
        return _from_prefix(view, prefix, chosen)
    real = view.resolve(interpreter)  # /usr/bin/python3 leads to /usr/bin/python3.11
    version = re.search(r"python(3\.\d+)$", real)
    home = real.rpartition("/bin/")[0] or prefix
    return _from_prefix(view, home, chosen, version.group(1) if version else "")


def _from_portrait(view: View, interpreter: str, chosen: str) -> PythonEnv:
    try:
        prefix, executable, version, _ = map(str, json.loads(view.portrait(interpreter) or ""))
    except (ValueError, TypeError, RecursionError):
        return PythonEnv(
            prefix=interpreter,
            chosen=chosen,
            version="",
            site_packages=(),
            why_not="it is a script that did not report in time where Python is installed",
        )
    # Without site.py a virtual environment does not know that it is one; its place tells.
    around = parent(parent(well_formed(executable.replace("\\", "/"))))
    if not view.exists(f"{around}/pyvenv.cfg"):
        around = well_formed(prefix.replace("\\", "/"))
    return _from_prefix(view, around, chosen, well_formed(version))


def _from_prefix(view: View, prefix: str, chosen: str, version: str = "") -> PythonEnv:
    settings = _settings(view.text(f"{prefix}/pyvenv.cfg") or "")
    version = settings.get("version") or settings.get("version_info") or version
    sites = _site_packages(view, prefix, version)
    in_path = re.search(r"python(3\.\d+)", sites[0]) if sites else None
    version = version or (in_path.group(1) if in_path else "")
    shared = settings.get("include-system-site-packages", "").lower() == "true"
    if shared:
        home = settings.get("home", "").replace("\\", "/").removesuffix("/bin")
        sites += _user_site(view, version) + _site_packages(view, home, version)
    elif not settings:  # not a virtual environment, which would close the user's own off
        sites = _user_site(view, version) + sites
    return PythonEnv(
        prefix=prefix,
        chosen=chosen,
        version=version,
        site_packages=sites + tuple(folder for site in sites for folder in _linked(view, site)),
        why_not="" if sites else "it has no package folder",
    )


def _user_site(view: View, version: str) -> tuple[str, ...]:
    """Return where ``pip install --user`` puts packages."""
    environment = view.environment or {}
    home = environment.get("HOME", "").rstrip("/")
    base = environment.get("PYTHONUSERBASE", "").rstrip("/") or (home and f"{home}/.local")
    if view.platform == "win32" or not base or environment.get("PYTHONNOUSERSITE"):
        return ()
    folder = f"{base}/lib/python{'.'.join(version.split('.')[:2])}/site-packages"
    return (folder,) if version and view.is_folder(folder) else ()


def _site_packages(view: View, prefix: str, version: str) -> tuple[str, ...]:
    if not prefix:
        return ()
    short = ".".join(version.split(".")[:2])
    folders = [f"{prefix}/Lib/site-packages"] if view.platform == "win32" else []
    for lib in (f"{prefix}/{lib}" for lib in ("lib", "lib64", "local/lib", "local/lib64")):
        for name in reversed(view.names(lib) if view.platform != "win32" else ()):
            match = PYTHON_FOLDER.match(name)
            if match and short in ("", match.group(1)):
                folders += [f"{lib}/{name}/site-packages", f"{lib}/{name}/dist-packages"]
    folders.append(f"{prefix}/lib/python3/dist-packages")  # Debian's own
    there = {view.resolve(folder): folder for folder in reversed(folders) if view.is_folder(folder)}
    return tuple(folder for folder in folders if folder in there.values())  # lib64 is often lib


def _linked(view: View, site: str) -> list[str]:
    """Return the folders that .pth files add, such as a torch that was built in its own folder."""
    names = [name for name in view.names(site) if name.endswith(".pth")][:MAX_LINKS]
    texts = [view.text(f"{site}/{name}") or "" for name in names]
    lines = [line.strip() for text in texts for line in text.splitlines()[:MAX_LINKS]]
    paths = [line.replace("\\", "/") for line in lines if not line.startswith(("#", "import"))]
    return [path for path in paths if ABSOLUTE.match(path) and view.is_folder(path)]


def _settings(text: str) -> dict[str, str]:
    rows = (line.partition("=") for line in text.splitlines())
    return {name.strip().lower(): value.strip() for name, equals, value in rows if equals}
