"""The demo's state between two starts: a private folder with its secrets and the mails that it "sent"."""

import os
import secrets
import sys
from contextlib import suppress
from pathlib import Path

HOME = "PGQUEUE_EXAMPLE_HOME"
FOLDER = Path(os.environ.get(HOME) or Path(__file__).resolve().parent.parent / ".example").absolute()


def folder() -> Path:
    try:
        FOLDER.mkdir(mode=0o700, parents=True, exist_ok=True)
        (FOLDER / ".gitignore").write_text("*\n")
    except OSError as error:
        sys.exit(f"{error}. Name a folder that you may write to in {HOME}.")
    return FOLDER


def secret(name: str, length: int) -> str:
    """The secret of that name: generated at the first call, and kept from then on."""
    kept = folder() / name
    if not kept.exists():
        make(kept, secrets.token_urlsafe(length))
    return kept.read_text()


def make(kept: Path, text: str) -> None:
    """Write a file that only its owner may read; link it when complete, since web and worker may make it at once."""
    draft = kept.with_name(f"{kept.name}.{os.getpid()}")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
    with suppress(FileExistsError):  # another process was faster: its secret counts
        os.link(draft, kept)
    draft.unlink()
