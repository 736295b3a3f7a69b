"""URLs to include: ``path("", include("django_pgqueue.metrics.urls"))`` serves ``/metrics``."""

from django.urls import path

from django_pgqueue.metrics.views import metrics

app_name = "pgqueue_metrics"
urlpatterns = [path("metrics", metrics, name="metrics")]
