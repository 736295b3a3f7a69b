"""The worker: claims messages, runs their tasks and records how they ended.  The life of a message, with its files::

    claim/availability.py  an enqueue wakes a worker that sleeps; others look by themselves (consumer/polling.py)
    claim/claimer.py       the worker claims as many ready messages as it has room for (claim/prefetch.py)
    claim/held.py          it holds each message, renews its lock, and asks whether the message is to be cancelled
    claim/give_back.py     what no slot begins goes back to the queue, or is parked
    run/slots.py           a slot takes the message: a thread (run/threads.py), or a coroutine (run/event_loop.py)
    run/execution.py       the slot calls the task, between its two signals; run/atomic.py does it in a transaction
    run/failure.py         an exception becomes an outcome (run/outcome.py): retried, deferred, failed, cancelled
    record/log.py          the slot logs one line about the ended attempt
    record/recorder.py     the worker writes the ends, many in one statement (record/record.py), and lets them go

``process.py`` has the turn that calls them, and ``supervise/`` starts the processes.
"""
