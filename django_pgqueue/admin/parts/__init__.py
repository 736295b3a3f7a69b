"""Parts that several pages of the admin share."""
