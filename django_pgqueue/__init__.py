"""Background jobs for Django on the PostgreSQL that the project already has."""

__version__ = "0.2.0"
