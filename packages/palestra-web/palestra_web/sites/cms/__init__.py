"""The website of a small museum and its content management: wagtail."""
