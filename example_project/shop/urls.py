from django.urls import path

from example_project.shop import views

app_name = "shop"

urlpatterns = [
    path("", views.home, name="home"),
    path("orders/", views.orders, name="orders"),
    path("orders/report/", views.report, name="report"),
    path("orders/<int:pk>/", views.order, name="order"),
    path("orders/<int:pk>/status.json", views.order_status, name="order_status"),
    path("orders/<int:pk>/jobs/", views.order_job, name="order_job"),
    path("orders/<int:pk>/pay/", views.pay, name="pay"),
    path("webhooks/payment/", views.payment, name="payment"),
    path("changed-mind/<int:order_pk>/<str:job_id>/", views.changed_mind, name="changed_mind"),
    path("warehouse/", views.warehouse_page, name="warehouse"),
]
