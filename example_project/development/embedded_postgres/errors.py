class EmbeddedPostgresError(Exception):
    """The embedded PostgreSQL cannot be started."""
