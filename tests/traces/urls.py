from __future__ import annotations

from typing import TYPE_CHECKING

from django.http import HttpResponse
from django.urls import path

from tests.support.site.traced import order

if TYPE_CHECKING:
    from django.http import HttpRequest


def buy(request: HttpRequest) -> HttpResponse:
    return HttpResponse(order.enqueue(5).id)


urlpatterns = [path("buy/", buy)]
