#!/bin/bash
# The website and a worker in one container. Each of them gets the signal once: a second one would cut jobs off.
# Whichever ends first takes the other along, and the container with it, so that it is started again as a whole.
gunicorn --bind 0.0.0.0:8000 --graceful-timeout 25 shop.wsgi &
web=$!
python manage.py qworker --processes 1 --grace-seconds 25 &
worker=$!

asked=0
stop() {
    [ "$asked" = 1 ] || kill -TERM "$web" "$worker" 2>/dev/null
    asked=1
}
trap stop TERM INT

wait -n "$web" "$worker"
code=$?
# Nobody asked for it: then it is a failure, whatever it says itself.
[ "$asked" = 1 ] && code=0 || code=$((code ? code : 1))
stop
for process in "$web" "$worker"; do
    # A signal interrupts wait, and the process goes on.
    while kill -0 "$process" 2>/dev/null; do wait "$process"; done
done
exit "$code"
