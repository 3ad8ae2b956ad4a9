"""One pure module per wire format, and the dated rules they go by."""
