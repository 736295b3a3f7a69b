"""The queue as a data source of Apache Spark: Spark reads the history and adds jobs.  Needs the extra ``spark``.

    from django_pgqueue.spark.session import start

    spark = start("reports")  # or your own session, and: spark.dataSource.register(PgQueueDataSource)
    attempts = spark.read.format("pgqueue").load()

This is a second binding of ``sql/`` beside Django's.  Nothing here imports Django, which executors may not have.
"""
