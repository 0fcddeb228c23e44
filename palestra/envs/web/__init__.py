"""Web navigation: a real browser, seen through its accessibility tree."""
