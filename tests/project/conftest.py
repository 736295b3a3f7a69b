from tests.sql.conftest import conninfo, test_database

__all__ = ["conninfo", "test_database"]
