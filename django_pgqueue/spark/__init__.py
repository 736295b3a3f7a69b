"""The queue as a data source of Apache Spark: the history out, jobs in.  Needs ``django-pgqueue[spark]``.

    from django_pgqueue.spark.session import start

    spark = start("reports")  # or your own session, and: spark.dataSource.register(PgQueueDataSource)
    attempts = spark.read.format("pgqueue").load()

A second binding of ``sql/`` beside Django's: nothing here imports Django, because executors need not have it.
"""
