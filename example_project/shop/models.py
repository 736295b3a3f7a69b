"""The shop's data. Nothing here depends on the queue: an order stores only the id of a job's result."""

from decimal import Decimal

from django.core.validators import MinValueValidator
from django.db import models
from django.urls import reverse
from django.utils import timezone


class Product(models.Model):
    name = models.CharField(max_length=80)
    slug = models.SlugField(unique=True)
    description = models.CharField(max_length=200)
    price = models.DecimalField(max_digits=8, decimal_places=2, validators=[MinValueValidator(Decimal("0.01"))])
    colour = models.CharField(max_length=7, help_text="Colour of the tin, such as #1f7a6d.")

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name


class Order(models.Model):
    customer = models.CharField(max_length=80)
    email = models.EmailField()
    total = models.DecimalField(max_digits=10, decimal_places=2)
    placed_at = models.DateTimeField(default=timezone.now, db_index=True)

    class Meta:
        ordering = ("-placed_at", "-pk")

    def __str__(self) -> str:
        return f"Order {self.pk}"

    def get_absolute_url(self) -> str:
        return reverse("shop:order", args=[self.pk])


class OrderLine(models.Model):
    order = models.ForeignKey(Order, on_delete=models.CASCADE, related_name="lines")
    product = models.ForeignKey(Product, on_delete=models.PROTECT)
    quantity = models.PositiveSmallIntegerField(validators=[MinValueValidator(1)])
    unit_price = models.DecimalField(max_digits=8, decimal_places=2)

    class Meta:
        ordering = ("pk",)

    def __str__(self) -> str:
        return f"{self.quantity} x {self.product}"

    @property
    def price(self) -> Decimal:
        return self.quantity * self.unit_price


class OrderJob(models.Model):
    """A job that was enqueued for an order: the id is all that django.tasks needs to find its result again."""

    order = models.ForeignKey(Order, on_delete=models.CASCADE, related_name="jobs")
    label = models.CharField(max_length=80)
    result_id = models.CharField(max_length=64)

    class Meta:
        ordering = ("pk",)

    def __str__(self) -> str:
        return f"{self.label} ({self.result_id})"


class Receipt(models.Model):
    order = models.OneToOneField(Order, on_delete=models.CASCADE)
    text = models.TextField()
    sent_at = models.DateTimeField(default=timezone.now)

    def __str__(self) -> str:
        return f"Receipt for {self.order}"


class CourierBooking(models.Model):
    order = models.OneToOneField(Order, on_delete=models.CASCADE)
    tracking_code = models.CharField(max_length=20)
    attempts = models.PositiveSmallIntegerField(help_text="Number of calls to the courier.")
    booked_at = models.DateTimeField(default=timezone.now)

    def __str__(self) -> str:
        return self.tracking_code


class Quote(models.Model):
    """The price of an order in another currency."""

    order = models.ForeignKey(Order, on_delete=models.CASCADE, related_name="quotes")
    currency = models.CharField(max_length=3)
    amount = models.DecimalField(max_digits=12, decimal_places=2)

    class Meta:
        ordering = ("currency",)
        constraints = (models.UniqueConstraint(fields=["order", "currency"], name="shop_quote_once_per_currency"),)

    def __str__(self) -> str:
        return f"{self.amount} {self.currency}"


class Parcel(models.Model):
    """A parcel that the warehouse packed from a picking slip, which was a raw message."""

    order = models.OneToOneField(Order, on_delete=models.CASCADE)
    packed_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ("-packed_at", "-pk")

    def __str__(self) -> str:
        return f"Parcel of {self.order}"


class SalesReport(models.Model):
    made_at = models.DateTimeField(default=timezone.now)
    orders = models.PositiveIntegerField()
    revenue = models.DecimalField(max_digits=12, decimal_places=2)
    best_seller = models.CharField(max_length=80, blank=True)

    class Meta:
        ordering = ("-made_at", "-pk")
        get_latest_by = "made_at"

    def __str__(self) -> str:
        return f"{self.orders} orders, {self.revenue} EUR"
