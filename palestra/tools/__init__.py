"""What helps before and after a run: doctor, plan, report, replay and export."""
