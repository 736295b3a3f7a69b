"""The configuration of Spark for small data, which most tests have."""

from __future__ import annotations

QUICK = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "1g",
}
QUICK_CLUSTER = QUICK | {
    "spark.executor.memory": "512m",
    "spark.cores.max": "2",
    # Who kills executors all the time is not what they have to bear otherwise.
    "spark.task.maxFailures": "50",
    # Nothing begins before all executors are there.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
}
