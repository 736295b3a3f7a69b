"""A project that has moved from Celery, with its tasks on both systems.

It does what the tasks of paperless-ngx do, an archive of documents: their names, schedules, expiries, retries, and who
comes after whom, as they were in 2024 (src/documents/tasks.py and bulk_edit.py, src/paperless_mail/mail.py,
src/paperless/settings.py).  None of its code is here.
"""
