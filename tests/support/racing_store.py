"""S3 as moto has it, where another process is always quicker to make a table."""

from __future__ import annotations

import sys
from io import BytesIO
from typing import TYPE_CHECKING, Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

S3 = DomainDispatcherApplication(create_backend_app)
OURS, THEIRS = b"ours", b"them"


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Puts the first commit of a table twice: the other process' one, with THEIRS in the place of OURS, goes first."""
    if environ["REQUEST_METHOD"] == "PUT" and environ["PATH_INFO"].endswith(f"{0:020d}.json"):
        commit = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
        theirs = BytesIO(commit.replace(OURS, THEIRS))
        list(S3({**environ, "wsgi.input": theirs}, lambda *_: None))
        environ["wsgi.input"] = BytesIO(commit)
    answer: Iterable[bytes] = S3(environ, start_response)
    return answer


if __name__ == "__main__":
    run_simple("127.0.0.1", int(sys.argv[1]), application, threaded=True)
