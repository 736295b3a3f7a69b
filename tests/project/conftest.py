from tests.support.fixtures.sessions import conninfo, test_database

__all__ = ["conninfo", "test_database"]
