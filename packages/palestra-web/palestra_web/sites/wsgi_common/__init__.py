"""What every site's server does alike. Runs in the sites' own virtual environments: nothing of
palestra is imported here.
"""
