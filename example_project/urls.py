from django.contrib import admin
from django.urls import include, path

admin.site.site_header = "Tea shop administration"

urlpatterns = [
    path("admin/", admin.site.urls),
    path("", include("example_project.shop.urls")),
]
