from django.contrib import admin

from example_project.shop.models import CourierBooking, Order, OrderLine, Parcel, Product, Receipt, SalesReport


class OrderLineInline(admin.TabularInline):
    model = OrderLine
    extra = 0


@admin.register(Order)
class OrderAdmin(admin.ModelAdmin):
    list_display = ("__str__", "customer", "email", "total", "placed_at")
    date_hierarchy = "placed_at"
    search_fields = ("customer", "email")
    inlines = (OrderLineInline,)


@admin.register(Product)
class ProductAdmin(admin.ModelAdmin):
    list_display = ("name", "price", "description")
    prepopulated_fields = {"slug": ("name",)}  # noqa: RUF012 - never changed


@admin.register(Receipt)
class ReceiptAdmin(admin.ModelAdmin):
    list_display = ("__str__", "sent_at")


@admin.register(CourierBooking)
class CourierBookingAdmin(admin.ModelAdmin):
    list_display = ("tracking_code", "order", "attempts", "booked_at")


@admin.register(Parcel)
class ParcelAdmin(admin.ModelAdmin):
    list_display = ("__str__", "packed_at")


@admin.register(SalesReport)
class SalesReportAdmin(admin.ModelAdmin):
    list_display = ("made_at", "orders", "revenue", "best_seller")
