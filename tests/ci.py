"""The steps of continuous integration: see .ci/run. Any Python 3 must be able to read the first half of this file."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT)

from example_project.development import bootstrap, interpreter  # noqa: E402

LINT, PREPARE = "--lint", "--prepare"


def main(arguments: "list[str]") -> int:
    interpreter.require(sys.argv)
    os.chdir(str(ROOT))
    if arguments not in ([], [LINT], [PREPARE]):
        sys.exit("usage: .ci/run [{}]".format(LINT))
    if arguments:
        bootstrap.enter("demo", "test", "lint", "docs", "spark")
    if arguments == [PREPARE]:
        collect(sys.executable)
        return 0
    return report(lint() if arguments else everything())


def everything() -> "dict[str, bool]":
    """Lint on the newest Python, whose Django the type stubs describe; the README's test command on both ends."""
    pythons = interpreter.installed()
    for version, path in sorted(pythons.items()):
        say("Python {}.{}: {}".format(*version, path))
    oldest, newest = min(pythons), max(pythons)
    if oldest == newest:
        say("NOTE: there is only one Python here, so the oldest and the newest pair cannot both be tested.")
    commands = {title: [command(version, pythons[version]), *words] for title, version, words in shares(oldest, newest)}
    last = command(newest, pythons[newest])
    return (one_by_one if "DATABASE_URL" in os.environ else side_by_side)(last, commands)


def shares(oldest: "tuple[int, int]", newest: "tuple[int, int]") -> "list[tuple[str, tuple[int, int], list[str]]]":
    """A title, a Python and what it runs.  What is the same on both is done on one, and so are the slow tests.  All are
    divided by the names of the files, and the last ones end at about the same time.
    """
    lint = "lint", newest, ["tests/ci.py", LINT]
    if oldest == newest:
        return [lint, ("tests", oldest, ["tests"])]
    quick, slow, once = "not once and not slow", "slow and not once", "once and not spark"
    sql, waiting, spark, both = [], [], [], []
    for part, others in (("a to e", "[f-z]"), ("f to l", "[a-em-z]"), ("m to p", "[a-lq-z]"), ("q to z", "[a-p]")):
        title = "SQL, proofs and project, {}, on Python {}.{}".format(part, *oldest)
        sql.append((title, oldest, ["tests", left_out(others), "-m", once]))
    for part, others in (("a to l", "[m-z]"), ("m to r", "[a-ls-z]"), ("s to z", "[a-r]")):
        title = "slow tests, {}, on Python {}.{}".format(part, *newest)
        waiting.append((title, newest, ["tests", "--no-spark", left_out(others), "-m", slow]))
    for part, others in (("a to i", "[j-z]"), ("j to z", "[a-i]")):
        title = "Spark, {}, on Python {}.{}".format(part, *oldest)
        spark.append((title, oldest, ["tests", left_out(others), "-m", "spark"]))
    for part, others in (("a to l", "[m-z]"), ("m to z", "[a-l]")):
        title = "tests {}, on Python {}.{}"
        both.append((title.format(part, *oldest), oldest, ["tests", left_out(others), "-m", quick]))
        both.append((title.format(part, *newest), newest, ["tests", "--no-spark", left_out(others), "-m", quick]))
    return [
        sql[0],  # first, because its Python is ready while the other one is still prepared
        *waiting,
        *sql[1:],
        *both[:2],
        lint,
        *both[2:],
        *spark,  # two of them keep all processors busy, as two of the others do not
        # Where lint has brought what builds the site.
        ("the site on Python {}.{}".format(*newest), newest, ["tests", *SITE]),
    ]


SITE = "tests/project/docs/test_site.py", "tests/project/docs/test_site_search.py"


def left_out(letters: str) -> str:
    return "--ignore-glob=*/test_{}*.py".format(letters)


def one_by_one(newest: str, commands: "dict[str, list[str]]") -> "dict[str, bool]":
    begun_to_prepare(newest).wait()  # lint adds to what the tests need
    results = {}
    for title, words in commands.items():
        say("\n=== " + title)
        results[title] = run(*words)
    return results


def side_by_side(newest: str, commands: "dict[str, list[str]]") -> "dict[str, bool]":
    """Each with a server of its own: the tests wait more than they compute.  What they say is shown in turn."""
    with tempfile.TemporaryDirectory(prefix="pgqueue-ci-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        runs = [
            Run(title, words, folder / "{}-{}".format(number, title.replace(" ", "-")))
            for number, (title, words) in enumerate(commands.items())
        ]
        try:
            start_in_turn(runs, newest)
            passed = [one.told() for one in runs]  # before any of them has another try alone
        finally:
            for one in runs:
                one.end(signal.SIGKILL)
        return {one.title: fine or one.once_more() for one, fine in zip(runs, passed)}  # noqa: B905 - old Pythons


AT_ONCE = 3 * (os.cpu_count() or 1)
"""More runs than that keep no processor busier, and their tests wait for one another until they give up."""


def start_in_turn(runs: "list[Run]", newest: str) -> None:
    """Each Python has its environment, and has collected the tests, before its first run."""
    preparing = begun_to_prepare(newest)
    compiled = set()
    for one in runs:
        while sum(other.is_running() for other in runs) >= AT_ONCE:
            time.sleep(0.2)
        python = one.words[0]
        if python not in compiled:
            if python == newest:
                preparing.wait()
            else:
                collect(python)
            compiled.add(python)
        one.start()


def collect(python: str) -> None:
    """Pytest compiles the tests, and keeps what it made.  Says nothing: what cannot be collected fails in the runs."""
    words = [python, "tests", "--collect-only", "-qq"]
    subprocess.call(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=dict(os.environ, **COMPILED))


