# ruff: noqa: RUF012 - Django reads these lists and changes none of them

from decimal import Decimal

import django.core.validators
import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Order",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("customer", models.CharField(max_length=80)),
                ("email", models.EmailField(max_length=254)),
                ("total", models.DecimalField(decimal_places=2, max_digits=10)),
                ("placed_at", models.DateTimeField(db_index=True, default=django.utils.timezone.now)),
            ],
            options={
                "ordering": ("-placed_at", "-pk"),
            },
        ),
        migrations.CreateModel(
            name="Product",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=80)),
                ("slug", models.SlugField(unique=True)),
                ("description", models.CharField(max_length=200)),
                (
                    "price",
                    models.DecimalField(
                        decimal_places=2,
                        max_digits=8,
                        validators=[django.core.validators.MinValueValidator(Decimal("0.01"))],
                    ),
                ),
                ("colour", models.CharField(help_text="Colour of the tin, such as #1f7a6d.", max_length=7)),
            ],
            options={
                "ordering": ("name",),
            },
        ),
        migrations.CreateModel(
            name="SalesReport",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("made_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("orders", models.PositiveIntegerField()),
                ("revenue", models.DecimalField(decimal_places=2, max_digits=12)),
                ("best_seller", models.CharField(blank=True, max_length=80)),
            ],
            options={
                "ordering": ("-made_at", "-pk"),
                "get_latest_by": "made_at",
            },
        ),
        migrations.CreateModel(
            name="CourierBooking",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("tracking_code", models.CharField(max_length=20)),
                ("attempts", models.PositiveSmallIntegerField(help_text="Number of calls to the courier.")),
                ("booked_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("order", models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, to="shop.order")),
            ],
        ),
        migrations.CreateModel(
            name="OrderJob",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("label", models.CharField(max_length=80)),
                ("result_id", models.CharField(max_length=64)),
                (
                    "order",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="jobs", to="shop.order"
                    ),
                ),
            ],
            options={
                "ordering": ("pk",),
            },
        ),
        migrations.CreateModel(
            name="Parcel",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("packed_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("order", models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, to="shop.order")),
            ],
            options={
                "ordering": ("-packed_at", "-pk"),
            },
        ),
        migrations.CreateModel(
            name="OrderLine",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "quantity",
                    models.PositiveSmallIntegerField(validators=[django.core.validators.MinValueValidator(1)]),
                ),
                ("unit_price", models.DecimalField(decimal_places=2, max_digits=8)),
                (
                    "order",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="lines", to="shop.order"
                    ),
                ),
                ("product", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="shop.product")),
            ],
            options={
                "ordering": ("pk",),
            },
        ),
        migrations.CreateModel(
            name="Receipt",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("text", models.TextField()),
                ("sent_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("order", models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, to="shop.order")),
            ],
        ),
        migrations.CreateModel(
            name="Quote",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("currency", models.CharField(max_length=3)),
                ("amount", models.DecimalField(decimal_places=2, max_digits=12)),
                (
                    "order",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="quotes", to="shop.order"
                    ),
                ),
            ],
            options={
                "ordering": ("currency",),
                "constraints": [
                    models.UniqueConstraint(fields=("order", "currency"), name="shop_quote_once_per_currency")
                ],
            },
        ),
    ]
