"""Measures HTTP gateways side by side; see ../README.md."""
