"""The pages. A view enqueues a job where it belongs, in the middle of the transaction that needs it."""

from typing import Any

from django.contrib import messages
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.template.loader import render_to_string
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from django_pgqueue.compat import TaskResultDoesNotExist, task_backends
from example_project.shop import bank, jobs, warehouse
from example_project.shop.checkout import ChangedMind, place_order, remember
from example_project.shop.forms import OrderForm
from example_project.shop.fulfilment import how_far
from example_project.shop.models import Order, Parcel, SalesReport
from example_project.shop.tasks import make_sales_report

RECENT = 25
EXAMPLE_CUSTOMER = {"customer": "Ada Lovelace", "email": "ada@example.com"}


@require_http_methods(["GET", "HEAD", "POST"])
def home(request: HttpRequest) -> HttpResponse:
    form = OrderForm(request.POST or None, initial=EXAMPLE_CUSTOMER)
    if request.method == "POST" and form.is_valid():
        customer, email = form.cleaned_data["customer"], form.cleaned_data["email"]
        try:
            order = place_order(customer, email, form.basket(), change_mind="change_mind" in request.POST)
        except ChangedMind as change:
            return redirect("shop:changed_mind", order_pk=change.order_pk, job_id=change.job_id)
        return redirect(order)
    return render(request, "shop/home.html", {"form": form}, status=422 if form.is_bound else 200)


@require_GET
def changed_mind(request: HttpRequest, order_pk: int, job_id: str) -> HttpResponse:
    """Look for the rows of the rolled-back transaction: the page shows only facts that it has just looked up."""
    try:
        task_backends["default"].get_result(job_id)
        job_exists = True
    except TaskResultDoesNotExist:
        job_exists = False
    order_exists = Order.objects.filter(pk=order_pk).exists()
    found = {"order_pk": order_pk, "order_exists": order_exists, "job_id": job_id, "job_exists": job_exists}
    return render(request, "shop/changed_mind.html", found)


@require_GET
def orders(request: HttpRequest) -> HttpResponse:
    recent = Order.objects.select_related("receipt", "parcel")[:RECENT]
    return render(request, "shop/orders.html", {"orders": recent, "report": SalesReport.objects.first()})


@require_GET
def order(request: HttpRequest, pk: int) -> HttpResponse:
    found = get_object_or_404(Order, pk=pk)
    return render(request, "shop/order.html", {"order": found, **progress(found)})


@require_GET
def order_status(request: HttpRequest, pk: int) -> JsonResponse:
    """Return what the order's page polls: the part that changes, and when to ask again (null: never)."""
    found = get_object_or_404(Order, pk=pk)
    context = progress(found)
    return JsonResponse(
        {
            "receipt": hasattr(found, "receipt"),
            "jobs": [(line.label, line.standing.status) for line in context["jobs"]],
            "html": render_to_string("shop/_progress.html", {"order": found, **context}, request),
            "wait_ms": context["wait_ms"],
        }
    )


def progress(order: Order) -> dict[str, Any]:
    lines = jobs.job_lines(order)
    waits_ms = [line.standing.wait_ms for line in lines if line.standing.wait_ms]
    return {"jobs": lines, "steps": how_far(order), "wait_ms": min(waits_ms, default=None)}


@require_POST
def order_job(request: HttpRequest, pk: int) -> HttpResponse:
    """Start one of the jobs that a customer may ask for; the note on the order and the job commit together."""
    start = jobs.ON_REQUEST.get(request.POST.get("job", ""))
    if start is None:
        raise Http404("No such job.")
    with transaction.atomic():
        found = get_object_or_404(Order, pk=pk)
        remember(found, start(found))
    return redirect(found)


@require_POST
def pay(request: HttpRequest, pk: int) -> HttpResponse:
    """Play the customer's bank, which tells the shop."""
    found = get_object_or_404(Order, pk=pk)
    is_new = bank.receive(*bank.notification(found))
    messages.info(request, "The bank has told the shop." if is_new else "The bank had told the shop before.")
    return redirect(found)


@csrf_exempt
@require_POST
def payment(request: HttpRequest) -> HttpResponse:
    """Hear the bank, which has no session here: its signature says who it is."""
    try:
        is_new = bank.receive(request.body, request.headers.get("X-Signature", ""))
    except bank.Forged:
        return HttpResponse("The signature is wrong.", status=403, content_type="text/plain")
    except Order.DoesNotExist:
        return HttpResponse("There is no such order.", status=404, content_type="text/plain")
    return JsonResponse({"new": is_new})


@require_POST
def report(request: HttpRequest) -> HttpResponse:
    result = make_sales_report.enqueue()
    messages.info(request, f"Job {result.id} will make the report as soon as nothing more urgent waits.")
    return redirect("shop:orders")


@require_http_methods(["GET", "HEAD", "POST"])
def warehouse_page(request: HttpRequest) -> HttpResponse:
    if request.method == "POST":
        messages.info(request, warehouse.pick_next(request.POST.get("outcome", "")))
        return redirect("shop:warehouse")
    parcels = Parcel.objects.select_related("order")[:RECENT]
    return render(request, "shop/warehouse.html", {"slips": warehouse.slips(), "parcels": parcels})
