"""Speed of the data source and of the pipeline: ``python3 tests/spark/bench --help``."""
