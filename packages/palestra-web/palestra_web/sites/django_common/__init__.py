"""What the Django sites share. Runs in their own virtual environments: nothing of palestra is
imported here.
"""
