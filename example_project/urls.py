from django.contrib import admin
from django.templatetags.static import static
from django.urls import include, path
from django.views.generic import RedirectView

admin.site.site_header = "Tea shop administration"

urlpatterns = [
    path("admin/", admin.site.urls),
    # The admin's pages name no icon, so browsers ask for this one.
    path("favicon.ico", RedirectView.as_view(url=static("shop/favicon.svg"))),
    path("", include("example_project.shop.urls")),
]
