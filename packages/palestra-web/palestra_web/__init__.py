"""The self-hosted sites of Palestra's environment `web`, and the tasks on them."""
