"""oscar's shipping, with ways to choose from."""
