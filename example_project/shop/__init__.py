"""The shop: orders, receipts and the jobs between them."""
