"""Find a Python that is new enough.

Any Python 3 must be able to read this file, because an old one may start it: annotations are quoted, and nothing here
needs a recent library.
"""

import glob
import os
import shutil
import subprocess
import sys

OLDEST = (3, 11)
MINORS = range(20, OLDEST[1] - 1, -1)
# Every candidate runs this: a pyenv shim whose version is not switched on exists, but does not run.
QUESTION = "import sys; print(sys.version_info[0], sys.version_info[1], sys.executable)"


def require(argv: "list[str]") -> None:
    """Return if this Python is new enough, else run `argv` with one that is; without one, exit with an instruction."""
    if sys.version_info[:2] >= OLDEST:
        return
    python = newest()
    if python is None:
        sys.exit(
            "Python {}.{} or newer is needed. This is {}, and no newer one is on PATH or under ~/.pyenv/versions. "
            "Install one (for example: apt install python3, or pyenv install 3.13) and use it.".format(
                OLDEST[0], OLDEST[1], sys.version.split()[0]
            )
        )
    sys.stdout.flush()
    os.execv(python, [python] + argv)  # noqa: S606


def newest() -> "str | None":
    """Path of the newest usable Python on this machine."""
    found = installed()
    return found[max(found)] if found else None


def installed() -> "dict[tuple[int, int], str]":
    """Every usable Python of this machine, one for each minor version: {(3, 13): "/usr/bin/python3.13"}."""
    found = {}  # type: dict[tuple[int, int], str]
    for path in candidates():
        version, executable = ask(path)
        if version >= OLDEST:
            found.setdefault(version, executable)
    return found


def candidates() -> "list[str]":
    """Paths that may be a Python, the likeliest first: on PATH, of pyenv and uv, of the system."""
    names = ["python3"] + ["python3.%d" % minor for minor in MINORS]
    on_path = [shutil.which(name) for name in names]
    patterns = [os.path.join(root, "versions/*/bin/python3") for root in pyenv_roots()]
    patterns.append(os.path.expanduser("~/.local/share/uv/python/*/bin/python3"))
    patterns += [os.path.join(folder, name) for folder in ("/usr/bin", "/usr/local/bin") for name in names]
    found = [path for path in on_path if path] + [path for pattern in patterns for path in sorted(glob.glob(pattern))]
    return list(dict.fromkeys(found))


def pyenv_roots() -> "list[str]":
    """Folders of pyenv's versions; HOME may differ from the one pyenv was installed for, as in a CI job."""
    on_path = os.environ.get("PATH", "").split(os.pathsep)
    roots = [os.environ.get("PYENV_ROOT", ""), os.path.expanduser("~/.pyenv")]
    roots += [os.path.dirname(folder) for folder in on_path if os.path.basename(folder) == "shims"]
    return [root for root in dict.fromkeys(roots) if root]


def ask(path: str) -> "tuple[tuple[int, int], str]":
    """((3, 13), the interpreter's own path); version (0, 0) when it does not run."""
    try:
        said = subprocess.check_output([path, "-c", QUESTION], stderr=subprocess.DEVNULL, timeout=20)
        major, minor, executable = said.decode().strip().split(" ", 2)
        return (int(major), int(minor)), executable
    except (OSError, ValueError, subprocess.SubprocessError):
        return (0, 0), path
