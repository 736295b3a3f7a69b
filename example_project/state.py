"""What the demo keeps between two starts: a private folder with its secrets and the mails that it "sent"."""

import os
import secrets
from pathlib import Path

FOLDER = Path(os.environ.get("EXAMPLE_STATE", Path(__file__).resolve().parent.parent / ".example"))


def folder() -> Path:
    FOLDER.mkdir(mode=0o700, parents=True, exist_ok=True)
    ignored = FOLDER / ".gitignore"
    if not ignored.exists():
        ignored.write_text("*\n")
    return FOLDER


def secret(name: str, length: int) -> str:
    """The secret of that name: made up when first asked for, the same ever after."""
    kept = folder() / name
    if not kept.exists():
        make(kept, secrets.token_urlsafe(length))
    return kept.read_text()


def make(kept: Path, text: str) -> None:
    """Write a file that only we may read; link it when it is whole, since web and worker may want it at once."""
    draft = kept.with_name(f"{kept.name}.{os.getpid()}")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
    try:
        os.link(draft, kept)
    except FileExistsError:
        pass  # another process was faster: its secret is the one
    finally:
        draft.unlink()
