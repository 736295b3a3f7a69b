"""Google's XML API for objects in front of moto's S3, which has the same requests with other headers."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

S3 = DomainDispatcherApplication(create_backend_app)
SIGNED = "AWS4-HMAC-SHA256 Credential=key/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=none"


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    query = environ["QUERY_STRING"]
    path = environ["PATH_INFO"] = unquote(environ["RAW_URI"].partition("?")[0])
    environ["RAW_URI"] = environ["REQUEST_URI"] = f"{path}?{query}" if query else path
    environ["HTTP_AUTHORIZATION"] = SIGNED
    generation = environ.pop("HTTP_X_GOOG_IF_GENERATION_MATCH", None)
    if generation == "0":
        environ["HTTP_IF_NONE_MATCH"] = "*"
    elif generation is not None:
        start_response("501 Not Implemented", [])
        return []
    if (source := environ.pop("HTTP_X_GOOG_COPY_SOURCE", None)) is not None:
        environ["HTTP_X_AMZ_COPY_SOURCE"] = source
    answer: Iterable[bytes] = S3(environ, start_response)
    return answer


if __name__ == "__main__":
    run_simple("127.0.0.1", int(sys.argv[1]), application, threaded=True)