def begun_to_prepare(python: str) -> "subprocess.Popen[bytes]":
    """The newest one gets what lint needs, too.  Returns when `.venv` has a Python: another one sees then that it has
    to make a folder of its own, and does so meanwhile.
    """
    say("\n$ {} tests/ci.py {}".format(python, PREPARE))
    process = subprocess.Popen([python, "tests/ci.py", PREPARE], stdin=subprocess.DEVNULL)
    while process.poll() is None and not Path(".venv", "bin", "python").exists():
        time.sleep(0.1)
    return process


COMPILED = {"PYTHONDONTWRITEBYTECODE": ""}
"""The tests start many processes, and each would compile this package anew."""

MAX_UNLUCKY = 10
"""More failures than that are no accident of test runs that share a machine."""


MAX_RUN_S = 3600
"""A run that takes longer hangs: it ends with the stacks of its threads, so that one can see where."""

MAX_REPEAT_S = 900


class Run:
    """A run of the tests beside others, in a folder for its server, its cache and what it says."""

    def __init__(self, title: str, words: "list[str]", folder: Path) -> None:
        self.title = title
        self.words = words
        self.folder = folder
        self.process = None  # type: subprocess.Popen[bytes] | None
        self.environment = dict(
            os.environ,
            PGQUEUE_POSTGRES_HOME=str(folder / "postgres"),
            PYTEST_ADDOPTS="--durations=30 --durations-min=3 -o cache_dir={}".format(folder / "cache"),
            **COMPILED,
        )

    def start(self) -> None:
        say("\n$ {}  (its output comes when it has ended)".format(" ".join(self.words)))
        self.folder.mkdir(mode=0o755)
        self.begin(self.words)

    def begin(self, words: "list[str]") -> None:
        """Starts them in a process group of their own: what a run has started ends with it."""
        self.deadline = time.monotonic() + MAX_RUN_S
        with (self.folder / "output").open("wb") as file:
            self.process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=self.environment,
                start_new_session=True,
            )

    def is_running(self) -> bool:
        """Not if it hangs: then others go on."""
        return self.process is not None and self.process.poll() is None and time.monotonic() < self.deadline

    def told(self) -> bool:
        """Waits for it, and shows what it said."""
        passed = self.wait()
        output = (self.folder / "output").read_text(errors="replace")
        say("\n=== {}\n{}\n({})".format(self.title, output, "passed" if passed else "FAILED"))
        return passed

    def wait(self) -> bool:
        """Returns whether it passed.  A run that hangs prints the stack of each thread (pytest does so on SIGABRT)."""
        assert self.process is not None
        try:
            return self.process.wait(max(0, self.deadline - time.monotonic())) == 0
        except subprocess.TimeoutExpired:
            say("\n{} did not end in time: its last lines show where it is.".format(self.title))
        self.end(signal.SIGABRT)
        time.sleep(5)
        self.end(signal.SIGKILL)
        self.process.wait()
        return False

    def end(self, number: int) -> None:
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, number)

    def once_more(self) -> bool:
        """A few tests that failed beside the other runs may have another try with the machine to themselves.

        What passes then is named: it depends on the speed of the machine, or has found something that is rare.
        """
        try:
            failed = sorted(json.loads((self.folder / "cache" / "v" / "cache" / "lastfailed").read_text()))
        except (OSError, ValueError):
            return False
        if not 0 < len(failed) <= MAX_UNLUCKY:
            return False
        say("\n=== {}: once more, alone".format(self.title))
        self.begin([*self.words, *failed])
        self.deadline = time.monotonic() + MAX_REPEAT_S
        if not self.told():
            return False
        for test in failed:
            say("NOTE: failed beside the other runs, passed alone: {}".format(test))
        return True


def command(version: "tuple[int, int]", path: str) -> str:
    """As the README has it, if that is the Python in question."""
    return "python3" if interpreter.ask("python3")[0] == version else path


def lint() -> "dict[str, bool]":
    """Each check, all of them even if one fails."""
    say("\n=== lint on Python {}.{}, {}".format(*sys.version_info[:2], sys.prefix))
    # The embedded server's own database, so that a test database need not exist.
    os.environ.update(DJANGO_SETTINGS_MODULE="tests.settings", PGQUEUE_TEST_DATABASE="pgqueue")
    results = {
        "ruff check": module("ruff", "check", "."),
        "ruff format": module("ruff", "format", "--check", "."),
        "mypy": module("mypy"),
        "imports": run(str(Path(sys.executable).with_name("lint-imports")), "--no-cache"),
        "migrations": module("django", "makemigrations", "--check", "--dry-run"),
    }
    books = sorted(ROOT.glob("docs/**/mkdocs.yml")) + sorted(ROOT.glob("docs/**/properdocs.yml"))
    for book in books:
        results["docs"] = module(
            "properdocs", "build", "--strict", "--quiet", "-f", str(book), "-d", str(ROOT / "site")
        )
    if not books:
        say("NOTE: there is no docs/**/mkdocs.yml, so no documentation is built.")
    return results


def module(*arguments: str) -> bool:
    return run(sys.executable, "-m", *arguments)


def run(*words: str) -> bool:
    say("\n$ " + " ".join(words))
    begun = time.monotonic()
    passed = subprocess.call(words, stdin=subprocess.DEVNULL) == 0
    say("({}, {:.0f} s)".format("passed" if passed else "FAILED", time.monotonic() - begun))
    return passed


def report(results: "dict[str, bool]") -> int:
    failed = [title for title, passed in results.items() if not passed]
    say("\n{}".format("FAILED: " + ", ".join(failed) if failed else "Passed: " + ", ".join(results)))
    return 1 if failed else 0


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
