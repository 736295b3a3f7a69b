"""An upgrade while the released code and the code of today run side by side."""
