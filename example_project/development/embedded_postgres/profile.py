"""The kind of server: its settings, and whether its data is kept."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

BASE_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "100",
    "shared_buffers": "128MB",
    "timezone": "UTC",
    "log_timezone": "UTC",
}
# Not durable, for disposable data. Without autovacuum, plans and statistics change only when a test changes them.
THROW_AWAY_SETTINGS = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "autovacuum": "off",
    "max_prepared_transactions": "5",  # qdoctor finds prepared transactions
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A server that processes share when they ask for it by the same name."""

    name: str
    settings: Mapping[str, str] = field(default_factory=dict)
    keep: bool = True

    @classmethod
    def named(cls, name: str, settings: Mapping[str, str] | None = None, keep: bool | None = None) -> Self:
        """The profile of that name; `settings` are added to its own, and `keep` overrides its own value."""
        known = THROW_AWAY if name == THROW_AWAY.name else Profile(name=name)
        return cls(
            name=name,
            settings={**BASE_SETTINGS, **known.settings, **(settings or {})},
            keep=known.keep if keep is None else keep,
        )


THROW_AWAY = Profile(name="test", settings=THROW_AWAY_SETTINGS, keep=False)
