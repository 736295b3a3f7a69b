"""What a hostile producer, content or reader can do, and cannot."""
