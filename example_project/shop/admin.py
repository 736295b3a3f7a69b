from django.contrib import admin

from example_project.shop.models import CourierBooking, Order, OrderLine, Parcel, Product, Receipt, SalesReport


class OrderLineInline(admin.TabularInline):  # type: ignore[type-arg] # generic in the stubs only
    model = OrderLine
    extra = 0


@admin.register(Order)
class OrderAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    list_display = ("__str__", "customer", "email", "total", "placed_at")
    search_fields = ("customer", "email")
    inlines = (OrderLineInline,)


admin.site.register([CourierBooking, Parcel, Product, Receipt, SalesReport])
