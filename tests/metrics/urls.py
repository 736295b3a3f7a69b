from django.urls import include, path

urlpatterns = [path("queue/", include("django_pgqueue.metrics.urls"))]
