from importlib import import_module

from django.apps import AppConfig


class ShopConfig(AppConfig):
    name = "example_project.shop"
    label = "shop"
    verbose_name = "Tea shop"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        # A worker imports the modules "tasks"; this one has tasks, too.
        import_module("example_project.shop.fulfilment")
