"""What a hostile producer, content or reader can do, and can not."""
