"""The order form: the customer, and how many of each product."""

from typing import Any

from django import forms

from example_project.shop.models import Product

MAX_OF_ONE_PRODUCT = 20


class OrderForm(forms.Form):
    customer = forms.CharField(label="Your name", max_length=80, widget=forms.TextInput(attrs={"autocomplete": "name"}))
    email = forms.EmailField(label="Your e-mail", widget=forms.EmailInput(attrs={"autocomplete": "email"}))

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.products = list(Product.objects.all())
        for product in self.products:
            self.fields[quantity_name(product)] = quantity_field()

    def people(self) -> list[forms.BoundField]:
        return [self["customer"], self["email"]]

    def shelf(self) -> list[tuple[Product, forms.BoundField]]:
        """Each product with the field that asks how many of it."""
        return [(product, self[quantity_name(product)]) for product in self.products]

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if not self.errors and not self.basket():
            raise forms.ValidationError("Your basket is empty: take at least one tin of tea.")
        return cleaned

    def basket(self) -> dict[Product, int]:
        quantities = {product: self.cleaned_data.get(quantity_name(product)) or 0 for product in self.products}
        return {product: quantity for product, quantity in quantities.items() if quantity}


def quantity_name(product: Product) -> str:
    return f"quantity_{product.pk}"


def quantity_field() -> forms.IntegerField:
    widget = forms.NumberInput(attrs={"placeholder": "0"})
    return forms.IntegerField(min_value=0, max_value=MAX_OF_ONE_PRODUCT, required=False, widget=widget)
