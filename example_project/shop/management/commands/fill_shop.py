"""Fill the shop: products on the shelf, and orders that go through the normal checkout."""

from datetime import timedelta
from decimal import Decimal
from typing import Any

from django.core.management.base import BaseCommand
from django.db import transaction
from django.utils import timezone

from example_project.shop import jobs
from example_project.shop.checkout import place_order, remember
from example_project.shop.models import Order, Product
from example_project.shop.tasks import make_sales_report, send_reminder

PRODUCTS = {
    "assam": ("Assam", "Malty and strong. Made for milk and for Mondays.", "7.50", "#8c3b2a"),
    "darjeeling": ("Darjeeling", "First flush, light, with a hint of muscatel.", "12.80", "#b4862d"),
    "earl-grey": ("Earl Grey", "Black tea with oil of bergamot.", "8.20", "#3b5b92"),
    "genmaicha": ("Genmaicha", "Green tea with roasted rice, warm and nutty.", "9.40", "#5d7a34"),
    "peppermint": ("Peppermint", "No caffeine, no bitterness, no regrets.", "5.60", "#1f7a6d"),
    "rooibos": ("Rooibos", "Red, mild, and as good in the evening.", "6.30", "#a8472f"),
}

ORDERS = [
    ("Grace Hopper", {"assam": 2}),
    ("Alan Turing", {"earl-grey": 1, "peppermint": 1}),
    ("Edgar Codd", {"darjeeling": 1}),
    ("Barbara Liskov", {"genmaicha": 3}),
    ("Michael Stonebraker", {"assam": 1, "rooibos": 2}),
    ("Frances Allen", {"peppermint": 4}),
    ("Leslie Lamport", {"darjeeling": 2, "earl-grey": 2}),
    ("Radia Perlman", {"rooibos": 1}),
    ("Jim Gray", {"earl-grey": 6}),
    ("Lynn Conway", {"genmaicha": 1, "assam": 1}),
]


class Command(BaseCommand):
    help = "Puts products on the shelf and, in a shop without orders, places some."

    def handle(self, *_args: Any, **_options: Any) -> None:
        for slug, (name, description, price, colour) in PRODUCTS.items():
            defaults = {"name": name, "description": description, "price": Decimal(price), "colour": colour}
            Product.objects.get_or_create(slug=slug, defaults=defaults)
        if not Order.objects.exists():
            self.place_orders()

    def place_orders(self) -> None:
        shelf = {product.slug: product for product in Product.objects.all()}
        for customer, basket in ORDERS:
            email = customer.lower().replace(" ", ".") + "@example.com"
            order = place_order(customer, email, {shelf[slug]: quantity for slug, quantity in basket.items()})
            self.stdout.write(f"{order}: {customer}, {', '.join(map(str, order.lines.all()))}, EUR {order.total}")
        self.ask_for_more(order)

    def ask_for_more(self, order: Order) -> None:
        """Enqueue one job of every other kind, so that the admin has something to show."""
        with transaction.atomic():
            for start in jobs.ON_REQUEST.values():
                remember(order, start(order))
            tomorrow = timezone.now() + timedelta(days=1)
            remember(order, send_reminder.using(run_after=tomorrow).enqueue(order.pk))
        make_sales_report.enqueue()
        self.stdout.write(f"{order}: a courier, a reminder, a quote, an expired voucher; and a sales report")
