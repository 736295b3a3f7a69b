class EmbeddedPostgresError(Exception):
    """The embedded PostgreSQL can not be started."""
